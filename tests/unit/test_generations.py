"""The three generations of published schedulers decide as their source says, and where it says so, as the naive set.

They order tasks by the list of the node that released a slot, and then place each task on the node that it likes best.
The naive set takes the best of all pairs. So they agree wherever all nodes order tasks alike (fifo, lifo), or only one
node has room; with scores by node and room on several, they may differ. Among themselves they always agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest
from benchmarks.generations import MaintainedLists, PersistentLists, Rescoring
from benchmarks.generations.charged import Charged
from benchmarks.generations.cost import SCHEDULERS, Cost, measured
from benchmarks.generations.ordered_list import Key, OrderedList
from benchmarks.generations.shape import TASKS, widths
from benchmarks.papers import gwas
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from penstock.errors import InternalError
from penstock.model.resources import Node as EngineNode
from penstock.model.resources import Requirements
from penstock.model.tasks import OnFailure
from penstock.scheduling.compute import Fifo, FifoData, Lifo, LoadBalance, Locality
from penstock.scheduling.policy import Policy
from penstock.scheduling.reference import NaiveReadySet
from penstock.scheduling.view import ReadySet
from penstock.sim.simulation import Simulation
from penstock.sim.workloads import Uniform, Workload

Make = Callable[[Policy], ReadySet]

ONE, TWO, ONLY_B = Requirements(1), Requirements(2), Requirements(1, properties=(("name", "b"),))
HUGE = Requirements(1, memory=2)
NAMES = ("a", "b", "c")
LATE = EngineNode("late", 4, 10**9)


class Task(Struct, frozen=True, eq=False):
    serial: int
    priority: int = 0
    requirements: Requirements = ONE
    locality: Mapping[str, int] = {}
    freed: bool = False
    relieves: bool = False

    @property
    def task(self) -> int:
        return 1000 + self.serial


class Node(Struct, eq=False):
    name: str
    index: int
    cpus: int
    used_cpus: int = 0
    used_memory: int = 0

    def is_suitable(self, need: Requirements) -> bool:
        return need.cpus <= self.cpus and all(value == self.name for _, value in need.properties)

    def fits(self, need: Requirements) -> bool:
        room = self.used_cpus + need.cpus <= self.cpus and self.used_memory + need.memory <= 2
        return room and self.is_suitable(need)


class World:
    """Nodes, a ready set, and what runs: as the engine would drive it."""

    def __init__(self, ready: ReadySet, cpus: list[int]) -> None:
        self.ready = ready
        self.nodes = [Node(name, index, count) for index, (name, count) in enumerate(zip(NAMES, cpus, strict=False))]
        self.running: list[tuple[Task, Node]] = []
        self.story: list[tuple[int, str]] = []
        for node in self.nodes:
            ready.node_changed(node)

    def place(self) -> None:
        while any(node.used_cpus < node.cpus for node in self.nodes):
            placement = self.ready.propose()
            if placement is None:
                return
            assert self.ready.propose() == placement
            task, node = placement
            assert isinstance(task, Task) and isinstance(node, Node)
            assert node.fits(task.requirements)
            self.ready.remove(task)
            node.used_cpus += task.requirements.cpus
            node.used_memory += task.requirements.memory
            self.ready.node_changed(node)
            self.running.append((task, node))
            self.story.append((task.serial, node.name))

    def end(self, which: int) -> None:
        if self.running:
            task, node = self.running.pop(which % len(self.running))
            node.used_cpus -= task.requirements.cpus
            node.used_memory -= task.requirements.memory
            self.ready.node_changed(node)


class Step(Struct, frozen=True):
    """Something happens to a world: tasks become ready, one ends, or both in one event; one may be cancelled."""

    tasks: list[Task]
    ends: int | None
    cancels: int | None

    def happen(self, world: World) -> None:
        if self.ends is not None:
            world.end(self.ends)
        for task in self.tasks:
            world.ready.add(task)
        if self.cancels is not None and self.tasks:
            world.ready.remove(self.tasks[self.cancels % len(self.tasks)])
        world.place()


@st.composite
def histories(draw: st.DrawFn, *kinds: Requirements) -> list[Step]:
    steps = []
    serial = 0
    for _ in range(draw(st.integers(1, 12))):
        tasks = []
        for _ in range(draw(st.integers(0, 5))):
            serial += 1
            kind = draw(st.sampled_from([ONE, ONE, TWO, HUGE, *kinds]))
            where = draw(st.dictionaries(st.sampled_from(NAMES), st.integers(0, 3), max_size=2))
            tasks.append(Task(serial, draw(st.sampled_from([0, 0, 1])), kind, where, draw(st.booleans())))
        ends = draw(st.none() | st.integers(0, 20))
        steps.append(Step(tasks, ends, draw(st.sampled_from([None, None, None, 0, 1]))))
    return steps


@pytest.fixture(params=["V0", "V0 linear", "V1", "V2"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    made: list[MaintainedLists] = []

    def maintained(policy: Policy) -> ReadySet:
        made.append(MaintainedLists(policy))
        return made[-1]

    makers: dict[str, Make] = {
        "V0": Rescoring,
        "V0 linear": lambda policy: Rescoring(policy, linear_duplicates=True),
        "V1": PersistentLists,
        "V2": maintained,
    }
    yield makers[request.param]
    for ready in made:
        ready.close()


def story(ready: ReadySet, cpus: list[int], steps: list[Step]) -> list[tuple[int, str]]:
    """All placements until nothing is left."""
    world = World(ready, cpus)
    for step in steps:
        step.happen(world)
    while world.running:
        world.end(0)
        world.place()
    return world.story


@pytest.mark.parametrize("policy", [Fifo(), Lifo()], ids=lambda policy: policy.name)
@settings(max_examples=25, deadline=None)
@given(steps=histories(), cpus=st.lists(st.integers(2, 4), min_size=1, max_size=3))
def test_they_decide_as_the_naive_set_where_all_nodes_order_tasks_alike(
    policy: Policy, steps: list[Step], cpus: list[int]
) -> None:
    expected = story(NaiveReadySet(policy), cpus, steps)
    maintained = MaintainedLists(policy)
    try:
        for ready in (Rescoring(policy), PersistentLists(policy), maintained):
            assert story(ready, cpus, steps) == expected
    finally:
        maintained.close()


@pytest.mark.one_in(3)
@pytest.mark.parametrize("policy", [Locality(), LoadBalance(), FifoData()], ids=lambda policy: policy.name)
@settings(max_examples=25, deadline=None)
@given(steps=histories(), cpus=st.integers(2, 4))
def test_they_decide_as_the_naive_set_on_one_node(policy: Policy, steps: list[Step], cpus: int) -> None:
    expected = story(NaiveReadySet(policy), [cpus], steps)
    assert story(Rescoring(policy), [cpus], steps) == expected
    assert story(PersistentLists(policy), [cpus], steps) == expected


@pytest.mark.one_in(3)
@pytest.mark.parametrize("policy", [Locality(), LoadBalance(), FifoData()], ids=lambda policy: policy.name)
@settings(max_examples=25, deadline=None)
@given(steps=histories(), cpus=st.lists(st.integers(2, 4), min_size=2, max_size=3))
def test_they_decide_alike_among_themselves(policy: Policy, steps: list[Step], cpus: list[int]) -> None:
    # Without tasks that only some nodes can host: those are tried last, in an order that the source does not give.
    expected = story(Rescoring(policy), cpus, steps)
    cancelled = sum(step.cancels is not None and bool(step.tasks) for step in steps)
    assert len(expected) == sum(len(step.tasks) for step in steps) - cancelled
    assert story(PersistentLists(policy), cpus, steps) == expected
    maintained = MaintainedLists(policy)
    try:
        assert story(maintained, cpus, steps) == expected
    finally:
        maintained.close()


def test_the_list_of_the_releasing_node_gives_the_order(make: Make) -> None:
    """Where they differ from the naive set: it would place the task with nine bytes on b first."""
    world = World(make(Locality()), [1, 1])
    first, second = Task(1), Task(2)
    for task in (first, second):
        world.ready.add(task)
    world.place()
    liked_by_a, liked_by_b = Task(3, locality={"a": 1}), Task(4, locality={"b": 9})
    for task in (liked_by_a, liked_by_b):
        world.ready.add(task)
    world.end(0)  # on a
    world.end(0)  # on b
    world.place()
    assert world.story[2:] == [(3, "a"), (4, "b")]


def test_a_task_may_go_to_any_node_with_room(make: Make) -> None:
    world = World(make(Locality()), [1, 2])
    for task in (Task(1), Task(2), Task(3)):
        world.ready.add(task)
    world.place()
    assert world.story == [(1, "a"), (2, "b"), (3, "b")]


def test_what_does_not_fit_stays_and_holds_up_nobody(make: Make) -> None:
    world = World(make(Fifo()), [2])
    world.ready.add(Task(1))
    world.place()
    for task in (Task(2, requirements=TWO), Task(3)):
        world.ready.add(task)
    world.place()
    assert world.story == [(1, "a"), (3, "a")]
    assert len(world.ready) == 1
    world.end(0)
    world.end(0)
    world.place()
    assert world.story[-1] == (2, "a")


def test_a_node_that_can_never_run_a_task_does_not_hold_it(make: Make) -> None:
    world = World(make(Fifo()), [1, 1])
    for task in (Task(1), Task(2, requirements=ONLY_B), Task(3, requirements=ONLY_B)):
        world.ready.add(task)
    world.place()
    assert world.story == [(1, "a"), (2, "b")]
    world.end(0)
    world.place()
    assert len(world.ready) == 1
    world.end(0)
    world.place()
    assert world.story[-1] == (3, "b")


def test_what_arrives_as_another_node_releases_a_slot_is_placed_at_once(make: Make) -> None:
    world = World(make(Fifo()), [1, 1])
    world.ready.add(Task(1))
    world.place()
    world.end(0)  # on a, which can never run what arrives
    world.ready.add(Task(2, requirements=ONLY_B))
    world.place()
    assert world.story == [(1, "a"), (2, "b")]


def test_tasks_are_blocked_while_there_is_no_node(make: Make) -> None:
    ready = make(Fifo())
    task = Task(1)
    ready.add(task)
    assert ready.propose() is None
    node = Node("a", 0, 1)
    ready.node_changed(node)
    assert ready.propose() == (task, node)


def test_a_node_that_is_gone_gets_nothing(make: Make) -> None:
    world = World(make(Fifo()), [1, 1])
    world.ready.node_gone(world.nodes[0])
    for task in (Task(1), Task(2)):
        world.ready.add(task)
    assert world.ready.propose() == (world.ready.next_alike(world.nodes[1], ONE), world.nodes[1])
    world.nodes[0].used_cpus = 1
    world.place()
    assert world.story == [(1, "b")]


def test_scores_may_change_between_adding_and_removing(make: Make) -> None:
    """Removal finds a task by the key under which it was put, not by a score computed again."""

    class Moody:
        name = "moody"
        mood = 0.0

        def score(self, task: object, node: object) -> float:
            return self.mood

    policy = Moody()
    ready = make(policy)
    node = Node("a", 0, 1)
    ready.node_changed(node)
    tasks = [Task(1), Task(2)]
    for task in tasks:
        ready.add(task)
    policy.mood = 7.0
    ready.remove(tasks[0])
    assert ready.propose() == (tasks[1], node)
    assert len(ready) == 1


def test_next_alike_is_the_best_with_the_same_requirements(make: Make) -> None:
    ready = make(Locality())
    node = Node("a", 0, 2, used_cpus=2)
    ready.node_changed(node)
    tasks = [Task(1, requirements=TWO), Task(2), Task(3, locality={"a": 5})]
    for task in tasks:
        ready.add(task)
    assert ready.next_alike(node, Requirements(1)) is tasks[2]
    assert ready.next_alike(node, Requirements(2)) is tasks[0]
    assert ready.next_alike(node, Requirements(3)) is None


@settings(max_examples=30, deadline=None)
@given(steps=histories())
def test_heads_are_those_of_the_naive_set(steps: list[Step]) -> None:
    naive, old = NaiveReadySet(Lifo()), Rescoring(Lifo())
    for ready in (naive, old):
        for step in steps:
            for task in step.tasks:
                ready.add(task)
    assert list(old.heads()) == list(naive.heads())


def test_adding_twice_and_removing_the_absent_are_our_bugs(make: Make) -> None:
    ready = make(Fifo())
    with pytest.raises(InternalError, match="1007"):
        ready.remove(Task(7))
    ready.add(Task(7))
    with pytest.raises(InternalError, match="1007"):
        ready.add(Task(7))


def test_a_list_that_cannot_be_edited_ends_the_run() -> None:
    class Broken:
        name = "broken"

        def score(self, task: object, node: Node) -> float:
            if node.name == "b":
                raise ValueError("no score")
            return 0.0

    ready = MaintainedLists(Broken())  # type: ignore[arg-type]
    nodes = [Node(name, index, 1) for index, name in enumerate("ab")]
    for node in nodes:
        ready.node_changed(node)
    ready.add(Task(1))
    with pytest.raises(InternalError, match="no score"):
        ready.next_alike(nodes[1], ONE)
    ready.close()


def a_workload() -> Workload:
    workload = Workload()
    for _ in range(8):
        first = workload.task("first", seconds=Uniform(1.0, 2.0), cpus=4)
        for width in (1, 2, 1, 3):
            second = workload.task("second", seconds=Uniform(0.5, 3.0), cpus=width, after=[first])
            workload.task(
                "third", seconds=Uniform(0.1, 1.0), after=[second], fails_first=1, retries=1, on_failure=OnFailure.RETRY
            )
    return workload


def test_the_engine_can_be_driven_by_them(make: Make) -> None:
    """Nodes come and go, and attempts fail; under fifo the whole run is the same as with our own set."""

    def outcome(scheduler: str | ReadySet) -> tuple[float, int, dict[str, float]]:
        nodes = [EngineNode(f"n{index}", 4, 10**9) for index in range(3)]
        simulation = Simulation(nodes, a_workload(), scheduler=scheduler, lost=[(3.0, "n1")], joins=[(5.0, LATE)])
        run = simulation.run()
        return run.makespan, run.done, run.busy

    assert outcome(make(Fifo())) == outcome("fifo")


# --- what decisions cost ----------------------------------------------------------------------------------------------


def test_a_cost_lies_on_the_line_between_what_was_measured_and_is_not_extrapolated() -> None:
    cost = Cost(0.5, ((10, 1.0),), ((10, 1.0), (30, 3.0), (40, 3.0)))
    assert [cost.release(ready) for ready in (0, 10, 20, 30, 35, 99)] == [1.0, 1.0, 2.0, 3.0, 3.0, 3.0]
    assert [cost.add(ready) for ready in (0, 10, 99)] == [1.0, 1.0, 1.0]


def test_costs_are_measured_at_the_asked_lengths() -> None:
    for name in SCHEDULERS:
        cost = measured(name, 2, (5, 50), cpus=3, steps=3)
        assert [length for length, _ in cost.adds] == [length for length, _ in cost.releases] == [5, 50]
        assert min(cost.start, *(seconds for _, seconds in (*cost.adds, *cost.releases))) > 0


def test_a_simulated_master_pays_for_every_decision() -> None:
    """Four tasks on two units: two start at once, two wait; each end costs a decision among those that still wait."""
    workload = Workload()
    for _ in range(4):
        workload.task("f", seconds=10.0)
    ready = Charged(Cost(0.1, ((0, 0.2),), ((0, 1.0), (1, 2.0))), besides=0.01)
    node = EngineNode("n", 2, 10**9)
    outcome = Simulation([node], workload, scheduler=ready, decision_seconds=ready.seconds).run()
    # After the first end one waits, after each of the others none.
    assert outcome.master.busy == pytest.approx(2 * 0.1 + 2 * 0.2 + 2.0 + 3 * 1.0 + 4 * 0.01)
    # Starts at 0.1 and 0.2; the first is over at 10.1, the second at 10.2 but waits until the master has decided.
    assert outcome.makespan == pytest.approx(10.1 + 2.01 + 1.01 + 10.0 + 1.01)


def test_the_shapes_have_the_published_numbers_of_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(widths()) == TASKS == 75_259
    assert (max(widths()), min(widths())) == (48, 1)

    def tasks(chunks: int, third_level: int) -> int:
        each = chunks * gwas.SECOND_LEVEL
        return gwas.PREPARATIONS + gwas.CHROMOSOMES + chunks + each + 2 * each * third_level

    assert tasks(gwas.CHUNKS, 8) == 893_123
    monkeypatch.setattr(gwas, "CHUNKS", 46)
    small = gwas.workload(3)
    assert len(small.jobs) == tasks(46, 3)
    outcome = Simulation(gwas.nodes(1200), small).run()
    assert outcome.done == len(small.jobs)
    assert outcome.makespan > gwas.SERIAL
    # Experiments build a program once and run it in several settings.
    assert Simulation(gwas.nodes(1200), small).run().makespan == outcome.makespan


keys = st.tuples(st.integers(-1, 1), st.sampled_from([0.0, -1.5]), st.integers(0, 2000))


@settings(max_examples=20, deadline=None)
@given(st.sets(keys, max_size=60), st.integers(0, 2000), st.randoms(use_true_random=False))
def test_an_ordered_list_is_a_sorted_one(some: set[Key], many: int, chance: object) -> None:
    """Also with enough keys for several chunks."""
    entries = OrderedList()
    held = sorted(some | {(0, 0.5, serial) for serial in range(many)})
    chance.shuffle(shuffled := list(held))  # type: ignore[attr-defined]
    for key in shuffled:
        entries.add(key)
    assert list(entries) == held
    for key in shuffled[: len(shuffled) // 2]:
        entries.remove(key)
        held.remove(key)
    assert list(entries) == held
