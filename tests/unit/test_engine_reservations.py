"""Reservations: nodes drained for a task that needs much and is passed over by those that need less."""

from __future__ import annotations

from math import inf

import pytest
from tests.unit.engine_rig import Rig, call, launched, spec

from penstock.engine import reservations
from penstock.engine.reservations import PATIENCE
from penstock.model.events import NodeJoined
from penstock.model.resources import Node, Requirements
from penstock.model.tasks import TaskSpec, TaskState

NARROW = spec("narrow")
WIDE = 1


def wide(cpus: int = 4, name: str = "wide", priority: int = 0, **fields: int) -> TaskSpec:
    return spec(name, requirements=Requirements(cpus, **fields), priority=priority)


class Stream:
    """Narrow tasks without end: one is always ready, and as many run as fit; each takes some seconds."""

    def __init__(self, rig: Rig, seconds: float, of: TaskSpec = NARROW) -> None:
        self.rig = rig
        self.seconds = seconds
        self.of = of
        self.next = 1000
        self.running: list[tuple[float, int]] = []
        self.top_up()

    def top_up(self) -> None:
        tasks = self.rig.engine.state.tasks
        while not any(task >= 1000 and record.state is TaskState.READY for task, record in tasks.items()):
            self.submit()

    def submit(self) -> None:
        """They start one by one, so that they do not end together."""
        self.next += 1
        before = len(self.running)
        self.note(launched(self.rig.submit(call(self.next, self.of))))
        self.rig.now += self.seconds / 10 * (len(self.running) - before)

    def note(self, tasks: list[int]) -> None:
        self.running += [(self.rig.now + self.seconds, task) for task in tasks if task >= 1000]

    def step(self) -> bool:
        """The next narrow task ends, another comes; whether the wide one has started."""
        self.running.sort()
        time, task = self.running.pop(0)
        self.rig.now = max(self.rig.now, time)
        self.note(launched(self.rig.finish(task, seconds=self.seconds)))
        self.top_up()
        return self.rig.state(WIDE) is TaskState.RUNNING

    def starts_wide_within(self, seconds: float) -> bool:
        end = self.rig.now + seconds
        while self.rig.now <= end:
            if self.step():
                return True
        return False


def current(rig: Rig) -> list[tuple[str, int]] | None:
    reservation = rig.engine.state.reservations.current
    return None if reservation is None else [(node.name, processes) for node, processes in reservation.nodes]


NEEDS = [
    Requirements(4),
    Requirements(1, 80),
    Requirements(1, processes=8),
    Requirements(2, processes=2, processes_per_node=1),
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("need", NEEDS, ids=["units", "memory", "gang", "spread gang"])
@pytest.mark.parametrize("seconds", [0.1, 3.0, 60.0])
def test_a_task_that_needs_much_starts_in_bounded_time_among_narrow_ones(need: Requirements, seconds: float) -> None:
    rig = Rig(lanes=0)
    for name in "ab":
        rig.join(name, 4, 100)
    stream = Stream(rig, seconds, spec("narrow", requirements=Requirements(1, 25)))
    rig.submit(call(WIDE, spec("wide", requirements=need)))
    # Until it is noticed, and then until all that ran on its nodes has ended.
    assert stream.starts_wide_within(1.5 * PATIENCE + 2 * seconds)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("need", NEEDS, ids=["units", "memory", "gang", "spread gang"])
def test_without_reservations_it_would_starve(need: Requirements, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservations, "PATIENCE", inf)
    rig = Rig(lanes=0)
    for name in "ab":
        rig.join(name, 4, 100)
    stream = Stream(rig, 3.0, spec("narrow", requirements=Requirements(1, 25)))
    rig.submit(call(WIDE, spec("wide", requirements=need)))
    assert not stream.starts_wide_within(100.0)


@pytest.mark.parametrize("patience", [PATIENCE, inf], ids=["with", "without"])
def test_one_that_needs_several_licences_starts_among_those_that_need_one(
    patience: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reservations, "PATIENCE", patience)
    rig = Rig(lanes=0)
    rig.tell(NodeJoined(Node("n", 8, 0, countable=(("licences", 3),))))
    one, three = (Requirements(1, countable=(("licences", count),)) for count in (1, 3))
    stream = Stream(rig, 3.0, spec("narrow", requirements=one))
    rig.submit(call(WIDE, spec("wide", requirements=three)))
    started = stream.starts_wide_within(1.5 * PATIENCE + 2 * 3.0 if patience == PATIENCE else 100.0)
    assert started is (patience == PATIENCE)


def test_who_needs_none_of_what_is_kept_goes_on() -> None:
    rig = Rig(lanes=0)
    rig.tell(NodeJoined(Node("n", 8, 0, countable=(("licences", 2),))))
    one, two = (
        spec(f"takes {count}", requirements=Requirements(1, countable=(("licences", count),))) for count in (1, 2)
    )
    rig.submit(call(2, one), call(WIDE, two))
    rig.tick(PATIENCE / 3)
    assert launched(rig.submit(call(3, one))) == [3]
    rig.now += PATIENCE
    assert launched(rig.submit(call(4, NARROW))) == [4]
    assert current(rig) == [("n", 1)]
    assert launched(rig.finish(2)) == []
    assert launched(rig.submit(call(5, one))) == [], "the licence that became free is kept"
    assert launched(rig.submit(call(6, NARROW))) == [6], "who needs no licence takes nothing of what is kept"
    assert launched(rig.finish(3)) == [WIDE]


def test_short_tasks_that_are_sent_ahead_are_held_back_too() -> None:
    rig = Rig(lanes=2)
    rig.teach(NARROW, 0.004)
    rig.checking = False
    rig.submit(*(call(task, NARROW) for task in range(1000, 1020)), call(WIDE, wide(2)))
    following = 1020
    while rig.now < 1.6 * PATIENCE and rig.state(WIDE) is TaskState.READY:
        rig.now += 0.004
        for lane in rig.engine.state.ledger.nodes["n"].lanes:
            if lane.queue:
                rig.finish(lane.queue[0].task, seconds=0.004)
                rig.submit(call(following, NARROW))
                following += 1
    assert rig.state(WIDE) is TaskState.RUNNING
    assert rig.now > PATIENCE


def passed_over(rig: Rig, *tasks: int, by: int) -> None:
    """Have a narrow task start after it was noticed that others wait, and patience run out; nobody has looked since."""
    rig.tick(PATIENCE / 3)
    assert rig.engine.state.reservations.watched
    assert launched(rig.submit(call(by, NARROW))) == [by]
    rig.now += PATIENCE
    assert all(rig.state(task) is TaskState.READY for task in tasks)


def test_others_use_what_is_left_beside_it() -> None:
    rig = Rig(lanes=4)
    rig.submit(call(2, NARROW), call(3, NARROW), call(WIDE, wide(3)))
    passed_over(rig, WIDE, by=4)
    assert launched(rig.submit(call(5, NARROW))) == [5]
    assert current(rig) == [("n", 1)]
    rig.submit(call(6, NARROW), call(7, NARROW))
    assert launched(rig.finish(2)) == []
    assert launched(rig.finish(3)) == []
    assert launched(rig.finish(4)) == [WIDE]
    assert current(rig) is None
    assert launched(rig.finish(5)) == [6]
    assert launched(rig.finish(WIDE)) == [7]


def test_nothing_is_reserved_before_patience_has_run_out() -> None:
    rig = Rig(lanes=2)
    rig.submit(call(2, NARROW), call(WIDE, wide(2)))
    passed_over(rig, WIDE, by=3)
    rig.now -= 0.1
    rig.submit(call(4, NARROW))
    assert launched(rig.finish(2)) == [4]
    assert current(rig) is None


def test_nothing_is_reserved_for_who_was_not_passed_over() -> None:
    """Older tasks, those of higher priority, and those that need as much go before it anyway."""
    rig = Rig(lanes=4)
    rig.submit(*(call(task, wide(2)) for task in range(2, 9)), call(WIDE, wide(2)))
    for task in range(2, 7):
        rig.now += PATIENCE
        assert launched(rig.finish(task)) == [task + 2]
    assert current(rig) is None


def test_a_task_of_lower_priority_waits_for_those_of_higher() -> None:
    rig = Rig(lanes=2)
    urgent = spec("urgent", priority=1)
    rig.submit(call(2, urgent), call(WIDE, wide(2)))
    passed_over(rig, WIDE, by=3)
    rig.submit(call(4, urgent), call(5, urgent))
    assert launched(rig.finish(2)) == [4]
    assert current(rig) is None
    rig.now += PATIENCE
    assert launched(rig.finish(3)) == [5]
    assert current(rig) == [("n", 1)]  # nobody of higher priority waits any more


def test_a_reservation_is_given_up_when_somebody_of_higher_priority_waits() -> None:
    rig = Rig(lanes=2)
    urgent = spec("urgent", priority=1)
    rig.submit(call(2, NARROW), call(WIDE, wide(2)))
    passed_over(rig, WIDE, by=3)
    rig.submit(call(4, NARROW))
    assert launched(rig.finish(2)) == [4]
    assert current(rig) == [("n", 1)]
    assert launched(rig.finish(3)) == []
    assert launched(rig.submit(call(5, urgent))) == []
    rig.now += PATIENCE
    assert launched(rig.submit(call(6, NARROW))) == []
    assert current(rig) is None
    assert launched(rig.submit(call(7, NARROW))) == [5]


def test_the_oldest_is_served_first_and_the_next_need_not_lose_patience_again() -> None:
    rig = Rig(lanes=2)
    rig.submit(call(2, NARROW), *(call(task, wide(2)) for task in (3, 4)), call(5, wide(2, memory=0, name="other")))
    passed_over(rig, 3, 4, by=6)
    rig.submit(*(call(task, NARROW) for task in range(7, 12)))
    assert launched(rig.finish(2)) == [7]
    assert launched(rig.finish(6)) == []
    assert launched(rig.finish(7)) == [3]
    assert launched(rig.finish(3)) == [4]
    assert launched(rig.finish(4)) == [5]
    assert launched(rig.finish(5)) == [8, 9]


def test_the_node_is_chosen_where_enough_will_be_free_soonest() -> None:
    rig = Rig(lanes=0)
    rig.join("a", 2)
    rig.join("b", 2)
    short, long = spec("short"), spec("long")
    rig.teach(short, 10.0, task=9000)
    rig.teach(long, 100.0, task=9001)
    rig.submit(call(2, long), call(3, short), call(4, short), call(5, short))
    rig.submit(call(WIDE, wide(2)), call(6, short), call(7, short))
    rig.now += PATIENCE / 3
    assert launched(rig.finish(4, seconds=10.0)) == [6]
    rig.now += PATIENCE / 3
    assert launched(rig.finish(5, seconds=10.0)) == [7]
    rig.now += PATIENCE
    rig.submit(call(8, short), call(9, short))
    rig.finish(3, seconds=10.0)
    assert current(rig) == [("b", 1)]


@pytest.mark.parametrize("how", ["cancelled", "lost", "elsewhere"])
def test_a_reservation_ends_with_its_reason(how: str) -> None:
    rig = Rig(lanes=0)
    rig.join("a", 2)
    rig.join("b", 2)
    rig.submit(*(call(task, NARROW) for task in (2, 3, 4)), call(WIDE, wide(2)))
    passed_over(rig, WIDE, by=5)
    rig.submit(call(6, NARROW), call(7, NARROW))
    assert launched(rig.finish(2)) == [6]
    assert current(rig) == [("b", 1)]  # both tasks there are due, by the time that another took
    if how == "cancelled":
        rig.cancel(WIDE)
        assert launched(rig.finish(4)) == [7]
    elif how == "lost":
        rig.lose_node("b")
        assert launched(rig.finish(3)) == [4]
    else:
        assert launched(rig.join("c", 2)) == [WIDE]
        assert launched(rig.finish(4)) == [7]
    assert current(rig) is None


def test_a_gang_gets_the_nodes_with_the_most_room() -> None:
    rig = Rig(lanes=0)
    for name, cpus in (("a", 2), ("b", 4), ("c", 4)):
        rig.join(name, cpus)
    rig.submit(*(call(task, NARROW) for task in range(2, 10)))
    rig.submit(call(WIDE, wide(1, name="gang", processes=7)))
    passed_over(rig, WIDE, by=20)
    rig.submit(call(21, NARROW))
    assert current(rig) == [("b", 4), ("c", 3)]
    assert launched(rig.submit(call(22, NARROW), call(23, NARROW))) == []
    assert launched(rig.finish(2)) == [22]  # on the other node
    nodes = rig.engine.state.ledger.nodes
    running = [lane.queue[0].task for name in "bc" for lane in nodes[name].lanes if lane.queue]
    assert [launched(rig.finish(task)) for task in running] == [[], [], [], [], [], [], [WIDE], [23]]


def test_tasks_with_the_least_of_needs_are_not_even_watched() -> None:
    rig = Rig(lanes=1)
    rig.submit(*(call(task, NARROW) for task in range(2, 9)))
    for task in range(2, 6):
        rig.now += PATIENCE
        rig.finish(task)
    assert rig.engine.state.reservations.watched == {}
