"""The naive ready set: scores every pair of task and node at every decision.

It is the oracle that the fast one (ready_queues.py) must equal, and it serves policies of which nothing is known
but their score.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.errors import InternalError
from penstock.model.resources import Requirements
from penstock.scheduling.policy import Policy, asks_for_idle_nodes
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

    def __len__(self) -> int:
        return len(self._tasks)

    def add(self, task: ReadyTask) -> None:
        if task.serial in self._tasks:
            raise InternalError(f"task {task.task} (serial {task.serial}) became ready twice")
        self._tasks[task.serial] = task

    def remove(self, task: ReadyTask) -> None:
        if self._tasks.pop(task.serial, None) is None:
            raise InternalError(f"task {task.task} (serial {task.serial}) is to be removed, but is not ready")

    def propose(self, nodes: Iterable[NodeView]) -> tuple[ReadyTask, NodeView] | None:
        pairs = [(task, node) for node in nodes for task in self._tasks.values() if node.fits(task.requirements)]
        return min(pairs, key=lambda pair: self._rank(*pair), default=None)

    def next_alike(self, node: NodeView, requirements: Requirements) -> ReadyTask | None:
        alike = [task for task in self._tasks.values() if task.requirements == requirements]
        return min(alike, key=lambda task: self._rank(task, node), default=None)

    def _rank(self, task: ReadyTask, node: NodeView) -> Rank:
        load = node.used_cpus if self._idle_first else 0
        return -task.priority, -self._policy.score(task, node), load, task.serial, node.index
