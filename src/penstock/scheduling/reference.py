"""The naive ready set: scores every pair of task and node at every decision.

It is the oracle that the fast one (ready_queues.py) must equal, and it serves policies of which nothing is known
but their score.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.errors import InternalError
from penstock.model.resources import Requirements
from penstock.scheduling.policy import Policy, SparsePolicy, asks_for_idle_nodes
from penstock.scheduling.view import NodeView, ReadyTask

__all__ = ["NaiveReadySet"]

#: (-priority, -score, load, serial, node index): the smallest is served first
Rank = tuple[int, float, int, int, int]


class NaiveReadySet:
    """All ready tasks, in no order."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._idle_first = asks_for_idle_nodes(policy)
        self._tasks: dict[int, ReadyTask] = {}
        self._nodes: dict[int, NodeView] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def add(self, task: ReadyTask) -> None:
        if task.serial in self._tasks:
            raise InternalError(f"task {task.task} (serial {task.serial}) became ready twice")
        self._tasks[task.serial] = task

    def remove(self, task: ReadyTask) -> None:
        if self._tasks.pop(task.serial, None) is None:
            raise InternalError(f"task {task.task} (serial {task.serial}) is to be removed, but is not ready")

    def node_changed(self, node: NodeView) -> None:
        self._nodes[node.index] = node

    def node_gone(self, node: NodeView) -> None:
        self._nodes.pop(node.index, None)

    def propose(self) -> tuple[ReadyTask, NodeView] | None:
        nodes, tasks = self._nodes.values(), self._tasks.values()
        pairs = [(task, node) for node in nodes for task in tasks if node.fits(task.requirements)]
        return min(pairs, key=lambda pair: self._rank(*pair), default=None)

    def next_alike(self, node: NodeView, requirements: Requirements) -> ReadyTask | None:
        alike = [task for task in self._tasks.values() if task.requirements == requirements]
        return min(alike, key=lambda task: self._rank(task, node), default=None)

    def heads(self) -> Iterable[ReadyTask]:
        first: dict[Requirements, ReadyTask] = {}
        for task in sorted(self._tasks.values(), key=self._rank_anywhere):
            first.setdefault(task.requirements, task)
        return first.values()

    def _rank_anywhere(self, task: ReadyTask) -> tuple[int, float, int]:
        score = self._policy.sparse_score(task)[0] if isinstance(self._policy, SparsePolicy) else 0
        return -task.priority, -score, task.serial

    def _rank(self, task: ReadyTask, node: NodeView) -> Rank:
        load = node.used_cpus if self._idle_first else 0
        return -task.priority, -self._policy.score(task, node), load, task.serial, node.index
