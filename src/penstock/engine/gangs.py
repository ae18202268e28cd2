"""Ready gangs: tasks of several processes, which start all at once, on as few nodes as possible, or not at all.

A gang is no matter for a policy, whose score is of one node. Gangs are served by priority, then by age. How many
processes could start on each node, and in all, is kept for each kind of gang and brought up to date from a log of the
nodes that changed: that a gang does not fit is known at once, and to place one costs what the number of its nodes does.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from penstock.engine.ledger import Ledger
from penstock.engine.nodes import Hosts, NodeRecord
from penstock.errors import InternalError
from penstock.model.resources import Requirements
from penstock.scheduling.places import Nodes

if TYPE_CHECKING:
    from penstock.engine.state import TaskRecord

__all__ = ["Gangs"]

#: kinds of gangs whose room is kept up to date although none of them waits: the next may come at once
_KEPT = 8


class _Room:
    """How many processes of one kind of gang could start on each node now, and in all."""

    __slots__ = ("_free", "_heap", "_need", "_nodes", "_promised", "_seen", "total")

    def __init__(self, need: Requirements, nodes: Nodes[NodeRecord]) -> None:
        self._need = need
        self._nodes = nodes
        #: processes that fit, by index of the node; none of them is 0
        self._free: dict[int, int] = {}
        self.total = 0
        #: (-processes, index): one that counts for each node with room, which may promise more than fits, never less
        self._heap: list[tuple[int, int]] = []
        #: what the entry that counts says
        self._promised: dict[int, int] = {}
        self._seen = -1

    def catch_up(self) -> None:
        """Look at the nodes that changed since the last time."""
        nodes = self._nodes
        unseen = self._seen - nodes.forgotten
        if unseen < 0:
            self._free.clear()
            self._promised.clear()
            self._heap.clear()
            self.total = 0
        for index in list(nodes.by_index) if unseen < 0 else nodes.log[unseen:]:
            self._look(index)
        self._seen = nodes.forgotten + len(nodes.log)

    def _look(self, index: int) -> None:
        node = self._nodes.by_index.get(index)
        free = 0 if node is None else node.room_for(self._need)
        self.total += free - self._free.pop(index, 0)
        if free:
            self._free[index] = free
            if free > self._promised.get(index, 0):
                self._promise(index, free)

    def _promise(self, index: int, free: int) -> None:
        self._promised[index] = free
        heappush(self._heap, (-free, index))
        if len(self._heap) > 2 * len(self._promised) + 32:
            self._heap = [(-promised, index) for index, promised in self._promised.items()]
            heapify(self._heap)

    def hosts(self) -> Hosts:
        """Nodes for one gang, those with the most room first; there must be enough."""
        wanted = self._need.processes
        hosts: Hosts = []
        while wanted:
            negative, index = heappop(self._heap)
            if self._promised.get(index) != -negative:
                continue
            free = self._free.get(index, 0)
            if free == -negative:
                processes = min(free, wanted)
                wanted -= processes
                hosts.append((self._nodes.by_index[index], processes))
            del self._promised[index]
            if free and free != -negative:
                self._promise(index, free)
        for node, _ in hosts:
            self._promise(node.index, self._free[node.index])
        return hosts


class _Kind:
    """The ready gangs with the same requirements, in order."""

    __slots__ = ("order", "room", "tasks")

    def __init__(self, room: _Room) -> None:
        self.room = room
        #: by serial
        self.tasks: dict[int, TaskRecord] = {}
        #: (-priority, serial) as a heap; entries of removed gangs go when they come to the front
        self.order: list[tuple[int, int]] = []

    def first(self) -> TaskRecord:
        """There must be one."""
        while self.order[0][1] not in self.tasks:
            heappop(self.order)
        return self.tasks[self.order[0][1]]


class Gangs:
    """Holds the ready gangs and answers which can start next, and where."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._nodes: Nodes[NodeRecord] = Nodes()
        #: the kinds without ready gangs among them, the least recently used first
        self._kinds: OrderedDict[Requirements, _Kind] = OrderedDict()
        #: how many are ready
        self.count = 0
        self._watches = False

    def __len__(self) -> int:
        return self.count

    def add(self, task: TaskRecord) -> None:
        if not self._watches:
            self._watches = True
            self._ledger.watch(self._nodes.changed, self._nodes.gone)  # programs without gangs pay nothing
        need = task.requirements
        kind = self._kinds.get(need)
        if kind is None:
            self._drop_unused()
            kind = self._kinds[need] = _Kind(_Room(need, self._nodes))
        else:
            self._kinds.move_to_end(need)
        if task.serial in kind.tasks:
            raise InternalError(f"gang {task.task} (serial {task.serial}) became ready twice")
        kind.tasks[task.serial] = task
        heappush(kind.order, (-task.priority, task.serial))
        self.count += 1

    def remove(self, task: TaskRecord) -> None:
        kind = self._kinds.get(task.requirements)
        if kind is None or kind.tasks.pop(task.serial, None) is None:
            raise InternalError(f"gang {task.task} (serial {task.serial}) is to be removed, but is not ready")
        if not kind.tasks:
            kind.order.clear()
        self.count -= 1

    def heads(self) -> Iterator[TaskRecord]:
        """The first ready gang of each kind."""
        return (kind.first() for kind in self._kinds.values() if kind.tasks)

    def first_fitting(self) -> TaskRecord | None:
        """The first gang that could start now, if any. It stays ready until it is removed."""
        best: TaskRecord | None = None
        for kind in self._kinds.values():
            if not kind.tasks:
                continue
            gang = kind.first()
            if best is None or (-gang.priority, gang.serial) < (-best.priority, best.serial):
                kind.room.catch_up()
                if kind.room.total >= gang.requirements.processes:
                    best = gang
        return best

    def hosts(self, gang: TaskRecord) -> Hosts:
        """The nodes on which a gang that fits should start."""
        return self._kinds[gang.requirements].room.hosts()

    def _drop_unused(self) -> None:
        unused = [need for need, kind in self._kinds.items() if not kind.tasks]
        for need in unused[: max(0, len(unused) - _KEPT + 1)]:
            del self._kinds[need]
