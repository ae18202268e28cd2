"""Ready I/O tasks: which should be launched next, and on which device.

    ready I/O tasks ── by function, requirements, anchor ──► group: a heap, larger priority first, then arrival
                                                               │ the head of each group
                       IOPolicy (io_policies.py) ◄─────────────┘
                        └ asks Moment (io_fit.py): where does it fit, how long will it take
                           └ asks Spots (io_spots.py), one per kind ◄── nodes that changed

Tasks of a group are alike: what is refused to its head is refused to all. So a decision looks at the heads only, and
at nodes that changed since the last: its cost grows neither with the number of ready tasks nor with that of nodes.
(A kind that was not seen before, or long ago, looks at all nodes once.) It reserves nothing: a task that is proposed
is launched, and the ledger takes its tokens then.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from math import inf
from typing import TypeAlias

from penstock.errors import InternalError
from penstock.model.resources import Requirements
from penstock.scheduling.io_fit import Moment
from penstock.scheduling.io_policies import io_policy, io_scheduler_names
from penstock.scheduling.io_spots import Board, Spots
from penstock.scheduling.io_view import DeviceView, IONodeView, IOTask, Placement, Rate, StorageView

__all__ = [
    "DeviceView",
    "IONodeView",
    "IOReadySet",
    "IOTask",
    "Placement",
    "Rate",
    "StorageView",
    "io_scheduler_names",
]

#: entries of removed tasks that a heap may hold beyond the number of its live ones
_DEAD_ALLOWED = 32

#: kinds of which no task is ready whose places are kept up nevertheless, beyond the number of those that are
_KINDS_REMEMBERED = 16

#: function, requirements, anchor: all that schedulers see of a task, besides its place in the order
_Kind: TypeAlias = tuple[int, Requirements, str]


class _Group:
    """The ready tasks of one kind, in order; entries of removed ones go when they come to the front or are too many."""

    __slots__ = ("_order", "kind", "spots", "tasks")

    def __init__(self, kind: _Kind, spots: Spots) -> None:
        self.kind = kind
        self.spots = spots
        #: by serial
        self.tasks: dict[int, IOTask] = {}
        #: (-priority, serial), as a heap; its first entry is of a ready task. A task that was removed and added again
        #: may have two, which do no harm: they are equal.
        self._order: list[tuple[int, int]] = []

    def add(self, task: IOTask) -> None:
        serial = task.serial
        self.tasks[serial] = task
        heappush(self._order, (-task.priority, serial))

    def remove(self, serial: int) -> None:
        tasks, order = self.tasks, self._order
        del tasks[serial]
        while order and order[0][1] not in tasks:
            heappop(order)
        if len(order) > 2 * len(tasks) + _DEAD_ALLOWED:
            order[:] = {entry for entry in order if entry[1] in tasks}
            heapify(order)

    def head(self) -> IOTask:
        """The first task; there must be one."""
        return self.tasks[self._order[0][1]]


class IOReadySet:
    """Holds the ready I/O tasks and answers which should be launched next, as the I/O scheduler of that name says.

    It knows the nodes that it was told of, as they were then: what changes on one, its own devices included, is to be
    told before the next proposal is asked for.

    ``ageing`` is in seconds: what has waited that long is served before others of its priority, the oldest first, under
    the scheduler's own rules. ``None`` is never, and is how the schedulers were published. The age that counts is that
    of a group's head.
    """

    def __init__(self, scheduler: str = "fcfs", ageing: float | None = None) -> None:
        self._policy = io_policy(scheduler, ageing)
        #: none of them is empty
        self._groups: dict[_Kind, _Group] = {}
        self._group_of: dict[int, _Group] = {}
        self._counts: dict[int, int] = {}
        self._board = Board()
        #: of kinds that are ready, and of some that were
        self._spots: dict[_Kind, Spots] = {}

    def __len__(self) -> int:
        return len(self._group_of)

    def add(self, task: IOTask) -> None:
        serial = task.serial
        if serial in self._group_of:
            raise InternalError(f"I/O task {task.task} (serial {serial}) became ready twice")
        kind = task.function, task.requirements, task.anchor
        group = self._groups.get(kind)
        if group is None:
            group = self._groups[kind] = _Group(kind, self._spots_of(kind))
        group.add(task)
        self._group_of[serial] = group
        self._counts[kind[0]] = self._counts.get(kind[0], 0) + 1

    def remove(self, task: IOTask) -> None:
        serial = task.serial
        group = self._group_of.pop(serial, None)
        if group is None:
            raise InternalError(f"I/O task {task.task} (serial {serial}) is to be removed, but is not ready")
        group.remove(serial)
        if not group.tasks:
            del self._groups[group.kind]
        function = group.kind[0]
        self._counts[function] -= 1
        if not self._counts[function]:
            del self._counts[function]
        self._policy.removed(task)

    def count(self, function: int) -> int:
        """Ready instances of a function."""
        return self._counts.get(function, 0)

    def heads(self, function: int) -> Iterator[IOTask]:
        """The first ready task of each kind that a function has."""
        return (group.head() for group in self._groups.values() if group.kind[0] == function)

    def tasks(self) -> Iterator[IOTask]:
        """All ready tasks, in no particular order."""
        return (task for group in self._groups.values() for task in group.tasks.values())

    def kinds(self) -> Iterator[tuple[IOTask, int]]:
        """A ready task of each kind, and how many of the kind there are."""
        return ((group.head(), len(group.tasks)) for group in self._groups.values())

    def node_changed(self, node: IONodeView) -> None:
        """A node joined, or its executors, its memory or what is free on its own devices changed."""
        self._board.changed(node)

    def node_gone(self, node: IONodeView) -> None:
        """A node takes nothing any more. One of the same name that joins later is another, with another index."""
        self._board.gone(node)

    @property
    def nodes(self) -> int:
        """How many nodes it knows of."""
        return len(self._board.nodes)

    def demands_changed(self, *, learned: bool = False) -> None:
        """What tasks would take has changed on more than the nodes told of: for all, or where bandwidth is learned."""
        for (_, need, _), spots in self._spots.items():
            if not learned or need.auto is not None:
                spots.outdate()

    def propose(self, now: float, storage: StorageView) -> Placement | None:
        """The next task to launch, if any should be launched now; to be asked again until the answer is ``None``.

        A proposed task is to be removed and launched.
        """
        placement = None
        if self._groups and self._board.open:
            heads = [group.head() for group in self._groups.values()]
            placement = self._policy.choose(heads, Moment(self._spots_for, storage, now))
        if placement is None:
            self._policy.end_round()
        return placement

    def _spots_for(self, task: IOTask) -> Spots:
        return self._group_of[task.serial].spots

    def _spots_of(self, kind: _Kind) -> Spots:
        spots = self._spots.get(kind)
        if spots is None:
            if len(self._spots) > 2 * len(self._groups) + _KINDS_REMEMBERED:
                self._spots = {kind: self._groups[kind].spots for kind in self._groups}
            spots = self._spots[kind] = Spots(self._board, watches_running=self._policy.maximizes)
        return spots

    def next_alike(self, task: IOTask) -> IOTask | None:
        """The first ready task of the same kind as one that was just launched, if no other kind is ready.

        Only then can it be sent ahead, behind the other, without overtaking anybody.
        """
        if len(self._groups) != 1:
            return None
        group = self._groups.get((task.function, task.requirements, task.anchor))
        return None if group is None else group.head()

    def next_change(self, now: float) -> float | None:
        """When age will next change the order, or ``None`` if time alone changes nothing."""
        if not self._policy.ages or len(self._groups) < 2:
            return None
        ageing = self._policy.ageing
        times = (group.head().ready_since + ageing for group in self._groups.values())
        soonest = min((time for time in times if time > now), default=inf)
        return None if soonest == inf else soonest
