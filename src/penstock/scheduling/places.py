"""Nodes kept in order for a question that is asked again and again: which is the best where this fits now?

    node_changed ─▶ Nodes: a log of changes ─▶ Places, one per question: a heap of nodes, corrected when it is asked

A heap entry may promise more than is true, never less. An entry at the head is checked: a node whose rank got worse
goes down, a node where the question's task does not fit is dropped until it changes. What a change makes better is
entered anew, once per change and question in use. So an answer costs what changed since the last one, however many
nodes there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, Generic, TypeAlias, TypeVar

from penstock.scheduling.view import NodeView

__all__ = ["Nodes", "Places", "Rank"]

N = TypeVar("N", bound=NodeView)

#: the smallest is served first; the last item is the node's index
Rank: TypeAlias = tuple[Any, ...]

#: entries that a heap or the log may hold beyond what the number of nodes allows
_SPARE = 32


class Nodes(Generic[N]):
    """The nodes that may be offered, and which of them changed lately. With few of them nobody keeps them in order."""

    __slots__ = ("_few", "by_index", "by_name", "forgotten", "log")

    def __init__(self, few: int = 0) -> None:
        #: so many need no log
        self._few = few
        self.by_index: dict[int, N] = {}
        self.by_name: dict[str, N] = {}
        #: indices of nodes, one for each change
        self.log: list[int] = []
        #: changes that are not in the log any more: who has not seen them must look at every node
        self.forgotten = 0

    def __len__(self) -> int:
        return len(self.by_index)

    def changed(self, node: N) -> None:
        """What is free on a node changed, or it joined."""
        index, by_index = node.index, self.by_index
        if index not in by_index:
            by_index[index] = self.by_name[node.name] = node
            if len(by_index) == self._few + 1:
                self._forget()  # what the first ones did is not in the log
        if len(by_index) > self._few:
            log = self.log
            log.append(index)
            if len(log) > 2 * len(by_index) + _SPARE:
                self._forget()

    def gone(self, node: N) -> None:
        """A node takes nothing any more."""
        if self.by_index.pop(node.index, None) is None:
            return
        if self.by_name.get(node.name) is node:
            del self.by_name[node.name]

    def _forget(self) -> None:
        self.forgotten += len(self.log) + 1
        self.log.clear()


class Places:
    """The nodes of one question in the order of their rank.

    ``rank`` gives the rank of a node, or None if it is no answer now. It may get worse at any time; when it gets
    better, the node is in the log of ``nodes``, or ``look`` is called. ``candidates`` are all that could be an answer.
    """

    __slots__ = ("_candidates", "_heap", "_listed", "_nodes", "_rank", "_seen")

    def __init__(
        self,
        nodes: Nodes[NodeView],
        rank: Callable[[NodeView], Rank | None],
        candidates: Callable[[], Iterable[NodeView]],
    ) -> None:
        self._nodes = nodes
        self._rank = rank
        self._candidates = candidates
        self._heap: list[Rank] = []
        #: the one entry that counts for each node in the heap
        self._listed: dict[int, Rank] = {}
        #: changes seen
        self._seen = -1

    def best(self) -> Rank | None:
        """The smallest rank of all nodes, if any is an answer now."""
        nodes = self._nodes
        if self._seen != nodes.forgotten + len(nodes.log):
            self._catch_up()
        heap, listed, by_index = self._heap, self._listed, nodes.by_index
        while heap:
            rank = heap[0]
            index = rank[-1]
            if listed.get(index) is not rank:
                heappop(heap)
                continue
            node = by_index.get(index)
            now = None if node is None else self._rank(node)
            if now == rank:
                return rank
            if now is None:
                heappop(heap)
                del listed[index]
            else:
                listed[index] = now
                heapreplace(heap, now)
        return None

    def look(self, node: NodeView) -> None:
        """The rank of a node may have become better."""
        rank = self._rank(node)
        if rank is None:
            return  # if it is listed, that will be noticed when it comes to the head
        index, listed = node.index, self._listed
        known = listed.get(index)
        if known is None or rank < known:
            listed[index] = rank
            heappush(self._heap, rank)
            if len(self._heap) > 2 * len(listed) + _SPARE:
                self._heap = list(listed.values())
                heapify(self._heap)

    def _catch_up(self) -> None:
        nodes = self._nodes
        unseen = self._seen - nodes.forgotten
        if unseen < 0:
            ranks = (self._rank(node) for node in self._candidates())
            self._heap = [rank for rank in ranks if rank is not None]
            self._listed = {rank[-1]: rank for rank in self._heap}
            heapify(self._heap)
        else:
            by_index = nodes.by_index
            for index in nodes.log[unseen:]:
                node = by_index.get(index)
                if node is not None:
                    self.look(node)
        self._seen = nodes.forgotten + len(nodes.log)
