"""The number of attempts on a device, steered: the engine with its controllers, in simulated runs."""

from __future__ import annotations

import random
from collections.abc import Iterable
from functools import cache
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from tests.unit.engine_rig import call
from tests.unit.storage_rig import FULL, StorageRig, io

from penstock.engine.checks import check
from penstock.engine.devices import DeviceRecord
from penstock.engine.state import StorageRules
from penstock.model.commands import Launch, Sample, Warm
from penstock.model.events import Event, LimitSettled, NodeJoined, Sampled
from penstock.model.resources import Auto, Node, StorageLayer
from penstock.model.tasks import OnFailure
from penstock.runtime.delivery import deliveries_of
from penstock.sim.observer import Observer
from penstock.sim.simulation import Condition, Outcome, Simulation
from penstock.sim.workloads import Workload
from penstock.tuning.search import Search

MB = 1_000_000
#: 8 streams get the most of it, 16 a quarter of that
PEAK_AT_8 = StorageLayer("disk", "/disk", 40.0 * MB, curve=((1, 5.0 * MB), (8, 40.0 * MB), (16, 10.0 * MB)))
EVEN = StorageLayer("disk", "/disk", 40.0 * MB)
EXECUTORS = 16


def node(layer: StorageLayer = PEAK_AT_8, name: str = "here", *more: StorageLayer, executors: int = EXECUTORS) -> Node:
    return Node(name, 4, 1 << 40, storage=(layer, *more), io_executors=executors)


def writes(constraint: float | str | None, count: int, size: int = 2 * MB, **details: Any) -> Workload:
    """So many tasks of one function, all called at once."""
    workload = Workload()
    for number in range(count):
        workload.io_task("write", writes=[(f"/disk/{number}", size)], constraint=constraint, **details)
    return workload


class Launches(Observer):
    """What was sent to lanes."""

    def __init__(self) -> None:
        self.all: list[Launch] = []

    def launched(self, command: Launch, now: float) -> None:
        self.all.append(command)


class Watched(Simulation):
    """One in which tokens are counted after each event, and all other invariants are checked after some."""

    def __init__(self, nodes: Iterable[Node], workload: Workload, **settings: Any) -> None:
        launches = Launches()  # type: ignore[abstract]
        self.launches = launches.all
        self._events = 0
        #: the most attempts that held bandwidth at a time, and the least and most that each function's attempts held
        self.most_holders = 0
        self.held: dict[str, tuple[float, float]] = {}
        super().__init__(nodes, workload, watch=self._look, observer=launches, **settings)

    def _look(self, _now: float, _event: Event) -> None:
        self._events += 1
        if self._events % 16 == 0:
            check(self.engine)  # takes long, where there are many tasks
        for device in self.engine.state.ledger.devices():
            self._count(device)

    def _count(self, device: DeviceRecord) -> None:
        holders = device.holders.values()
        held = sum(task.bandwidth for task in holders)
        assert held + device.free_bandwidth + sum(device.moves.values()) == device.layer.bandwidth
        assert device.free_bandwidth >= 0
        self.most_holders = max(self.most_holders, len(holders))
        for task in holders:
            assert task.bandwidth >= 0
            name = task.call.spec.name
            least, most = self.held.get(name, (task.bandwidth, task.bandwidth))
            self.held[name] = min(least, task.bandwidth), max(most, task.bandwidth)

    def run_to_the_end(self) -> Outcome:
        """Every task ends, and nothing is held afterwards."""
        outcome = self.run()
        state = self.engine.state
        assert outcome.done + outcome.failed == len(self._workload.jobs)
        assert not state.tasks
        for device in state.ledger.devices():
            assert not device.holders and not device.sharers
            assert device.free_bandwidth == device.layer.bandwidth
        return outcome

    @property
    def device(self) -> DeviceRecord:
        """The only one that is steered."""
        [device] = self.engine.state.steered
        return device


@cache
def best_static(count: int, layer: StorageLayer = PEAK_AT_8) -> float:
    """The least time that a number for all tasks can give."""
    return min(
        Simulation([node(layer)], writes(layer.bandwidth // many / MB, count)).run().makespan
        for many in range(1, EXECUTORS + 1)
    )


# --- what it finds ----------------------------------------------------------------------------------------------------


def test_the_best_number_is_found_soon() -> None:
    simulation = Watched([node()], writes("auto", 200))
    outcome = simulation.run_to_the_end()
    controller = simulation.device.controller
    assert controller is not None and controller.search.settled
    assert 7 <= controller.search.best <= 9
    assert outcome.makespan <= 1.15 * best_static(200)
    assert not outcome.epochs and not outcome.chosen


def test_a_later_run_begins_at_the_best() -> None:
    first = Watched([node()], writes("auto", 200))
    first.run_to_the_end()
    known = {(one.function, one.layer): one for one in deliveries_of(first.engine.state.steered)}
    assert len(known) == 1
    again = Watched([node()], writes("auto", 200), rules=StorageRules(deliveries=known))
    outcome = again.run_to_the_end()
    assert again.device.remembered
    assert outcome.makespan <= 1.05 * best_static(200)


def test_a_device_of_which_nothing_holds_any_more_leaves_nothing_to_later_runs() -> None:
    """What was measured was measured wrongly, and the run ended before it was measured again."""
    simulation = Watched([node()], writes("auto", 200))
    simulation.run_to_the_end()
    steered = simulation.engine.state.steered
    assert deliveries_of(steered)
    for device in steered:
        assert device.controller is not None and isinstance(device.controller.search, Search)
        device.controller.search.forget()
    assert deliveries_of(steered) == []


def test_what_is_known_of_another_device_is_of_no_use() -> None:
    first = Watched([node()], writes("auto", 200))
    first.run_to_the_end()
    known = {(one.function, one.layer): one for one in deliveries_of(first.engine.state.steered)}
    again = Watched([node(executors=12)], writes("auto", 20), rules=StorageRules(deliveries=known))
    again.run_to_the_end()
    assert not again.device.remembered


# --- what users allow -------------------------------------------------------------------------------------------------

BOUNDS = [
    ("auto(4,10,2)", None, 4, 10),
    ("auto(2.5,40,2)", None, 2.5, 40),
    ("auto(20,40,2)", None, 20, 40),
    ("auto(13,13,2)", None, 13, 13),
    ("auto(1,3,2)", None, 1, 3),
    ("auto(4,20,2)", 6.0, 4, 6),
    ("auto(10,20,2)", 6.0, 6, 6),
    ("auto", 7.0, 0, 7),
]


@pytest.mark.parametrize(("written", "ceiling", "least", "most"), BOUNDS)
@pytest.mark.parametrize("size", [2 * MB, 20_000], ids=["long", "sent ahead"])
def test_no_attempt_has_less_or_more_than_its_user_allows(
    written: str, ceiling: float | None, least: float, most: float, size: int
) -> None:
    rules = StorageRules(ceiling=None if ceiling is None else ceiling * MB)
    simulation = Watched([node()], writes(written, 150, size), rules=rules)
    simulation.run_to_the_end()
    launched = {launch.bandwidth / MB for launch in simulation.launches}
    assert min(launched) > 0 and least <= min(launched) <= max(launched) <= most
    # Nor while it runs.
    low, high = simulation.held["write"]
    assert least * MB <= low <= high <= most * MB
    assert simulation.most_holders <= (40 // least if least else EXECUTORS)


def test_functions_keep_to_their_own_bounds_on_a_device_that_they_share() -> None:
    workload = Workload()
    bounds = {"narrow": (15, 20), "low": (1, 2), "wide": (3, 40)}
    for number in range(120):
        name = list(bounds)[number % 3]
        least, most = bounds[name]
        workload.io_task(name, writes=[(f"/disk/{number}", MB)], constraint=f"auto({least},{most},2)")
    simulation = Watched([node()], workload)
    simulation.run_to_the_end()
    for launch in simulation.launches:
        least, most = bounds[launch.call.spec.name]
        assert least * MB <= launch.bandwidth <= most * MB, launch.call.spec.name
    for name, (low, high) in simulation.held.items():
        least, most = bounds[name]
        assert least * MB <= low <= high <= most * MB, name


# --- tokens -----------------------------------------------------------------------------------------------------------

CONSTRAINTS = st.sampled_from(["auto", "auto", "auto(4,20,2)", "auto(15,40,3)", 1.5, 7, 40, None])
SIZES = st.sampled_from([0, 1000, 20_000, 300_000, 2 * MB, 9 * MB])


@st.composite
def mixtures(draw: st.DrawFn) -> Workload:
    """Functions with declared and with learned constraints on one device, which come all at once or now and then."""
    workload = Workload()
    functions = draw(st.lists(st.tuples(CONSTRAINTS, SIZES), min_size=2, max_size=4))
    calls = draw(st.lists(st.sampled_from(range(len(functions))), min_size=5, max_size=60))
    at = 0.0
    for number, which in enumerate(calls):
        constraint, size = functions[which]
        at += draw(st.sampled_from([0.0, 0.0, 0.0, 0.0, 0.02, 0.5]))
        fails = draw(st.sampled_from([0.0, 0.0, 0.0, 0.3]))
        workload.io_task(
            f"f{which}",
            writes=[(f"/disk/{number}", size)] if size else [],
            constraint=constraint,
            fails=fails,
            retries=3,
            on_failure=OnFailure.RETRY,
            at=at,
        )
    return workload


@settings(max_examples=40, deadline=None)
@given(
    mixtures(),
    st.sampled_from([PEAK_AT_8, EVEN]),
    st.sampled_from(["fcfs", "priority", "backfilling"]),
    st.integers(1, EXECUTORS),
    st.sampled_from([None, 8.0 * MB]),
)
def test_tokens_are_exact_and_nobody_starves(
    workload: Workload, layer: StorageLayer, scheduler: str, executors: int, ceiling: float | None
) -> None:
    note(repr(workload.jobs))
    rules = StorageRules(scheduler, ceiling=ceiling)
    Watched([node(layer, executors=executors)], workload, rules=rules).run_to_the_end()


def test_those_who_need_the_whole_device_get_it_in_the_end() -> None:
    workload = Workload()
    for number in range(100):
        workload.io_task("learned", writes=[(f"/disk/{number}", MB)], constraint="auto")
        if number % 10 == 0:
            workload.io_task("alone", writes=[(f"/disk/alone{number}", MB)], constraint=40)
    outcome = Watched([node()], workload).run_to_the_end()
    assert outcome.done == 110


# --- several nodes ----------------------------------------------------------------------------------------------------


def settled_lines(simulation: Watched) -> list[LimitSettled]:
    return [note for note in simulation.world.notes if isinstance(note, LimitSettled)]


def bests(simulation: Watched) -> dict[str, int]:
    found = {}
    for device in simulation.engine.state.steered:
        assert device.controller is not None and device.node is not None
        found[device.node.name] = device.controller.search.best
    return found


@pytest.mark.parametrize("many", [2, 4])
def test_like_devices_of_several_nodes_learn_together(many: int) -> None:
    simulation = Watched([node(name=f"n{number}") for number in range(many)], writes("auto", 60 * many))
    outcome = simulation.run_to_the_end()
    assert set(bests(simulation).values()) <= {7, 8, 9} and len(set(bests(simulation).values())) == 1
    assert outcome.makespan <= 1.1 * best_static(60)
    [line] = settled_lines(simulation)
    assert (line.node, line.functions) == ("", ("write",))
    [kept] = deliveries_of(simulation.engine.state.steered)
    assert kept.attempts == 60 * many


def test_a_slower_device_among_like_ones_learns_for_itself() -> None:
    """The other three are not led by it; what is kept for later runs is theirs."""
    slow = [Condition(0.0, "n1:disk", 0.4, 3)]
    nodes = [node(name=f"n{number}") for number in range(4)]
    simulation = Watched(nodes, writes("auto", 800), conditions=slow)
    simulation.run_to_the_end()
    found = bests(simulation)
    assert {found["n0"], found["n2"], found["n3"]} <= {7, 8, 9}
    assert found["n1"] <= 6  # eight with the three of others
    assert {line.node for line in settled_lines(simulation)} <= {"", "n1"}
    assert deliveries_of(simulation.engine.state.steered)[-1].best == found["n0"]


@pytest.mark.parametrize("other", [StorageLayer("disk", "/disk", 41.0 * MB), StorageLayer("ssd", "/disk", 40.0 * MB)])
def test_devices_that_differ_learn_apart(other: StorageLayer) -> None:
    nodes = [node(EVEN, "here"), node(other, "there")]
    simulation = Watched(nodes, writes("auto", 100))
    simulation.run_to_the_end()
    first, second = simulation.engine.state.steered
    assert isinstance(first.controller.search, Search) and isinstance(second.controller.search, Search)


def test_a_node_that_joins_learns_with_the_one_that_was_there() -> None:
    simulation = Watched([node(name="n0")], writes("auto", 300), joins=[(4.0, node(name="n1"))])
    simulation.run_to_the_end()
    found = bests(simulation)
    assert found["n0"] == found["n1"] and found["n0"] in (7, 8, 9)


# --- what else may happen ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", [0.0, 0.3, 1.01, 2.5])
@pytest.mark.parametrize("joins", [False, True])
def test_a_node_that_is_lost_takes_its_device_along_and_all_tasks_end(when: float, joins: bool) -> None:
    nodes = [node(name="here"), node(name="there")]
    more: dict[str, Any] = {"joins": [(when + 0.2, node(name="late"))]} if joins else {}
    outcome = Watched(nodes, writes("auto", 200), lost=[(when, "here")], **more).run_to_the_end()
    assert outcome.done == 200


@pytest.mark.parametrize("joins", [0.7, 1.3], ids=["before", "at once after"])
def test_the_node_that_tells_of_a_shared_device_is_lost(joins: float) -> None:
    shared = StorageLayer("disk", "/disk", 40.0 * MB, shared=True, curve=PEAK_AT_8.curve)
    late = [(joins, node(shared, "there"))]
    lost = [(1.3, "here")]
    simulation = Watched([node(shared)], writes("auto", 200), lost=lost, joins=late)
    outcome = simulation.run_to_the_end()
    assert outcome.done == 200
    controller = simulation.device.controller
    assert controller is not None and controller.search.settled


def test_of_a_shared_device_a_node_is_asked_for_no_more_executors_than_it_has() -> None:
    rig = StorageRig(StorageLayer("pfs", "/pfs", 40 * MB, shared=True), executors=1, nodes=2, lanes=4)
    commands = rig.submit(call(1, io("learned", auto=Auto())))
    assert [command for command in commands if type(command) is Warm] == [Warm("n0", 1)]


def test_a_node_that_is_lost_before_it_has_told_of_a_shared_device_is_not_waited_for() -> None:
    shared = StorageLayer("pfs", "/pfs", 40 * MB, shared=True)
    rig = StorageRig(shared)
    rig.submit(*(call(task, io("learned", auto=Auto())) for task in range(1, 9)))
    assert Sample("n", "pfs") in rig.tick(0.1)
    rig.tell(NodeJoined(Node("other", 1, 0, (), (shared,), 4)))
    rig.lose_node("n")
    rig.tell(Sampled("n", "pfs", 1.0 * MB))
    asked = [command for _ in range(20) for command in rig.tick(0.1)]
    assert Sample("other", "pfs") in asked or rig.device("pfs", "other").controller.reading_at is None


def test_no_look_is_due_that_has_just_been_taken() -> None:
    """Else whoever drives the engine looks twice."""
    rig = StorageRig(StorageLayer("disk", "/disk", 40 * MB))
    rig.submit(call(1, io("learned", auto=Auto())))
    rig.fail(1, FULL)
    for _ in range(30):
        rig.tick(0.6)
        due = rig.engine.next_look()
        assert due is None or due > rig.now


@pytest.mark.parametrize("seconds", [0.0, 0.001, 0.3])
def test_tasks_that_move_no_bytes(seconds: float) -> None:
    workload = Workload()
    for _ in range(120):
        workload.io_task("nothing", seconds=seconds, constraint="auto")
    outcome = Watched([node()], workload).run_to_the_end()
    assert outcome.done == 120


@pytest.mark.parametrize("size", [0, 20_000, 2 * MB])
@pytest.mark.parametrize("retries", [0, 4])
def test_tasks_that_fail_and_are_tried_again(size: int, retries: int) -> None:
    again: dict[str, Any] = {"fails": 0.3, "retries": retries}
    again["on_failure"] = OnFailure.RETRY if retries else OnFailure.FAIL
    outcome = Watched([node()], writes("auto", 150, size, **again), seed=5).run_to_the_end()
    assert outcome.done > (140 if retries else 80)
    assert bool(outcome.failed) is (not retries) or outcome.failed < 5


def test_a_function_of_which_every_attempt_fails() -> None:
    outcome = Watched([node()], writes("auto", 60, fails=1.0, retries=1, on_failure=OnFailure.RETRY)).run_to_the_end()
    assert (outcome.done, outcome.failed) == (0, 60)


@pytest.mark.parametrize("size", [0, 2 * MB])
def test_tasks_that_come_one_by_one(size: int) -> None:
    workload = Workload()
    before: list[Any] = []
    for number in range(40):
        before = [workload.io_task("write", writes=[(f"/disk/{number}", size)], constraint="auto", steps=before)]
    simulation = Watched([node()], workload)
    outcome = simulation.run_to_the_end()
    assert outcome.done == 40
    assert simulation.most_holders == 1
    # One at a time is all that there is: nobody waited for anybody.
    assert outcome.makespan == pytest.approx(40 * size / (5 * MB), abs=1e-6)


def test_a_chain_and_arrivals_with_gaps() -> None:
    workload = Workload()
    before: list[Any] = []
    for number in range(30):
        before = [workload.io_task("chain", writes=[(f"/disk/c{number}", MB)], constraint="auto", after=before)]
        workload.io_task("now and then", writes=[(f"/disk/g{number}", MB)], constraint="auto", at=0.1 * number)
    outcome = Watched([node()], workload).run_to_the_end()
    assert outcome.done == 60


def test_equal_runs_are_equal() -> None:
    first, again = (
        Watched([node()], writes("auto", 120, fails=0.1), seed=3, rules=StorageRules()).run_to_the_end() for _ in "12"
    )
    assert first == again


UP_TO_16 = StorageLayer("disk", "/disk", 40.0 * MB, curve=((1, 2.5 * MB), (16, 40.0 * MB)))


@pytest.mark.parametrize(
    ("layer", "part", "size", "before", "best"),
    [(PEAK_AT_8, 0.5, 0.2, 0.05, 9), (UP_TO_16, 0.5, 0.2, 0.05, 16), (UP_TO_16, 0.8, 2.0, 1.0, 16)],
)
def test_functions_that_take_unequal_times_for_their_bytes_do_not_lead_it_astray(
    layer: StorageLayer, part: float, size: float, before: float, best: int
) -> None:
    """One computes before it writes: which of the two happened to run says nothing about how many are best."""

    def seconds(constraint: float | str) -> float:
        chance = random.Random(0)
        workload = Workload()
        for number in range(200):
            path = f"/disk/{number}"
            if chance.random() < part:
                workload.io_task("write", writes=[(path, 2 * MB)], constraint=constraint)
            else:
                workload.io_task("other", writes=[(path, int(size * MB))], seconds=before, constraint=constraint)
        return Simulation([node(layer)], workload).run().makespan

    assert seconds("auto") < 1.5 * seconds(40.0 // best)
