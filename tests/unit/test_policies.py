"""What each policy prefers, the order between placements, and the names policies are chosen by."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator, Mapping

import pytest
from msgspec import Struct

from penstock.errors import ConfigError, InternalError
from penstock.model.resources import Requirements
from penstock.scheduling import registry
from penstock.scheduling.compute import Fifo, FifoData, Lifo, LoadBalance, Locality
from penstock.scheduling.policy import Policy, SparsePolicy
from penstock.scheduling.ready_queues import ReadyQueues, ready_set
from penstock.scheduling.reference import NaiveReadySet
from penstock.scheduling.view import NodeView, ReadySet, ReadyTask

ONE, TWO = Requirements(cpus=1), Requirements(cpus=2)


class Task(Struct, eq=False, weakref=True):
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
    used_cpus: int = 0
    cpus: int = 4

    def fits(self, requirements: Requirements) -> bool:
        return self.used_cpus + requirements.cpus <= self.cpus


A, B = Node("a", 0), Node("b", 1)


@pytest.fixture(params=[NaiveReadySet, ReadyQueues])
def make(request: pytest.FixtureRequest) -> Callable[[SparsePolicy], ReadySet]:
    return request.param  # type: ignore[no-any-return]


def served(ready: ReadySet, *nodes: Node) -> Iterator[tuple[int, str]]:
    """Take everything out in the order proposed, while the nodes stay as they are."""
    for node in nodes:
        ready.node_changed(node)
    while (placement := ready.propose()) is not None:
        task, node = placement
        ready.remove(task)
        yield task.serial, node.name


def order(ready: ReadySet, tasks: list[Task], *nodes: Node) -> list[tuple[int, str]]:
    for task in tasks:
        ready.add(task)
    return list(served(ready, *nodes))


def test_fifo_serves_the_oldest_on_the_first_node(make: Callable[[SparsePolicy], ReadySet]) -> None:
    tasks = [Task(2, locality={"b": 9}), Task(1), Task(3)]
    assert order(make(Fifo()), tasks, B, A) == [(1, "a"), (2, "a"), (3, "a")]


def test_fifo_serves_tasks_that_use_up_what_lies_in_memory_first(make: Callable[[SparsePolicy], ReadySet]) -> None:
    tasks = [Task(1), Task(2, relieves=True), Task(3, priority=1), Task(4), Task(5, relieves=True)]
    assert [serial for serial, _ in order(make(Fifo()), tasks, A)] == [3, 2, 5, 1, 4]


def test_lifo_serves_the_newest(make: Callable[[SparsePolicy], ReadySet]) -> None:
    assert order(make(Lifo()), [Task(2), Task(1), Task(3)], A) == [(3, "a"), (2, "a"), (1, "a")]


def test_locality_serves_the_most_bytes_wherever_they_are(make: Callable[[SparsePolicy], ReadySet]) -> None:
    tasks = [Task(1), Task(2, locality={"a": 5}), Task(3, locality={"a": 6, "b": 7}), Task(4, locality={"c": 99})]
    assert order(make(Locality()), tasks, A, B) == [(3, "b"), (2, "a"), (1, "a"), (4, "a")]


def test_locality_ignores_load_but_load_balance_follows_it(make: Callable[[SparsePolicy], ReadySet]) -> None:
    busy = Node("a", 0, used_cpus=2)
    tasks = [Task(1), Task(2, locality={"a": 5})]
    assert order(make(Locality()), tasks, busy, B) == [(2, "a"), (1, "a")]
    assert order(make(LoadBalance()), tasks, busy, B) == [(2, "a"), (1, "b")]


def test_load_counts_before_age(make: Callable[[SparsePolicy], ReadySet]) -> None:
    # The older task fits only the busier node; the younger one goes first, to the idle one.
    busy, small = Node("a", 0, used_cpus=2), Node("b", 1, cpus=1)
    assert order(make(LoadBalance()), [Task(1, requirements=TWO), Task(2)], busy, small) == [(2, "b"), (1, "a")]


def test_fifo_data_serves_freed_successors_in_their_order_first(make: Callable[[SparsePolicy], ReadySet]) -> None:
    tasks = [Task(1), Task(2, locality={"b": 9}), Task(3, freed=True), Task(4, freed=True, locality={"b": 1})]
    assert order(make(FifoData()), tasks, A, B) == [(3, "a"), (4, "a"), (2, "b"), (1, "a")]


@pytest.mark.parametrize("policy", [Fifo(), Lifo(), Locality(), LoadBalance(), FifoData()], ids=lambda p: p.name)
def test_priority_goes_before_every_score(make: Callable[[SparsePolicy], ReadySet], policy: SparsePolicy) -> None:
    tasks = [Task(1, priority=-1, freed=True, locality={"a": 10**12}), Task(2, priority=1), Task(3, locality={"a": 5})]
    assert [serial for serial, _ in order(make(policy), tasks, A)] == [2, 3, 1]


def test_what_does_not_fit_waits_and_holds_up_nobody(make: Callable[[SparsePolicy], ReadySet]) -> None:
    full = Node("a", 0, used_cpus=3)
    ready = make(Fifo())
    assert order(ready, [Task(1, priority=9, requirements=TWO), Task(2)], full) == [(2, "a")]
    assert len(ready) == 1
    assert ready.propose() is None
    full.used_cpus = 2
    ready.node_changed(full)
    assert ready.propose() is not None
    ready.node_gone(full)
    assert ready.propose() is None


def test_next_alike_compares_requirements_by_value_and_ignores_fit(make: Callable[[SparsePolicy], ReadySet]) -> None:
    full = Node("a", 0, used_cpus=4)
    ready = make(Locality())
    tasks = [Task(1, requirements=TWO), Task(2), Task(3, locality={"a": 1}), Task(4, locality={"b": 1})]
    for task in tasks:
        ready.add(task)
    assert ready.next_alike(full, Requirements(cpus=1)) is tasks[2]
    assert ready.next_alike(B, Requirements(cpus=1)) is tasks[3]
    assert ready.next_alike(full, Requirements(cpus=2)) is tasks[0]
    assert ready.next_alike(full, Requirements(cpus=3)) is None


def test_heads_are_the_first_of_each_requirements_off_all_data(make: Callable[[SparsePolicy], ReadySet]) -> None:
    tasks = [Task(1), Task(2, locality={"a": 9}), Task(3, requirements=TWO), Task(4, requirements=TWO, priority=1)]
    for policy, expected in ((Locality(), {1, 4}), (Lifo(), {2, 4})):
        ready = make(policy)
        for task in tasks:
            ready.add(task)
        assert {task.serial for task in ready.heads()} == expected


def test_a_task_taken_back_keeps_its_age_and_may_have_new_data(make: Callable[[SparsePolicy], ReadySet]) -> None:
    ready = make(Locality())
    first = Task(1, locality={"a": 5})
    for task in (first, Task(2), Task(3, locality={"b": 5})):
        ready.add(task)
    ready.remove(first)
    ready.add(Task(1))
    assert list(served(ready, A, B)) == [(3, "b"), (1, "a"), (2, "a")]


def test_adding_twice_and_removing_the_absent_are_our_bugs(make: Callable[[SparsePolicy], ReadySet]) -> None:
    ready = make(Fifo())
    with pytest.raises(InternalError, match="1007"):
        ready.remove(Task(7))
    ready.add(Task(7))
    with pytest.raises(InternalError, match="1007"):
        ready.add(Task(7))
    assert len(ready) == 1


@pytest.mark.parametrize("policy", [Fifo(), Lifo(), Locality()], ids=lambda p: p.name)
def test_removed_tasks_are_let_go(policy: SparsePolicy) -> None:
    """Cancel from the middle, where removal is lazy: what stays in memory is bounded by what is still ready."""
    ready = ReadyQueues(policy)
    tasks = [Task(serial, locality={"a": serial * 7 % 100}) for serial in range(1000)]
    known = weakref.WeakSet(tasks)
    for task in tasks:
        ready.add(task)
    for task in tasks[5:-5]:
        ready.remove(task)
    del task, tasks
    gc.collect()
    assert len(ready) == 10
    assert len(known) <= 100


def test_the_order_survives_mass_cancellation() -> None:
    """Enough of them, scattered, that queues are rebuilt with many entries left."""
    fast, naive = ReadyQueues(Locality()), NaiveReadySet(Locality())
    tasks = [Task(serial, locality={"a": serial * 7919 % 1009}) for serial in range(400)]
    for ready in (fast, naive):
        for task in tasks:
            ready.add(task)
        for task in tasks:
            if task.serial * 31 % 11 > 3:
                ready.remove(task)
    assert list(served(fast, A)) == list(served(naive, A))


@pytest.mark.parametrize("names", ["a", "ab"])
def test_groups_and_queues_without_tasks_are_dropped(names: str) -> None:
    ready = ReadyQueues(Locality())
    for serial in range(100):
        task = Task(serial, requirements=Requirements(memory=serial), locality={f"n{serial}": 1})
        ready.add(task)
        ready.remove(task)
    asked: list[Requirements] = []

    class Curious(Node):
        def fits(self, requirements: Requirements) -> bool:
            asked.append(requirements)
            return True

    ready.add(Task(100))
    for index, name in enumerate(names):
        ready.node_changed(Curious(name, index))
    assert ready.propose() is not None
    assert set(asked) == {ONE}


def test_the_order_of_nodes_is_kept_for_a_few_requirements_without_tasks() -> None:
    """For the ones used last, or a program that makes many kinds of them would fill the memory."""
    ready = ReadyQueues(Fifo())
    asked: list[Requirements] = []

    class Curious(Node):
        def fits(self, requirements: Requirements) -> bool:
            asked.append(requirements)
            return True

    for index in range(100):
        ready.node_changed(Curious(f"n{index}", index))

    def questions(serial: int, memory: int) -> int:
        """How many nodes are asked to place one task."""
        asked.clear()
        task = Task(serial, requirements=Requirements(memory=memory))
        ready.add(task)
        assert ready.propose() is not None
        ready.remove(task)
        return len(asked)

    first = [questions(memory, memory) for memory in range(50)]
    assert min(first) >= 100
    assert questions(50, 49) <= 2
    assert questions(51, 0) >= 100


def test_a_decision_asks_few_nodes_whatever_their_number() -> None:
    asked: list[str] = []

    class Curious(Node):
        def fits(self, requirements: Requirements) -> bool:
            asked.append(self.name)
            return super().fits(requirements)

    ready = ReadyQueues(LoadBalance())
    nodes = [Curious(f"n{index}", index) for index in range(1000)]
    for node in nodes:
        ready.node_changed(node)
    for serial in range(4000):
        ready.add(Task(serial, locality={f"n{serial % 7}": 1}))
    ready.propose()
    asked.clear()
    for _ in range(4000):
        placement = ready.propose()
        assert placement is not None
        task, view = placement
        ready.remove(task)
        nodes[view.index].used_cpus += 1
        ready.node_changed(nodes[view.index])
    assert len(asked) < 8 * 4000


# --- policies of others -----------------------------------------------------------------------------------------------


class SmallestFirst:
    """Nothing but a score, and one that no order made in advance could follow: it depends on the load."""

    name = "smallest_first"

    def score(self, task: ReadyTask, node: NodeView) -> float:
        return -sum(task.locality.values()) - node.used_cpus


class Preferring(SparsePolicy):
    """A sparse score with an entry below the rest, which does not count."""

    name = "preferring"

    def sparse_score(self, task: ReadyTask) -> tuple[float, Mapping[str, float]]:
        return 10, {"a": 3, "b": 11}


def test_a_score_alone_makes_a_policy() -> None:
    ready = ready_set(SmallestFirst())
    tasks = [Task(1, locality={"a": 5}), Task(2, locality={"b": 3})]
    busy = Node("a", 0, used_cpus=1)
    assert order(ready, tasks, busy, B) == [(2, "b"), (1, "b")]


def test_a_sparse_score_gets_the_fast_ready_set() -> None:
    assert isinstance(ready_set(Preferring()), ReadyQueues)


def test_the_score_of_a_sparse_policy_never_falls_below_its_base() -> None:
    assert Preferring().score(Task(1), A) == 10
    assert Preferring().score(Task(1), B) == 11
    assert Preferring().score(Task(1), Node("c", 2)) == 10


# --- names ------------------------------------------------------------------------------------------------------------


def test_the_built_in_policies_answer_to_their_names() -> None:
    assert {"fifo", "lifo", "locality", "load_balance", "fifo_data"} <= set(registry.policy_names())
    for name in registry.policy_names():
        assert registry.policy(name).name == name


def test_an_unknown_name_is_answered_with_the_nearest_and_all_others() -> None:
    with pytest.raises(ConfigError, match=r"'localty': did you mean 'locality'\? Known are fifo, fifo_data, lifo, "):
        registry.policy("localty")
    with pytest.raises(ConfigError, match="'zzz': Known are fifo"):
        registry.policy("zzz")


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_factories", dict(registry._factories))


@pytest.mark.usefixtures("own_registry")
def test_a_registered_policy_is_found_and_made_anew() -> None:
    registry.register("smallest_first", SmallestFirst)
    registry.register("smallest_first", SmallestFirst)  # an entry point may be read twice
    assert isinstance(registry.policy("smallest_first"), SmallestFirst)
    assert registry.policy("smallest_first") is not registry.policy("smallest_first")
    assert "smallest_first" in registry.policy_names()


@pytest.mark.usefixtures("own_registry")
def test_a_name_is_given_once() -> None:
    with pytest.raises(ConfigError, match="already a scheduling policy named 'fifo'"):
        registry.register("fifo", SmallestFirst)
    assert isinstance(registry.policy("fifo"), Fifo)


@pytest.mark.usefixtures("own_registry")
def test_what_is_no_policy_is_refused() -> None:
    def wrong() -> Policy:
        return object()  # type: ignore[return-value]

    registry.register("wrong", wrong)
    with pytest.raises(ConfigError, match=r"'wrong': .* has no method score"):
        registry.policy("wrong")
