"""Failures, retries, timeouts and cancellation: what happens to the task, its consumers and its tokens."""

from __future__ import annotations

import pytest
from tests.unit.engine_rig import Rig, call, failure_of, launched, settled, spec, updates, value

from penstock.engine.failures import NONE
from penstock.model.commands import Kill, Launch, Recall, Settle
from penstock.model.resources import Requirements
from penstock.model.tasks import Failure, FailureKind, OnFailure, TaskState

RETRIED = spec("retried", on_failure=OnFailure.RETRY, retries=1)
LENIENT = spec("lenient", on_failure=OnFailure.IGNORE)
QUICK = spec("quick")


# --- retries --------------------------------------------------------------------------------------------------------


def test_an_exception_is_not_retried_by_default() -> None:
    rig = Rig()
    rig.submit(call(1))
    failure = failure_of(rig.fail(1), 101)
    assert (failure.kind, failure.message) == (FailureKind.EXCEPTION, "ValueError: boom")
    assert (failure.path, failure.node, failure.attempt) == (("f#1",), "n", 1)
    rig.release(101)
    assert rig.empty


def test_a_task_whose_worker_died_is_tried_twice_more_by_default() -> None:
    rig = Rig()
    one = call(1)
    rig.submit(one)
    assert rig.lose_worker(0) == [Launch(1, 2, "n", 0, one)]
    assert rig.lose_worker(0) == [Launch(1, 3, "n", 0, one)]
    failure = failure_of(rig.lose_worker(0, "killed by SIGSEGV", output="last words"), 101)
    assert (failure.kind, failure.message, failure.attempt) == (FailureKind.DIED, "killed by SIGSEGV", 3)
    assert failure.output == "last words"


def test_explicit_retries_count_for_a_worker_that_died() -> None:
    rig = Rig()
    rig.submit(call(1, spec("fragile", retries=0)), call(2, spec("tough", retries=3)))
    assert failure_of(rig.lose_worker(0), 101).kind is FailureKind.DIED
    for _ in range(3):
        assert launched(rig.lose_worker(rig.lane_of(2))) == [2]
    assert failure_of(rig.lose_worker(rig.lane_of(2)), 102).attempt == 4


def test_an_exception_is_retried_where_the_user_asked_for_it() -> None:
    rig = Rig()
    rig.submit(call(1, RETRIED), call(2, spec("default", on_failure=OnFailure.RETRY)))
    assert launched(rig.fail(1)) == [1]
    assert failure_of(rig.fail(1), 101).attempt == 2
    assert [launched(rig.fail(2)) for _ in range(3)] == [[2], [2], []]


@pytest.mark.parametrize("kind", [FailureKind.RETURNS, FailureKind.SERIALIZATION, FailureKind.CHANGED_INPUT])
def test_what_would_only_fail_again_is_never_retried(kind: FailureKind) -> None:
    rig = Rig()
    rig.submit(call(1, RETRIED))
    assert failure_of(rig.fail(1, Failure(kind, "no use")), 101).kind is kind


# --- what a failure means to others ---------------------------------------------------------------------------------


def test_consumers_name_the_root_and_the_path() -> None:
    rig = Rig()
    rig.submit(call(1, spec("load")), call(2, spec("clean"), slots=(101,)), call(3, spec("plot"), slots=(102,)))
    told = rig.fail(1)
    assert [command.version for command in told if type(command) is Settle] == [101, 102, 103]
    last = failure_of(told, 103)
    assert last.kind is FailureKind.DEPENDENCY
    assert last.path == ("load#1", "clean#2", "plot#3")
    assert last.message == "ValueError: boom"
    assert rig.engine.unfinished == 0


def test_a_consumer_submitted_after_the_failure_fails_alike() -> None:
    rig = Rig()
    rig.submit(call(1, spec("load")))
    rig.fail(1)
    late = failure_of(rig.submit(call(2, spec("clean"), slots=(101,))), 102)
    assert (late.kind, late.path) == (FailureKind.DEPENDENCY, ("load#1", "clean#2"))
    later = failure_of(rig.submit(call(3, spec("plot"), slots=(102,))), 103)
    assert (later.kind, later.path) == (FailureKind.DEPENDENCY, ("load#1", "clean#2", "plot#3"))


def test_a_late_consumer_that_also_waits_for_others_fails_at_once_and_cleanly() -> None:
    rig = Rig()
    rig.submit(call(1), call(2))
    rig.fail(1)
    assert set(settled(rig.submit(call(3, slots=(101, 102))))) == {103}
    for version in (101, 102, 103):
        rig.release(version)
    assert rig.finish(2) == []
    assert rig.empty


def test_a_task_that_needs_two_failed_outputs_fails_once() -> None:
    rig = Rig()
    rig.submit(call(1, writes=(101, 102), returns=2), call(2, slots=(101, 102), writes=(103,), returns=1))
    assert set(settled(rig.fail(1))) == {101, 102, 103}
    assert rig.engine.state.failed == 2


def test_a_long_chain_names_its_root_and_its_end_only() -> None:
    rig = Rig()
    rig.submit(call(1), *(call(task, slots=(99 + task,)) for task in range(2, 60)))
    path = failure_of(rig.fail(1), 159).path
    assert path[:2] == ("f#1", "…")
    assert path[-2:] == ("f#58", "f#59")
    assert len(path) == 16


def test_an_ignored_failure_returns_none_and_consumers_run() -> None:
    rig = Rig()
    two = call(2, slots=(101,))
    rig.submit(call(1, LENIENT), two)
    assert rig.fail(1) == [Settle(101, NONE), Launch(2, 1, "n", 0, two, (NONE,))]
    assert (rig.engine.state.failed, rig.engine.state.done) == (1, 0)


def test_an_ignored_failure_keeps_the_old_content_of_what_it_was_to_update() -> None:
    rig = Rig()
    rig.provide(50, value("old"))
    rig.submit(updates(1, 50, 51, LENIENT), updates(2, value("inline"), 52, LENIENT))
    assert rig.fail(1) == [Settle(51, value("old"))]
    assert rig.fail(2) == [Settle(52, value("inline"))]


def test_a_worker_that_died_is_retried_before_its_failure_is_ignored() -> None:
    rig = Rig()
    rig.submit(call(1, LENIENT))
    assert launched(rig.lose_worker(0)) == [1]
    assert launched(rig.lose_worker(0)) == [1]
    assert rig.lose_worker(0) == [Settle(101, NONE)]


def test_the_failure_of_what_it_needs_is_not_a_tasks_own_to_ignore() -> None:
    rig = Rig()
    rig.submit(call(1), call(2, LENIENT, slots=(101,)))
    assert failure_of(rig.fail(1), 102).kind is FailureKind.DEPENDENCY


def test_cancel_successors_fails_itself_and_cancels_consumers_early_and_late() -> None:
    rig = Rig()
    rig.submit(call(1, spec("root", on_failure=OnFailure.CANCEL_SUCCESSORS)), call(2, slots=(101,)), call(3))
    told = rig.fail(1)
    assert failure_of(told, 101).kind is FailureKind.EXCEPTION
    cancelled = failure_of(told, 102)
    assert (cancelled.kind, cancelled.path) == (FailureKind.CANCELLED, ("root#1", "f#2"))
    assert "root#1, which failed: ValueError: boom" in cancelled.message
    assert failure_of(rig.submit(call(4, slots=(101,))), 104).kind is FailureKind.CANCELLED
    assert rig.state(3) is TaskState.RUNNING
    assert (rig.engine.state.failed, rig.engine.state.cancelled) == (1, 2)


# --- timeouts -------------------------------------------------------------------------------------------------------


def test_a_task_past_its_timeout_is_killed() -> None:
    rig = Rig()
    rig.submit(call(1, spec("slow", timeout=5.0)))
    assert rig.engine.next_look() == 5.0
    assert rig.tick(4.9) == []
    assert rig.tick(0.1) == [Kill("n", 0)]
    assert rig.tick(1.0) == []
    failure = failure_of(rig.lose_worker(0, output="tail"), 101)
    assert (failure.kind, failure.output) == (FailureKind.TIMEOUT, "tail")
    assert "timeout of 5 s" in failure.message
    assert rig.engine.next_look() is None


def test_a_timeout_is_retried_only_where_the_user_asked_for_it() -> None:
    rig = Rig()
    rig.submit(call(1, spec("slow", timeout=5.0, on_failure=OnFailure.RETRY, retries=1)))
    rig.tick(5.0)
    assert launched(rig.lose_worker(0)) == [1]
    assert rig.engine.next_look() == 10.0
    rig.tick(5.0)
    assert failure_of(rig.lose_worker(0), 101).kind is FailureKind.TIMEOUT


def test_a_task_that_ends_before_its_kill_does_has_ended_well() -> None:
    rig = Rig()
    rig.submit(call(1, spec("slow", timeout=5.0)))
    rig.tick(5.0)
    assert rig.finish(1, value("a")) == [Settle(101, value("a"))]
    assert rig.lose_worker(0) == []


def test_a_task_that_its_worker_never_began_has_not_timed_out() -> None:
    rig = Rig(lanes=1)
    rig.submit(call(1, spec("slow", timeout=5.0)))
    rig.tick(5.0)
    assert rig.recalled(0, 1) == []
    assert launched(rig.lose_worker(0)) == [1]
    assert rig.attempt(1) == 1
    assert rig.tick(4.9) == []
    assert rig.tick(0.1) == [Kill("n", 0)]


def test_nothing_is_sent_to_a_lane_that_is_being_killed() -> None:
    rig = Rig(lanes=1)
    rig.submit(call(1, spec("slow", timeout=5.0)), call(2))
    rig.tick(5.0)
    assert launched(rig.finish(1)) == []
    assert launched(rig.lose_worker(0)) == [2]
    assert rig.attempt(2) == 1


def test_deadlines_of_tasks_long_over_are_not_kept() -> None:
    rig = Rig(lanes=1)
    slow = spec("slow", timeout=3600.0)
    for task in range(1000, 1300):
        rig.submit(call(task, slow))
        rig.finish(task)
        rig.release(100 + task)
    assert len(rig.engine.state.deadlines) < 100
    rig.tick(1.0)
    assert rig.engine.next_look() is None


# --- cancellation ---------------------------------------------------------------------------------------------------


def test_cancelling_a_waiting_task_cancels_it_and_its_consumers() -> None:
    rig = Rig()
    rig.submit(call(1), call(2, slots=(101,)), call(3, slots=(102,)))
    told = rig.cancel(2)
    assert failure_of(told, 102).kind is FailureKind.CANCELLED
    assert failure_of(told, 103).path == ("f#2", "f#3")
    assert launched(rig.finish(1)) == []
    assert rig.engine.unfinished == 0


def test_cancelling_a_ready_task() -> None:
    rig = Rig(lanes=1)
    rig.submit(call(1), call(2))
    assert failure_of(rig.cancel(2), 102).message == "it was cancelled"
    assert launched(rig.finish(1)) == []


def test_cancelling_a_running_task_without_kill_does_nothing() -> None:
    rig = Rig()
    rig.submit(call(1))
    assert rig.cancel(1) == []
    assert settled(rig.finish(1, value("a"))) == {101: value("a")}


def test_cancelling_a_running_task_with_kill_ends_its_worker_once() -> None:
    rig = Rig()
    rig.submit(call(1), call(2, slots=(101,)))
    assert rig.cancel(1, kill=True) == [Kill("n", 0)]
    assert rig.cancel(1, kill=True) == []
    told = settled(rig.lose_worker(0))
    assert {failure.kind for failure in told.values()} == {FailureKind.CANCELLED}  # type: ignore[union-attr]
    assert set(told) == {101, 102}


STREAMING = spec("streaming", yields=True, timeout=5.0, on_failure=OnFailure.RETRY, retries=1)
ASKED = Failure(FailureKind.CANCELLED, "it was told to")


def test_a_body_that_yields_is_asked_before_its_worker_is_killed() -> None:
    rig = Rig()
    rig.submit(call(1, STREAMING))
    assert rig.cancel(1, kill=True) == [Kill("n", 0, ask=1)]
    failure = failure_of(rig.fail(1, ASKED), 101)
    assert (failure.kind, failure.path) == (FailureKind.CANCELLED, ("streaming#1",))
    assert failure.message == "it was cancelled"
    rig.lose_worker(0)
    rig.release(101)
    assert rig.empty


def test_a_body_that_was_asked_because_its_time_was_up_is_tried_again() -> None:
    rig = Rig()
    rig.submit(call(1, STREAMING))
    assert rig.tick(5.0) == [Kill("n", 0, ask=1)]
    assert launched(rig.fail(1, ASKED) + rig.lose_worker(0)) == [1]


def test_a_failure_while_a_cancelled_body_clears_up_is_the_tasks_failure() -> None:
    rig = Rig()
    rig.submit(call(1, spec("streaming", yields=True)))
    rig.cancel(1, kill=True)
    assert failure_of(rig.fail(1), 101).message == "ValueError: boom"


def test_cancelling_what_is_over_does_nothing() -> None:
    rig = Rig()
    rig.submit(call(1))
    rig.finish(1)
    assert rig.cancel(1, kill=True) == []


def test_a_cancelled_task_that_timed_out_is_not_retried() -> None:
    rig = Rig()
    rig.submit(call(1, spec("slow", timeout=5.0, on_failure=OnFailure.RETRY)))
    rig.tick(5.0)
    rig.cancel(1, kill=True)
    assert failure_of(rig.lose_worker(0), 101).kind is FailureKind.CANCELLED


def test_a_task_cancelled_with_kill_that_fails_first_is_not_retried() -> None:
    rig = Rig()
    rig.submit(call(1, RETRIED))
    rig.cancel(1, kill=True)
    assert failure_of(rig.fail(1), 101).kind is FailureKind.CANCELLED


def queue_behind(rig: Rig, *tasks: int) -> None:
    """Have short tasks sent to the only lane: the first runs, the others stand behind it."""
    rig.teach(QUICK, 0.001)
    rig.submit(*(call(task, QUICK) for task in tasks))
    assert [rig.state(task) for task in tasks] == [TaskState.RUNNING] + [TaskState.QUEUED] * (len(tasks) - 1)


def test_cancelling_a_queued_task_takes_it_back_and_the_others_too() -> None:
    rig = Rig(lanes=1)
    queue_behind(rig, 1, 2, 3)
    assert rig.cancel(3) == [Recall("n", 0)]
    commands = rig.recalled(0, 2, 3)
    assert failure_of(commands, 103).kind is FailureKind.CANCELLED
    assert rig.state(2) is TaskState.READY
    assert launched(rig.finish(1, seconds=0.001)) == [2]


def test_a_queued_task_that_started_before_it_was_taken_back_is_spared() -> None:
    rig = Rig(lanes=1)
    queue_behind(rig, 1, 2)
    rig.cancel(2)
    rig.finish(1, seconds=0.001)
    assert rig.recalled(0) == []
    assert settled(rig.finish(2, value("a"), seconds=0.001)) == {102: value("a")}


def test_a_queued_task_that_started_before_it_was_taken_back_is_killed_if_asked() -> None:
    rig = Rig(lanes=1)
    queue_behind(rig, 1, 2)
    rig.cancel(2)
    assert rig.cancel(2, kill=True) == []
    rig.finish(1, seconds=0.001)
    assert rig.recalled(0) == [Kill("n", 0)]
    assert failure_of(rig.lose_worker(0), 102).kind is FailureKind.CANCELLED


def test_a_queued_task_to_be_cancelled_is_not_tried_again_when_it_fails_first() -> None:
    rig = Rig(lanes=1)
    rig.teach(RETRIED, 0.001)
    rig.submit(call(1, RETRIED), call(2, RETRIED))
    rig.cancel(2)
    rig.finish(1, seconds=0.001)
    assert failure_of(rig.fail(2), 102).kind is FailureKind.CANCELLED
    assert rig.recalled(0) == []


def test_a_queued_task_to_be_cancelled_is_when_its_worker_dies() -> None:
    rig = Rig(lanes=1)
    queue_behind(rig, 1, 2)
    rig.cancel(2)
    commands = rig.lose_worker(0)
    assert failure_of(commands, 102).kind is FailureKind.CANCELLED
    assert launched(commands) == [1]


def test_a_task_whose_worker_was_killed_for_another_is_not_to_blame() -> None:
    rig = Rig(lanes=1)
    fragile = spec("quick", retries=0)
    rig.teach(QUICK, 0.001)
    rig.submit(call(1, QUICK), call(2, fragile))
    assert rig.state(2) is TaskState.QUEUED
    assert rig.cancel(1, kill=True) == [Kill("n", 0)]
    rig.finish(1, seconds=0.001)  # it ended just before the kill, and 2 began
    assert rig.state(2) is TaskState.RUNNING
    assert launched(rig.lose_worker(0)) == [2]
    assert rig.attempt(2) == 2  # it had begun: what it made is not taken for what this attempt makes
    assert failure_of(rig.lose_worker(0), 102).attempt == 2  # and this time it is


def test_an_attempt_that_was_ended_for_another_leaves_all_retries() -> None:
    rig = Rig(lanes=1)
    rig.teach(QUICK, 0.001)
    rig.submit(call(1, QUICK), call(2, spec("quick", retries=1)))
    rig.cancel(1, kill=True)
    rig.finish(1, seconds=0.001)
    assert launched(rig.lose_worker(0)) == [2]
    assert launched(rig.lose_worker(0)) == [2]
    assert failure_of(rig.lose_worker(0), 102).attempt == 3


def test_tokens_are_back_after_every_kind_of_end() -> None:
    wide = Requirements(2)
    rig = Rig()
    ledger = rig.engine.state.ledger

    def run(task: int, **fields: object) -> None:
        assert ledger.nodes["n"].free_cpus == 2
        rig.submit(call(task, spec("wide", requirements=wide, **fields)))
        assert ledger.nodes["n"].free_cpus == 0

    run(1)
    rig.finish(1)
    run(2)
    rig.fail(2)
    run(3, retries=0)
    rig.lose_worker(rig.lane_of(3))
    run(4)
    rig.cancel(4, kill=True)
    rig.lose_worker(rig.lane_of(4))
    run(5, timeout=1.0)
    rig.tick(1.0)
    rig.lose_worker(rig.lane_of(5))
    run(6, on_failure=OnFailure.IGNORE)
    rig.fail(6)
    assert ledger.nodes["n"].free_cpus == 2
    assert not ledger.holders
    for task in range(1, 7):
        rig.release(100 + task)
    assert rig.empty
