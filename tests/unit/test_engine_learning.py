"""Learned constraints driven through the engine: epochs, whose turn it is, and what the others do meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.engine_rig import call
from tests.unit.storage_rig import FULL, MB, PublishedRig, io, where

from penstock.model.commands import Command, Warm
from penstock.model.events import ConstraintChosen, EpochEnded
from penstock.model.resources import Auto, StorageLayer
from penstock.model.tasks import TaskSpec, TaskState
from penstock.tuning.registry import Learned, Measure

SSD = StorageLayer("ssd", "/ssd", 450 * MB)
SMALL = StorageLayer("ssd", "/ssd", 100 * MB)
BOUNDED = Auto(25 * MB, 100 * MB, 2)
PLAIN = io("plain", bw=10)


def learner(name: str = "checkpoint", auto: Auto = BOUNDED) -> TaskSpec:
    return io(name, auto=auto)


def warm(rig: PublishedRig, commands: list[Command]) -> list[Command]:
    """All executors that were asked for are there."""
    nodes = [command.node for command in commands if type(command) is Warm]
    return [further for node in nodes for further in rig.warmed(node)]


def learn(rig: PublishedRig, launched: list[tuple[int, str, float]], times: dict[int, float]) -> list[int]:
    """Let epoch after epoch end, each after the time that so many tasks take; their sizes."""
    sizes = []
    while rig.engine.state.courses:
        sizes.append(len(launched))
        seconds = times.get(len(launched), 1.0)
        rig.now += seconds
        launched = [one for task, _, _ in launched for one in where(rig.finish(task, seconds=seconds))]
    return sizes


def epochs(rig: PublishedRig) -> list[tuple[float, int, bool]]:
    """Constraint in MB/s, tasks, and whether it closed early, of every epoch so far."""
    notes = [note for note in rig.engine.state.notes if isinstance(note, EpochEnded)]
    return [(note.constraint / MB, note.tasks, note.partial) for note in notes]


@pytest.mark.parametrize(
    ("auto", "times", "sizes"),
    [
        (Auto(2 * MB, 256 * MB, 2), {}, [225, 112, 56, 28, 14, 7, 3, 1]),
        (Auto(), {225: 8.0, 112: 4.0, 56: 2.0, 28: 1.0, 14: 0.9}, [225, 112, 56, 28, 14]),
        (Auto(), {225: 8.0, 112: 4.0, 56: 2.0, 28: 1.5}, [225, 112, 56, 28]),
    ],
    ids=["bounded: 446 tasks", "unbounded, five epochs: 435", "unbounded, four epochs: 421"],
)
def test_epochs_are_as_large_as_published(auto: Auto, times: dict[int, float], sizes: list[int]) -> None:
    rig = PublishedRig(SSD, executors=225)
    rig.checking = False
    assert rig.submit(*(call(task, learner(auto=auto)) for task in range(1, 501))) == [Warm("n", 225)]
    launched = where(rig.warmed())
    assert launched == [(task, "ssd", 2.0) for task in range(1, 226)]
    assert learn(rig, launched, times) == sizes
    assert epochs(rig) == [(2.0 * 2**i, size, False) for i, size in enumerate(sizes)]


def test_the_epoch_that_does_not_pay_is_not_registered() -> None:
    rig = PublishedRig(SSD, executors=225)
    rig.checking = False
    rig.submit(*(call(task, learner(auto=Auto())) for task in range(1, 501)))
    learn(rig, where(rig.warmed()), {225: 8.0, 112: 4.0, 56: 2.0, 28: 1.5})
    registered = [note.registered for note in rig.engine.state.notes if isinstance(note, EpochEnded)]
    assert registered == [True, True, True, False]


def test_a_chosen_constraint_holds_for_all_that_wait() -> None:
    rig = PublishedRig(SSD, executors=225)
    rig.checking = False
    rig.submit(*(call(task, learner(auto=Auto(2 * MB, 256 * MB, 2))) for task in range(1, 501)))
    learn(rig, where(rig.warmed()), {})
    running = [task for task in rig.engine.state.tasks.values() if task.state is TaskState.RUNNING]
    # With equal times at all concurrencies, what is best is all 54 at once.
    assert {task.bandwidth for task in running} == {8 * MB}  # type: ignore[attr-defined]
    assert len(running) == 54
    chosen = [note.constraint for note in rig.engine.state.notes if isinstance(note, ConstraintChosen)]
    assert chosen == [8 * MB]


def test_nothing_starts_before_the_executors_are_there() -> None:
    rig = PublishedRig(SMALL)
    assert rig.submit(*(call(task, learner()) for task in range(1, 9))) == [Warm("n", 4)]
    assert rig.tick(5.0) == []
    assert where(rig.warmed()) == [(task, "ssd", 25.0) for task in (1, 2, 3, 4)]


def test_other_instances_wait_for_the_next_epoch() -> None:
    rig = PublishedRig(SMALL)
    rig.submit(*(call(task, learner()) for task in range(1, 9)))
    assert [task for task, _, _ in where(rig.warmed())] == [1, 2, 3, 4]
    for task in (1, 2, 3):
        assert where(rig.finish(task)) == []
    assert where(rig.finish(4)) == [(5, "ssd", 50.0), (6, "ssd", 50.0)]
    assert where(rig.finish(5)) == []
    assert where(rig.finish(6)) == [(7, "ssd", 100.0)]


def test_a_failed_attempt_does_not_count_and_another_takes_its_place() -> None:
    rig = PublishedRig(SMALL)
    rig.submit(*(call(task, learner()) for task in range(1, 9)))
    rig.warmed()
    assert where(rig.fail(2)) == [(5, "ssd", 25.0)]
    assert where(rig.lose_worker(rig.lane_of(3))) == [(3, "ssd", 25.0)]  # it is tried again
    for task in (1, 3, 4, 5):
        rig.finish(task)
    assert epochs(rig) == [(25.0, 4, False)]


def test_an_attempt_that_found_the_layer_full_does_not_count_either() -> None:
    rig = PublishedRig(SMALL)
    rig.submit(*(call(task, learner()) for task in range(1, 5)))
    rig.warmed()
    rig.fail(1, FULL)
    for task in (2, 3, 4):
        rig.finish(task)
    # The fourth could come only when there is room again, which nobody can foretell.
    assert epochs(rig) == [(25.0, 3, True)]
    rig.tick(1.0)
    assert rig.state(1) is TaskState.RUNNING


def test_other_io_goes_to_another_node_meanwhile() -> None:
    rig = PublishedRig(SMALL, nodes=2)
    warm(rig, rig.submit(*(call(task, learner()) for task in range(1, 9))))
    rig.submit(call(11, PLAIN), call(12, io("unlayered")))
    nodes = {task: rig.engine.state.tasks[task].lane.node.name for task in (1, 11, 12)}  # type: ignore[union-attr]
    assert nodes == {1: "n0", 11: "n1", 12: "n1"}


def test_compute_goes_on_beside_an_epoch() -> None:
    rig = PublishedRig(SMALL, lanes=1)
    rig.submit(*(call(task, learner()) for task in range(1, 9)))
    rig.warmed()
    rig.submit(call(11))
    assert rig.state(11) is TaskState.RUNNING


def test_on_the_only_node_epochs_and_other_io_alternate() -> None:
    rig = PublishedRig(SMALL)
    rig.submit(*(call(task, learner()) for task in range(1, 9)))
    rig.warmed()
    assert where(rig.submit(call(11, PLAIN), call(12, io("unlayered")))) == []
    for task in (1, 2, 3):
        rig.finish(task)
    # The epoch is over: the others' turn. The next epoch waits until they are done.
    assert where(rig.finish(4)) == [(11, "ssd", 10.0), (12, "", 0.0)]
    assert where(rig.submit(call(13, PLAIN))) == []
    assert where(rig.finish(11)) == []
    assert where(rig.finish(12)) == [(5, "ssd", 50.0), (6, "ssd", 50.0)]
    assert where(rig.finish(5)) == []
    assert where(rig.finish(6)) == [(13, "ssd", 10.0)]
    assert where(rig.finish(13)) == [(7, "ssd", 100.0)]


def test_two_learners_on_one_node_take_turns() -> None:
    rig = PublishedRig(SMALL)
    rig.submit(*(call(task, learner("a")) for task in range(1, 8)))
    rig.submit(*(call(task, learner("b")) for task in range(11, 18)))
    started = [[task for task, _, _ in where(rig.warmed())]]
    while rig.engine.state.courses:
        commands = [command for task in started[-1] for command in rig.finish(task)]
        started.append([task for task, _, _ in where(commands)])
    assert started[:6] == [[1, 2, 3, 4], [11, 12, 13, 14], [5, 6], [15, 16], [7], [17]]


def test_two_learners_take_a_node_each() -> None:
    rig = PublishedRig(SMALL, nodes=2)
    commands = rig.submit(*(call(task, learner("a")) for task in range(1, 8)))
    commands += rig.submit(*(call(task, learner("b")) for task in range(11, 18)))
    assert commands == [Warm("n0", 4), Warm("n1", 4)]
    assert [task for task, _, _ in where(warm(rig, commands))] == [1, 2, 3, 4, 11, 12, 13, 14]


def test_an_epoch_that_lacks_instances_starts_when_no_more_come_and_closes_early() -> None:
    rig = PublishedRig(SMALL)
    rig.submit(call(1, learner()), call(2, learner()))
    assert where(rig.warmed()) == [(1, "ssd", 25.0), (2, "ssd", 25.0)]  # nothing else runs that could make more
    rig.finish(1)
    assert epochs(rig) == []
    rig.finish(2)
    assert epochs(rig) == [(25.0, 2, True)]


def test_an_epoch_that_lacks_instances_waits_while_others_may_bring_some() -> None:
    rig = PublishedRig(SMALL, lanes=1)
    rig.submit(call(11), call(1, learner()))
    assert where(rig.warmed()) == []
    due = rig.engine.next_look()
    assert due is not None and due > rig.now
    assert where(rig.tick(due - rig.now)) == [(1, "ssd", 25.0)]


def test_an_epoch_left_by_its_instances_keeps_nobody_out() -> None:
    rig = PublishedRig(SMALL)
    rig.submit(call(11, PLAIN))
    rig.submit(*(call(task, learner()) for task in range(1, 5)))
    assert where(rig.warmed()) == []  # the device is kept for the epoch, but is still in use
    assert where(rig.submit(call(12, PLAIN))) == []
    for task in (1, 2, 3, 4):
        rig.cancel(task)
    rig.finish(11)
    assert rig.state(12) is TaskState.RUNNING


def test_a_learning_phase_outlives_its_node() -> None:
    rig = PublishedRig(SMALL, nodes=2)
    warm(rig, rig.submit(*(call(task, learner()) for task in range(1, 9))))
    commands = rig.lose_node("n0")
    assert [command for command in commands if type(command) is Warm] == [Warm("n1", 4)]
    assert len(where(rig.warmed("n1"))) == 4


def test_what_an_earlier_run_learned_is_used() -> None:
    first = PublishedRig(SMALL)
    first.submit(*(call(task, learner()) for task in range(1, 8)))
    learn(first, where(first.warmed()), {4: 4.0, 2: 1.0, 1: 0.9})
    [tuner] = first.engine.state.tuners.values()
    learned = tuner.learned()
    assert learned is not None
    rig = PublishedRig(SMALL, known={("checkpoint", "ssd"): learned})
    commands = rig.submit(*(call(task, learner()) for task in range(1, 8)))
    assert not [command for command in commands if type(command) is Warm]
    assert where(commands) == [(1, "ssd", 100.0)]  # alone, it is quickest with everything to itself
    note = rig.engine.state.notes[0]
    assert isinstance(note, ConstraintChosen)
    assert note.remembered


def first_choice(measures: tuple[Measure, ...], waiting: int, nodes: int = 1, **rules: Any) -> float:
    """MB/s of the first of so many that wait until a device is free, where that is known."""
    known = {("checkpoint", "ssd"): Learned("checkpoint", "ssd", 100 * MB, 4, BOUNDED, measures)}
    rig = PublishedRig(SMALL, nodes=nodes, known=known, **rules)
    whole = io("whole", bw=100)
    rig.submit(*(call(100 + number, whole) for number in range(nodes)))
    assert where(rig.submit(*(call(task, learner()) for task in range(1, waiting + 1)))) == []
    return where(rig.finish(100))[0][2]


@pytest.mark.parametrize(("counted_per", "chosen"), [("cluster", 50), ("node", 25)])
def test_tasks_at_a_time_are_counted_for_the_cluster_or_for_a_node(counted_per: str, chosen: int) -> None:
    """Five on two nodes: one group of up to eight, or of four and one, equally good. On one: two groups, or three."""
    measures = (Measure(25 * MB, 1.9, 4, 4), Measure(50 * MB, 1.0, 2, 2), Measure(100 * MB, 0.9, 1, 1))
    assert first_choice(measures, 5, nodes=2, counted_per=counted_per) == chosen


@pytest.mark.parametrize(("tie", "chosen"), [(0.02, 50), (0.0, 25)])
def test_how_near_estimates_are_equal_is_a_setting(tie: float, chosen: int) -> None:
    measures = (Measure(25 * MB, 2.0, 4, 4), Measure(50 * MB, 1.01, 2, 2))
    assert first_choice(measures, 4, tie=tie) == chosen
