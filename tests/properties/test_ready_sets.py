"""The fast ready set decides as the naive one does, after every step of any history, for every sparse policy."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from msgspec import Struct

from penstock.model.resources import Requirements
from penstock.scheduling import places, ready_queues
from penstock.scheduling.compute import Fifo, FifoData, Lifo, LoadBalance, Locality
from penstock.scheduling.policy import Policy, SparsePolicy
from penstock.scheduling.ready_queues import ReadyQueues, ready_set
from penstock.scheduling.reference import NaiveReadySet
from penstock.scheduling.view import NodeView, ReadySet, ReadyTask

CPUS = 4
MEMORY = 4
NAMES = ("a", "b", "c", "d")
KINDS = (
    Requirements(cpus=1),
    Requirements(cpus=2),
    Requirements(cpus=CPUS),
    Requirements(cpus=1, memory=3),
    Requirements(cpus=1, properties=(("name", "b"),)),
    Requirements(cpus=1, properties=(("name", "nobody"),)),
)


class Task(Struct, frozen=True, eq=False):
    serial: int
    priority: int
    requirements: Requirements
    locality: Mapping[str, int]
    freed: bool
    relieves: bool

    @property
    def task(self) -> int:
        return self.serial


class Node(Struct, eq=False):
    name: str
    index: int
    used_cpus: int = 0
    used_memory: int = 0

    def fits(self, requirements: Requirements) -> bool:
        named = all(value == self.name for _, value in requirements.properties)
        room = self.used_memory + requirements.memory <= MEMORY
        return named and room and self.used_cpus + requirements.cpus <= CPUS


class Favourites(SparsePolicy):
    """A policy as another package might bring: fractions, scores below zero, entries that do not count, load."""

    name = "favourites"
    idle_first = True

    def sparse_score(self, task: ReadyTask) -> tuple[float, Mapping[str, float]]:
        here = {name: count / 2 - task.serial % 3 for name, count in task.locality.items()}
        return -0.5 * (task.serial % 2), here


class ScoreOnly:
    """Another: a score that changes with the load, and nothing else."""

    name = "score_only"

    def score(self, task: ReadyTask, node: NodeView) -> float:
        return task.locality.get(node.name, 0) * (CPUS - node.used_cpus) - task.serial % 3


# Few distinct values, so that ties are the rule. Indices of nodes are not the order of their names.
priorities = st.sampled_from([0, 0, 0, 1, -1])
localities = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 3), max_size=3)
kinds = st.sampled_from(KINDS)
loads = st.sampled_from([0, 1, CPUS]) | st.integers(0, CPUS)


class SameDecisions(RuleBasedStateMachine):
    policy: Policy = Fifo()

    @initialize(names=st.permutations(NAMES), count=st.integers(0, len(NAMES)))
    def start(self, names: list[str], count: int) -> None:
        self.naive: ReadySet = NaiveReadySet(self.policy)
        self.fast: ReadySet = ready_set(self.policy)
        self.nodes: dict[str, Node] = {}
        self.joined = 0
        self.ready: dict[int, Task] = {}
        self.taken: list[Task] = []
        self.serial = 0
        for name in names[:count]:
            self._join(name)

    @rule(
        count=st.integers(1, 6),
        priority=priorities,
        kind=kinds,
        locality=localities,
        freed=st.booleans(),
        relieves=st.booleans(),
    )
    def several_alike_become_ready(
        self, count: int, priority: int, kind: Requirements, locality: dict[str, int], freed: bool, relieves: bool
    ) -> None:
        for _ in range(count):
            self.serial += 1
            self._add(Task(self.serial, priority, kind, locality, freed, relieves))

    @rule(data=st.data(), locality=st.none() | localities)
    def one_is_taken_back(self, data: st.DataObject, locality: dict[str, int] | None) -> None:
        """With its old serial; its data may have moved meanwhile."""
        if self.taken:
            old = self.taken.pop(data.draw(st.integers(0, len(self.taken) - 1)))
            moved = old.locality if locality is None else locality
            self._add(Task(old.serial, old.priority, old.requirements, moved, old.freed, old.relieves))

    @rule(count=st.integers(1, 8), occupies=st.sampled_from([True, True, False]))
    def the_best_are_launched(self, count: int, occupies: bool) -> None:
        for _ in range(count):
            placement = self.naive.propose()
            if placement is not None:
                task, view = placement
                self._remove(task)
                if occupies:
                    node = self.nodes[view.name]
                    node.used_memory += task.requirements.memory
                    self._load(node, node.used_cpus + task.requirements.cpus)
                self.decisions_are_the_same()

    @rule(data=st.data(), share=st.sampled_from([0.0, 0.5, 1.0]))
    def some_are_cancelled(self, data: st.DataObject, share: float) -> None:
        count = max(1, int(share * len(self.ready)))
        for serial in data.draw(st.permutations(sorted(self.ready)))[:count]:
            self._remove(self.ready[serial])

    @rule(name=st.sampled_from(NAMES), cpus=loads, memory=st.integers(0, MEMORY))
    def a_node_fills_or_frees(self, name: str, cpus: int, memory: int) -> None:
        if name in self.nodes:
            self.nodes[name].used_memory = memory
            self._load(self.nodes[name], cpus)

    @rule(changes=st.integers(1, 60))
    def nodes_change_while_nobody_asks(self, changes: int) -> None:
        """So often that the changes are not remembered one by one."""
        for turn in range(changes if self.nodes else 0):
            node = list(self.nodes.values())[turn % len(self.nodes)]
            self._load(node, (node.used_cpus + turn) % (CPUS + 1))

    @rule(name=st.sampled_from(NAMES))
    def a_node_joins_or_leaves(self, name: str) -> None:
        """One that comes back is empty, and the last in the order."""
        if name in self.nodes:
            gone = self.nodes.pop(name)
            self.naive.node_gone(gone)
            self.fast.node_gone(gone)
        else:
            self._join(name)

    @invariant()
    def decisions_are_the_same(self) -> None:
        assert len(self.fast) == len(self.naive) == len(self.ready)
        for node in self.nodes.values():
            for kind in KINDS:
                assert self.fast.next_alike(node, kind) is self.naive.next_alike(node, kind)
        assert set(self.fast.heads()) == set(self.naive.heads())
        assert self.fast.propose() == self.naive.propose()

    def _join(self, name: str) -> None:
        node = self.nodes[name] = Node(name, self.joined)
        self.joined += 1
        self._load(node, 0)

    def _load(self, node: Node, cpus: int) -> None:
        node.used_cpus = cpus
        self.naive.node_changed(node)
        self.fast.node_changed(node)

    def _add(self, task: Task) -> None:
        self.ready[task.serial] = task
        self.naive.add(task)
        self.fast.add(task)

    def _remove(self, task: ReadyTask) -> None:
        self.taken.append(self.ready.pop(task.serial))
        self.naive.remove(task)
        self.fast.remove(task)


POLICIES: list[Policy] = [Fifo(), Lifo(), Locality(), LoadBalance(), FifoData(), Favourites(), ScoreOnly()]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("dead_allowed", [0, 32])
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_the_fast_ready_set_equals_the_naive_one(
    policy: Policy, dead_allowed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once with the usual tolerance for dead entries, and once with none, so that all is often rebuilt."""
    monkeypatch.setattr(ready_queues, "_DEAD_ALLOWED", dead_allowed)
    monkeypatch.setattr(places, "_SPARE", dead_allowed)
    monkeypatch.setattr(ready_queues, "_KEPT", 16 if dead_allowed else 1)

    class Machine(SameDecisions):
        pass

    Machine.policy = policy
    run_state_machine_as_test(Machine, settings=settings(max_examples=30, stateful_step_count=25, deadline=None))


def test_every_sparse_policy_here_is_served_by_the_fast_set() -> None:
    """Or the comparison above would be of the naive set with itself."""
    served = {policy.name for policy in POLICIES if isinstance(ready_set(policy), ReadyQueues)}
    assert served == {policy.name for policy in POLICIES} - {"score_only"}
