"""The happy path, dependencies and placement, as exact lists of commands."""

from __future__ import annotations

import pytest
from tests.unit.engine_rig import BOOM, Rig, big, call, launched, settled, spec, value

from penstock.errors import ConstraintError, InternalError
from penstock.model.commands import Launch, Settle
from penstock.model.events import Failed, Finished, OutputReady
from penstock.model.resources import Node, Requirements
from penstock.model.tasks import FailureKind, TaskState
from penstock.scheduling.compute import FifoData, Locality
from penstock.scheduling.ready_queues import ReadyQueues


def test_a_task_is_launched_settled_and_forgotten() -> None:
    rig = Rig()
    one = call(1)
    assert rig.submit(one) == [Launch(1, 1, "n", 0, one)]
    assert rig.finish(1, value("a")) == [Settle(101, value("a"))]
    assert rig.engine.unfinished == 0
    assert rig.engine.lives(101)
    assert rig.release(101) == []
    assert rig.empty


def test_what_does_not_fit_waits_for_a_free_lane() -> None:
    rig = Rig(lanes=1)
    two = call(2)
    rig.submit(call(1))
    assert rig.submit(two) == []
    assert rig.finish(1, value("a")) == [Settle(101, value("a")), Launch(2, 1, "n", 0, two)]


def test_a_task_submitted_before_any_node_joined_starts_when_one_does() -> None:
    rig = Rig(lanes=0)
    one = call(1)
    assert rig.submit(one) == []
    assert rig.join("n", 1) == [Launch(1, 1, "n", 0, one)]


def test_a_successor_waits_for_all_it_reads_and_gets_the_contents_in_its_slots() -> None:
    rig = Rig()
    rig.submit(call(1), call(2))
    three = call(3, slots=(102, value("known"), 101))
    assert rig.submit(three) == []
    assert rig.finish(1, value("a")) == [Settle(101, value("a"))]
    assert rig.finish(2, value("b")) == [
        Settle(102, value("b")),
        Launch(3, 1, "n", 1, three, (value("b"), value("known"), value("a"))),
    ]


def test_a_successor_starts_on_an_early_output_while_the_producer_runs() -> None:
    rig = Rig()
    two = call(2, slots=(101,))
    rig.submit(call(1, writes=(101, 102), returns=2), two)
    assert rig.hand_over(1, 0, value("a")) == [Settle(101, value("a")), Launch(2, 1, "n", 1, two, (value("a"),))]
    assert rig.state(1) is TaskState.RUNNING
    assert rig.finish(1, None, value("b")) == [Settle(102, value("b"))]


def test_an_early_output_that_nobody_wants_does_not_disturb_the_end() -> None:
    rig = Rig()
    rig.submit(call(1, writes=(101, 102), returns=2))
    rig.release(101)
    assert rig.hand_over(1, 0, value("a")) == []
    assert settled(rig.finish(1, None, value("b"))) == {102: value("b")}


def test_a_larger_priority_goes_first_and_then_the_older() -> None:
    rig = Rig(lanes=1)
    urgent = spec("urgent", priority=1)
    rig.submit(call(1), call(2), call(3, urgent), call(4, urgent), call(5))
    order = [task for _ in range(4) for task in launched(rig.finish(next(iter(rig.engine.state.ledger.holders))))]
    assert order == [3, 4, 2, 5]


def test_a_task_takes_the_units_and_memory_it_requires() -> None:
    rig = Rig(lanes=0)
    rig.join("n", 4, 100)
    wide = spec("wide", requirements=Requirements(3, 60))
    thin = spec("thin", requirements=Requirements(1, 60))
    assert launched(rig.submit(call(1, wide), call(2, thin), call(3))) == [1, 3]
    assert launched(rig.finish(1)) == [2]


def test_a_property_is_matched_without_regard_to_case() -> None:
    rig = Rig(lanes=1)
    picky = spec("picky", requirements=Requirements(1, 0, (("Processor", "ARM"),)))
    assert rig.submit(call(1, picky)) == []
    assert launched(rig.join("m", 1, processor="arm")) == [1]


def test_requirements_that_no_node_can_meet_are_refused_with_the_largest_node_named() -> None:
    rig = Rig(lanes=0)
    rig.engine.ensure_possible("f", Requirements(64))  # no node has joined yet: one may
    rig.join("small", 2)
    rig.join("large", 8, 4 * 10**9)
    with pytest.raises(ConstraintError, match=r"task f requires computing_units=9.*'large', has 8 computing units"):
        rig.engine.ensure_possible("f", Requirements(9))
    with pytest.raises(ConstraintError, match=r"memory_size=5GB.*4 GB of memory"):
        rig.engine.ensure_possible("f", Requirements(1, 5 * 10**9))
    with pytest.raises(ConstraintError, match="gpu='yes'"):
        rig.engine.ensure_possible("f", Requirements(1, 0, (("gpu", "yes"),)))
    rig.engine.ensure_possible("f", Requirements(8, 4 * 10**9))


def test_a_policy_that_follows_data_sends_tasks_where_their_input_is() -> None:
    rig = Rig(ready=ReadyQueues(Locality()), lanes=1, follows_data=True)
    rig.join("m", 1)
    rig.submit(call(1), call(2))
    nodes = {command.task: command.node for command in rig.submit() if type(command) is Launch}
    assert nodes == {}
    rig.finish(2, big(7))  # on node m
    rig.submit(call(3))  # takes m
    rig.submit(call(4), call(5, slots=(102,)))
    rig.finish(1)  # n is free: 4 is older, but 5 has bytes on m only, so neither is nearer here
    assert rig.state(4) is TaskState.RUNNING
    [_, launch] = rig.finish(3)
    assert type(launch) is Launch
    assert (launch.task, launch.node) == (5, "m")


def test_the_oldest_successor_that_a_completion_frees_is_marked() -> None:
    rig = Rig(ready=ReadyQueues(FifoData()), lanes=1, follows_data=True)
    rig.submit(call(1), call(2), call(4, slots=(101,)), call(3, slots=(101,)))
    assert launched(rig.finish(1)) == [3]
    assert launched(rig.finish(3)) == [2]


def test_a_report_of_an_attempt_that_is_over_is_ignored() -> None:
    rig = Rig()
    rig.submit(call(1))
    rig.lose_worker(0)
    assert rig.attempt(1) == 2
    assert rig.tell(Finished(1, 1, [value("late")], 1.0)) == []
    assert rig.tell(OutputReady(1, 1, 0, value("late"))) == []
    assert rig.tell(Failed(1, 1, BOOM, 1.0)) == []
    assert settled(rig.finish(1, value("a"))) == {101: value("a")}
    assert rig.tell(Finished(1, 2, [value("again")], 1.0)) == []


def test_an_illegal_move_raises_with_the_story_of_the_task() -> None:
    rig = Rig()
    rig.submit(call(1))
    record = rig.engine.state.tasks[1]
    with pytest.raises(InternalError, match=r"f#1 cannot go from RUNNING to QUEUED") as caught:
        rig.engine.state.move(record, TaskState.QUEUED)
    assert "WAITING → READY" in str(caught.value)
    assert "READY → RUNNING" in str(caught.value)


def test_an_unknown_event_is_our_error() -> None:
    with pytest.raises(InternalError, match="no handler for Node"):
        Rig().engine.handle(Node("n", 1, 0), 0.0)  # type: ignore[arg-type]


def test_a_node_may_join_only_once() -> None:
    with pytest.raises(InternalError, match="joined twice"):
        Rig().join("n", 1)


def test_counts_follow_how_tasks_end() -> None:
    rig = Rig(lanes=4)
    rig.submit(call(1, items=5), call(2), call(3), call(4))
    rig.finish(1)
    rig.fail(2)
    rig.cancel(3, kill=True)
    rig.lose_worker(2)
    state = rig.engine.state
    assert (state.done, state.failed, state.cancelled) == (5, 1, 1)
    assert rig.engine.unfinished == 1


def test_the_program_may_provide_a_version_that_a_task_waits_for() -> None:
    rig = Rig()
    rig.provide(50, value("shared"))
    one = call(1, slots=(50,))
    assert rig.submit(one) == [Launch(1, 1, "n", 0, one, (value("shared"),))]
    with pytest.raises(InternalError, match="version 50 was provided, but it exists already"):
        rig.provide(50, value("again"))


def test_a_failure_that_the_program_provides_reaches_consumers_old_and_new() -> None:
    rig = Rig()
    assert rig.provide(50, BOOM) == [Settle(50, BOOM)]
    told = settled(rig.submit(call(1, slots=(50,))))
    assert told[101].kind is FailureKind.DEPENDENCY  # type: ignore[union-attr]
    rig.release(50)
    rig.release(101)
    assert rig.empty
