"""V0: at each release of a slot all ready tasks are scored and sorted anew, and each of them probes all nodes.

Nothing is remembered between two rounds: which nodes have room, or in which order the tasks were.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

from benchmarks.generations.ordered_list import Key
from benchmarks.generations.rounds import Generation, Placement, last_key
from penstock.scheduling.policy import Policy
from penstock.scheduling.view import NodeView, ReadyTask

__all__ = ["Rescoring"]


class Rescoring(Generation):
    """The old scheduler.

    ``linear_duplicates`` tests whether a task is in the queue already by going through the queue, as a priority queue
    without an index does; else by a set.
    """

    def __init__(self, policy: Policy, *, linear_duplicates: bool = False) -> None:
        super().__init__(policy)
        self._linear_duplicates = linear_duplicates
        #: tasks that wait for resources
        self._waiting: dict[int, ReadyTask] = {}

    def _insert(self, task: ReadyTask) -> None:
        pass  # it is among the arrived until a round sees it

    def _withdraw(self, task: ReadyTask) -> None:
        self._waiting.pop(task.serial, None)

    def _joined(self, node: NodeView) -> None:
        pass

    def _left(self, node: NodeView) -> None:
        pass

    def _grew(self, node: NodeView) -> None:
        pass

    def _release(self, node: NodeView, arrived: dict[int, ReadyTask]) -> Iterator[Placement]:
        both = (*arrived.values(), *self._waiting.values())
        self._waiting.update(arrived)
        yield from self._drain(self._queue(node, both))

    def _arrival(self, arrived: dict[int, ReadyTask]) -> Iterator[Placement]:
        self._waiting.update(arrived)
        yield from self._drain(self._queue(next(iter(self._nodes.values())), arrived.values()))

    def _queue(self, node: NodeView, tasks: Iterable[ReadyTask]) -> list[tuple[Key, ReadyTask]]:
        queue: list[tuple[Key, ReadyTask]] = []
        queued: set[int] = set()
        for task in tasks:
            key = self._key(task, node) or last_key(task)
            if self._linear_duplicates:
                if any(task is other for _, other in queue):
                    continue
            elif task.serial in queued:
                continue
            else:
                queued.add(task.serial)
            heappush(queue, (key, task))
        return queue

    def _drain(self, queue: list[tuple[Key, ReadyTask]]) -> Iterator[Placement]:
        """All of it, also when nothing is free any more."""
        while queue:
            _, task = heappop(queue)
            if task.serial in self._known:
                node = self._best(task, self._nodes.values())
                if node is not None:
                    yield task, node

    def _in_order(self, node: NodeView) -> Iterable[ReadyTask]:
        queue = self._queue(node, self._known.values())
        while queue:
            yield heappop(queue)[1]
