"""Lanes: sending short tasks ahead, taking them back, and losing workers and nodes."""

from __future__ import annotations

import pytest
from tests.unit.engine_rig import Rig, big, call, failure_of, launched, settled, spec, updates

from penstock.engine.placement import AHEAD, DEEPEST, STALL
from penstock.errors import ConstraintError
from penstock.model.commands import Free, Launch, Recall
from penstock.model.resources import Requirements
from penstock.model.tasks import FailureKind, TaskState

QUICK = spec("quick")


def depth(rig: Rig, lane: int = 0) -> int:
    return len(rig.engine.state.ledger.nodes["n"].lanes[lane].queue)


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0.0, DEEPEST), (0.001, 9), (0.0025, 3), (0.0049, 2), (0.006, 1), (2.0, 1)]
)
def test_how_many_are_sent_ahead_follows_how_long_they_take(seconds: float, expected: int) -> None:
    rig = Rig(lanes=1)
    rig.teach(QUICK, seconds)
    rig.submit(*(call(task, QUICK) for task in range(1, 200)))
    assert depth(rig) == expected
    assert expected * seconds <= AHEAD or expected == 1


def test_nothing_is_sent_ahead_before_a_duration_is_known() -> None:
    rig = Rig(lanes=1)
    rig.submit(*(call(task, QUICK) for task in range(1, 5)))
    assert depth(rig) == 1


def test_a_piece_of_a_map_counts_as_long_as_all_its_calls() -> None:
    rig = Rig(lanes=1)
    rig.submit(call(1, QUICK, items=1000))
    rig.finish(1, seconds=1.0)
    rig.submit(*(call(task, QUICK, items=1000) for task in range(2, 5)))
    assert depth(rig) == 1
    rig.finish(2, seconds=1.0)
    assert depth(rig) == 1


def test_a_longer_task_is_not_sent_behind_many_short_ones() -> None:
    rig = Rig(lanes=1)
    medium = spec("medium")
    rig.teach(QUICK, 0.0)
    rig.teach(medium, 0.004)
    rig.submit(*(call(task, QUICK) for task in range(1, 6)), *(call(task, medium) for task in range(6, 200)))
    assert depth(rig) == 5


def test_lanes_are_fed_in_turn() -> None:
    rig = Rig(lanes=2)
    rig.teach(QUICK, 0.0)
    rig.submit(*(call(task, QUICK) for task in range(1, 9)))
    assert [depth(rig, lane) for lane in (0, 1)] == [4, 4]


def test_what_was_sent_ahead_runs_on_the_tokens_of_the_one_before() -> None:
    rig = Rig(lanes=1)
    rig.teach(QUICK, 0.001)
    rig.submit(call(1, QUICK), call(2, QUICK))
    assert rig.state(2) is TaskState.QUEUED
    rig.finish(1, seconds=0.001)
    assert rig.state(2) is TaskState.RUNNING
    assert list(rig.engine.state.ledger.holders) == [2]


def test_only_tasks_with_the_same_requirements_are_sent_behind_one_another() -> None:
    rig = Rig(lanes=2)
    wide = spec("quick", requirements=Requirements(2))
    rig.teach(QUICK, 0.001)
    rig.submit(call(1, QUICK), call(2, QUICK), call(3, wide))
    assert rig.state(3) is TaskState.READY


def test_a_task_with_a_timeout_stands_alone() -> None:
    rig = Rig(lanes=1)
    limited = spec("quick", timeout=9.0)
    rig.teach(QUICK, 0.001)
    rig.submit(call(1, limited), call(2, QUICK), call(3, limited))
    assert depth(rig) == 1
    rig.finish(1, seconds=0.001)
    assert (rig.state(2), rig.state(3)) == (TaskState.RUNNING, TaskState.READY)


def test_what_is_stuck_behind_a_long_head_is_taken_back_and_placed_elsewhere() -> None:
    rig = Rig(lanes=2)
    rig.teach(QUICK, 0.001)
    rig.submit(call(1), call(2, QUICK), call(3, QUICK), call(4, QUICK))
    assert [rig.lane_of(task) for task in (2, 3, 4)] == [1, 1, 1]
    due = rig.engine.next_look()
    assert due == STALL
    assert rig.tick(due) == [Recall("n", 1)]
    assert rig.engine.next_look() is None
    assert rig.tick(1.0) == []
    assert rig.recalled(1, 3, 4) == []
    assert launched(rig.finish(1)) == [3, 4]
    assert (rig.lane_of(3), rig.attempt(3)) == (0, 1)


def test_the_time_to_look_is_reached_by_waiting_until_it() -> None:
    rig = Rig(lanes=1)
    rig.now = 12345.678901
    rig.teach(QUICK, 0.001)
    rig.submit(call(1, QUICK), call(2, QUICK))
    due = rig.engine.next_look()
    assert due is not None
    rig.now = due
    assert rig.tick(0.0) == [Recall("n", 0)]


def test_nothing_is_sent_ahead_while_a_recall_is_under_way() -> None:
    rig = Rig(lanes=1)
    rig.teach(QUICK, 0.001)
    rig.submit(call(1, QUICK), call(2, QUICK))
    rig.tick(STALL)
    assert rig.submit(call(3, QUICK)) == []
    assert launched(rig.finish(1, seconds=0.001)) == []
    rig.recalled(0)
    assert launched(rig.finish(2, seconds=0.001)) == [3]


def test_a_recall_that_lost_the_race_takes_back_nothing() -> None:
    rig = Rig(lanes=1)
    rig.teach(QUICK, 0.001)
    rig.submit(call(1, QUICK), call(2, QUICK))
    rig.tick(STALL)
    rig.finish(1, seconds=0.001)
    rig.finish(2, seconds=0.001)
    assert rig.recalled(0) == []
    assert launched(rig.submit(call(3, QUICK))) == [3]


def test_a_recall_may_take_back_what_became_the_head_meanwhile() -> None:
    rig = Rig(lanes=1)
    rig.teach(QUICK, 0.001)
    rig.submit(call(1, QUICK), call(2, QUICK))
    rig.tick(STALL)
    rig.finish(1, seconds=0.001)
    assert rig.state(2) is TaskState.RUNNING
    assert launched(rig.recalled(0, 2)) == [2]
    assert rig.attempt(2) == 1


def test_a_recalled_update_may_be_in_place_again() -> None:
    rig = Rig(lanes=1)
    rig.teach(QUICK, 0.001)
    rig.provide(50, big(7))
    rig.submit(call(1, QUICK), call(2, QUICK))
    rig.submit(updates(3, 50, 51, QUICK))
    rig.release(50)
    rig.tick(STALL)
    rig.recalled(0, 2, 3)
    [*_, launch] = rig.finish(1, seconds=0.001)
    assert type(launch) is Launch
    assert (launch.task, launch.in_place) == (3, (0,))


# --- lost workers and nodes -----------------------------------------------------------------------------------------


def test_a_lost_worker_costs_the_head_an_attempt_and_those_behind_it_none() -> None:
    rig = Rig(lanes=1)
    rig.teach(QUICK, 0.001)
    rig.submit(call(1, QUICK), call(2, QUICK), call(3, QUICK))
    assert launched(rig.lose_worker(0)) == [1, 2, 3]
    assert [rig.attempt(task) for task in (1, 2, 3)] == [2, 1, 1]


def test_what_was_taken_back_before_a_worker_was_lost_is_not_sent_to_it() -> None:
    rig = Rig(lanes=1)
    rig.teach(QUICK, 0.001)
    rig.submit(call(1, QUICK), call(2, QUICK))
    assert rig.recalled(0, 1, 2) == []  # nobody asked: the worker is gone
    assert rig.submit(call(3, QUICK)) == []
    assert launched(rig.lose_worker(0)) == [1, 2, 3]
    assert [rig.attempt(task) for task in (1, 2, 3)] == [1, 1, 1]


def test_the_head_of_a_worker_that_died_by_itself_is_to_blame() -> None:
    rig = Rig(lanes=1)
    rig.teach(QUICK, 0.001)
    rig.submit(call(1, QUICK), call(2, QUICK))
    rig.recalled(0, 2)
    assert launched(rig.lose_worker(0)) == [1, 2]
    assert [rig.attempt(task) for task in (1, 2)] == [2, 1]


def test_a_worker_lost_while_idle_harms_nobody() -> None:
    rig = Rig(lanes=1)
    rig.recalled(0)
    assert rig.lose_worker(0) == []
    assert launched(rig.submit(call(1))) == [1]


def test_a_lane_that_is_not_served_again_gets_nothing_more() -> None:
    rig = Rig(lanes=2)
    rig.submit(call(1), call(2), call(3))
    assert launched(rig.lose_worker(0, replaced=False)) == []
    assert rig.state(1) is TaskState.READY
    assert launched(rig.finish(2)) == [1]
    assert rig.lose_worker(0) == []
    assert rig.state(3) is TaskState.READY


def test_when_the_last_lane_is_closed_what_waits_fails_and_says_why() -> None:
    rig = Rig(lanes=1)
    rig.submit(call(1), call(2), call(3, slots=(102,)))
    commands = rig.lose_worker(0, "it cannot start", replaced=False)
    assert failure_of(commands, 101).kind is FailureKind.UNPLACEABLE
    assert "the last worker of node n ended: it cannot start" in failure_of(commands, 102).message
    assert failure_of(commands, 103).path in {("f#3",), ("f#2", "f#3")}
    with pytest.raises(ConstraintError, match="no node is left"):
        rig.engine.ensure_possible("f", Requirements())


def test_what_ran_on_a_lost_node_runs_elsewhere() -> None:
    rig = Rig(lanes=1)
    rig.submit(call(1))
    rig.join("m", 1)
    rig.submit(call(2))
    [launch] = [command for command in rig.finish(2) + rig.lose_node("n") if type(command) is Launch]
    assert (launch.task, launch.attempt, launch.node) == (1, 2, "m")
    assert rig.lose_node("n") == []
    assert rig.recalled(0) == []
    assert rig.lose_worker(0) == []


def test_what_fits_no_other_node_fails_when_its_node_is_lost() -> None:
    rig = Rig(lanes=2)
    rig.join("m", 1)
    wide = spec("wide", requirements=Requirements(2))
    rig.submit(call(1, wide), call(2, wide), call(3, slots=(102,)), call(4))
    commands = rig.lose_node("n")
    assert set(settled(commands)) == {101, 102, 103}
    assert failure_of(commands, 101).kind is FailureKind.UNPLACEABLE
    assert "node n was lost" in failure_of(commands, 102).message
    assert rig.state(4) is TaskState.RUNNING


def test_what_could_run_only_on_a_lost_node_fails_when_it_is_submitted() -> None:
    rig = Rig(lanes=2)
    rig.join("m", 1)
    wide = spec("wide", requirements=Requirements(2))
    rig.lose_node("n")
    assert failure_of(rig.submit(call(1, wide)), 101).kind is FailureKind.UNPLACEABLE
    assert launched(rig.submit(call(2))) == [2]
    rig.join("o", 2)
    assert launched(rig.submit(call(3, wide))) == [3]


# --- blocked: no node can host it, but one may come; unassigned: one could, but has no room now -----------------------


def elastic(lanes: int) -> Rig:
    rig = Rig(lanes=lanes)
    rig.engine.state.elastic = True
    return rig


def test_what_is_blocked_waits_for_a_node_that_can_host_it_and_holds_up_nobody() -> None:
    rig = elastic(lanes=2)
    rig.join("m", 1)
    wide = spec("wide", requirements=Requirements(2))
    rig.submit(call(1, wide), call(2, wide), call(3, slots=(102,)), call(4))
    assert launched(rig.lose_node("n")) == []
    assert [rig.state(task) for task in (1, 2, 3)] == [TaskState.READY, TaskState.READY, TaskState.WAITING]
    assert rig.engine.blocked() == ["wide#1", "wide#2"]
    assert launched(rig.submit(call(5))) == []
    assert launched(rig.finish(4)) == [5]
    assert launched(rig.join("o", 1)) == []
    [launch] = [command for command in rig.join("p", 2) if type(command) is Launch]
    assert (launch.task, launch.attempt, launch.node) == (1, 2, "p")
    assert rig.engine.blocked() == []


def test_what_is_unassigned_is_not_blocked() -> None:
    rig = elastic(lanes=1)
    rig.submit(call(1), call(2))
    assert rig.state(2) is TaskState.READY
    assert rig.engine.blocked() == []


def test_what_a_lost_node_could_host_may_be_submitted_and_is_blocked() -> None:
    rig = elastic(lanes=2)
    rig.join("m", 1)
    rig.lose_node("n")
    wide, wider = (spec("wide", requirements=Requirements(cpus)) for cpus in (2, 3))
    rig.engine.ensure_possible("wide", wide.requirements)
    assert launched(rig.submit(call(1, wide))) == []
    assert rig.engine.blocked() == ["wide#1"]
    with pytest.raises(ConstraintError, match="computing_units=3.* the largest, 'n', has 2 computing units"):
        rig.engine.ensure_possible("wide", wider.requirements)
    assert failure_of(rig.submit(call(2, wider)), 102).kind is FailureKind.UNPLACEABLE


def test_all_is_blocked_when_the_last_node_is_lost_and_starts_on_the_next() -> None:
    rig = elastic(lanes=1)
    rig.submit(call(1), call(2))
    rig.lose_node("n")
    assert rig.engine.blocked() == ["f#1", "f#2"]
    assert launched(rig.join("m", 2)) == [1, 2]


def test_what_is_blocked_can_be_cancelled() -> None:
    rig = elastic(lanes=1)
    rig.submit(call(1))
    rig.lose_node("n")
    assert failure_of(rig.cancel(1), 101).kind is FailureKind.CANCELLED
    assert rig.engine.blocked() == []


# --- what is left behind ----------------------------------------------------------------------------------------------


def test_the_segments_of_what_failed_with_its_node_are_freed() -> None:
    rig = Rig(lanes=1)
    rig.provide(50, big(7))
    rig.submit(call(1, slots=(50,)))
    rig.release(50)
    assert Free(7) in rig.lose_node("n")
    rig.release(101)
    assert rig.empty


def test_an_update_in_place_whose_worker_was_killed_for_another_fails() -> None:
    rig = Rig(lanes=1)
    rig.teach(QUICK, 0.001)
    rig.provide(50, big(7))
    rig.submit(call(1, QUICK), call(2, QUICK), updates(3, 50, 51, QUICK))
    rig.release(50)
    rig.tick(STALL)
    rig.recalled(0, 2, 3)
    rig.finish(1, seconds=0.001)
    rig.cancel(2, kill=True)
    rig.finish(2, seconds=0.001)  # it ended just before the kill, and 3 began
    failure = failure_of(rig.lose_worker(0), 51)
    assert failure.kind is FailureKind.DIED
    assert "in place" in failure.message
