"""Where tasks of one kind could go: all nodes in the order in which such tasks prefer them, kept up by changes.

    node_changed ──► Board: nodes, and which of them changed, in order
                       │ what changed since it last looked
                     Spots, one per kind of task ── shelves: a layer's place in the order of its node, a demand
                                                      └ nodes: more free bandwidth first, then who joined first

The highest layer of all nodes wins, so only the first shelf on which something fits counts, and on it the first node.
A kind looks only at nodes that changed since it was last asked. A device that nodes share has a shelf for itself, and
is looked at when a task wants a place, so a change of it is nobody's change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from penstock.scheduling.io_heap import LowestFirst
from penstock.scheduling.io_view import (
    DeviceView,
    IONodeView,
    IOTask,
    Placement,
    Rate,
    StorageView,
    bytes_per_second,
)

__all__ = ["Board", "Spots"]

#: changes remembered beyond twice as many as there are nodes; who missed more of them looks at all nodes anew
_REMEMBERED = 64


class Board:
    """The nodes there are, and which of them changed."""

    __slots__ = ("_changes", "_forgotten", "by_name", "nodes", "open")

    def __init__(self) -> None:
        #: by index
        self.nodes: dict[int, IONodeView] = {}
        self.by_name: dict[str, IONodeView] = {}
        #: indices of nodes with an idle executor
        self.open: set[int] = set()
        #: indices of nodes, in the order in which they changed
        self._changes: list[int] = []
        #: how many there were before those
        self._forgotten = 0

    def changed(self, node: IONodeView) -> None:
        self.nodes[node.index] = self.by_name[node.name] = node
        if node.io_open:
            self.open.add(node.index)
        else:
            self.open.discard(node.index)
        self._note(node.index)

    def gone(self, node: IONodeView) -> None:
        if self.nodes.pop(node.index, None) is not None:
            self.open.discard(node.index)
            if self.by_name.get(node.name) is node:
                del self.by_name[node.name]
            self._note(node.index)

    def _note(self, index: int) -> None:
        changes = self._changes
        changes.append(index)
        if len(changes) > 2 * len(self.nodes) + _REMEMBERED:
            half = len(changes) // 2
            del changes[:half]
            self._forgotten += half

    @property
    def length(self) -> int:
        """How many changes there ever were."""
        return self._forgotten + len(self._changes)

    def since(self, length: int) -> Iterable[int] | None:
        """The nodes that changed after there were that many changes, each once; ``None`` if that is forgotten."""
        if length < self._forgotten:
            return None
        return dict.fromkeys(self._changes[length - self._forgotten :])


#: place in the nodes' order of layers, name of the layer, the device if it is shared, demand
_Shelf: TypeAlias = tuple[int, str, DeviceView | None, Rate]


class _Places:
    """The devices of one shelf: alike in their place in the order, their layer's name and what tasks take of them."""

    __slots__ = ("admitting", "busy", "device", "rank", "rate", "sample", "shelf", "takers")

    def __init__(self, shelf: _Shelf, sample: DeviceView | None) -> None:
        self.shelf = shelf
        self.rank, _, self.device, self.rate = shelf
        #: one of them, to ask for times
        self.sample = sample
        #: nodes on which the task may start there if enough is free
        self.admitting: set[int] = set()
        #: of these, the ones with an idle executor, and with room if the device is their own
        self.takers = LowestFirst()
        #: function → nodes on whose own device it runs and the task has room, by the start of the first attempt
        self.busy: dict[int, LowestFirst] = {}

    def note(self, node: IONodeView, device: DeviceView | None, *, room: bool) -> None:
        """A node has such a device."""
        self.admitting.add(node.index)
        own = device is not None and self.device is None
        if not node.io_open or (own and not room):
            self.takers.drop(node.index)
        else:
            self.takers.put(node.index, -device.free_bandwidth if own and device is not None else 0.0)

    def note_running(self, node: IONodeView, device: DeviceView, *, room: bool) -> None:
        running = dict(device.oldest()) if room else {}
        for function, nodes in self.busy.items():
            if function not in running:
                nodes.drop(node.index)
        for function, start in running.items():
            if function not in self.busy:
                self.busy[function] = LowestFirst()
            self.busy[function].put(node.index, start)

    def forget(self, index: int) -> None:
        """A node has no such device any more."""
        self.admitting.discard(index)
        self.takers.drop(index)
        for nodes in self.busy.values():
            nodes.drop(index)

    def running(self) -> Iterator[tuple[int, float]]:
        """Function and start of the first attempt of each function that runs on any of them."""
        for function, nodes in self.busy.items():
            first = nodes.first()
            if first is not None:
                yield function, first[0]


class Spots:
    """Where the tasks of one kind could go. It is to be brought up to date before it is asked."""

    __slots__ = ("_board", "_listed", "_order", "_seen", "_shelves", "_watches_running")

    def __init__(self, board: Board, *, watches_running: bool) -> None:
        self._board = board
        #: whether it will be asked what is worth waiting for
        self._watches_running = watches_running
        #: changes of nodes it knows of; -1 if it must look at all nodes
        self._seen = -1
        #: by place in the order of layers
        self._order: list[_Places] = []
        self._shelves: dict[_Shelf, _Places] = {}
        #: node → where it is listed
        self._listed: dict[int, list[_Places]] = {}

    def outdate(self) -> None:
        """What tasks of this kind would take has changed."""
        self._seen = -1

    def catch_up(self, task: IOTask, storage: StorageView) -> None:
        """Look at what has changed; the task is any of the kind."""
        board = self._board
        length = board.length
        if self._seen == length:
            return
        changed = board.since(self._seen)
        if changed is None:
            self._order, self._shelves, self._listed = [], {}, {}
            changed = list(board.nodes)
        self._seen = length
        for index in changed:
            self._look_at(index, task, storage)

    def _look_at(self, index: int, task: IOTask, storage: StorageView) -> None:
        node = self._board.nodes.get(index)
        listed = [] if node is None else self._list(node, task, storage)
        for places in self._listed.pop(index, ()):
            if places not in listed:
                places.forget(index)
                if not places.admitting:
                    del self._shelves[places.shelf]
                    self._order.remove(places)
        if listed:
            self._listed[index] = listed

    def _list(self, node: IONodeView, task: IOTask, storage: StorageView) -> list[_Places]:
        """Enter a node on its shelves."""
        need = task.requirements
        if not need.layered:
            rate = storage.demand(task, node, None)
            return [] if rate is None else [self._enter(node, 0, None, 0.0, room=True)]
        listed = []
        declared = need.auto is None
        for rank, device in enumerate(node.devices):
            if task.anchor and device.name != task.anchor:
                continue
            rate = storage.demand(task, node, device)
            if rate is None:
                continue
            room = _has_room(device, task)
            listed.append(self._enter(node, rank, device, rate, room=room))
            # What follows is of no use while this fits; if that changes, so has the node.
            if declared and room and not device.shared and node.io_open and need.bandwidth <= device.free_bandwidth:
                break
        return listed

    def _enter(self, node: IONodeView, rank: int, device: DeviceView | None, rate: Rate, *, room: bool) -> _Places:
        shared = device if device is not None and device.shared else None
        shelf = (rank, "" if device is None else device.name, shared, rate)
        places = self._shelves.get(shelf)
        if places is None:
            places = self._shelves[shelf] = _Places(shelf, device)
            self._order = sorted([*self._order, places], key=lambda places: places.rank)
        places.note(node, device, room=room)
        if self._watches_running and device is not None and shared is None:
            places.note_running(node, device, room=room)
        return places

    # --- questions ----------------------------------------------------------------------------------------------------

    def place(self, task: IOTask) -> Placement | None:
        """Where the task should go, if it fits anywhere: on the highest layer of all that fit.

        On equal layers: more bytes of the task's inputs on the node; more free bandwidth on the device; the node that
        joined first.
        """
        best: Placement | None = None
        best_rank: tuple[float, float, int] | None = None
        highest = -1
        for places in self._order:
            if best is not None and places.rank > highest:
                break
            first = places.takers.first()
            if first is not None and (found := self._fit(task, places, *first)) is not None:
                rank = (0.0, -_free(found.device), first[1])
                if best_rank is None or rank < best_rank:
                    best, best_rank, highest = found, rank, places.rank
        if best is None or best_rank is None or not task.locality:
            return best
        return self._nearest(task, highest, best, best_rank)

    def _nearest(self, task: IOTask, layer: int, best: Placement, best_rank: tuple[float, float, int]) -> Placement:
        """The same, among the nodes that hold bytes of the task's inputs."""
        for name, nbytes in task.locality.items():
            node = self._board.by_name.get(name)
            if node is None or nbytes <= 0:
                continue
            for places in self._listed.get(node.index, ()):
                key = places.takers.keys.get(node.index)
                if places.rank == layer and key is not None:
                    found = self._fit(task, places, key, node.index)
                    if found is not None and (rank := (-nbytes, -_free(found.device), node.index)) < best_rank:
                        best, best_rank = found, rank
        return best

    def _fit(self, task: IOTask, places: _Places, key: float, index: int) -> Placement | None:
        """A task on one of the nodes of a shelf, if it fits there."""
        node = self._board.nodes[index]
        if places.sample is None:
            return Placement(task, node, None, 0.0)
        bandwidth = bytes_per_second(places.rate)
        device = places.device
        if device is None:
            return Placement(task, node, node.devices[places.rank], bandwidth) if bandwidth <= -key else None
        fits = _has_room(device, task) and bandwidth <= device.free_bandwidth
        return Placement(task, node, device, bandwidth) if fits else None

    def may_start(self) -> bool:
        """Whether there is a place where the task may start if enough is free."""
        return bool(self._order)

    def most(self) -> float:
        """The largest bandwidth that it would take anywhere."""
        return max((bytes_per_second(places.rate) for places in self._order), default=0.0)

    def shortest_wait(self, task: IOTask, layer: int, now: float) -> Iterator[tuple[float, float]]:
        """For layers above number ``layer`` that the task could use, if they had bandwidth: seconds until an attempt
        there ends, as far as that is known, and seconds that the task then takes.
        """
        for places in self._order:
            if places.rank >= layer:
                return
            sample = places.sample
            there = None if sample is None else sample.seconds(task.function)
            if sample is None or there is None or (places.device is not None and not _has_room(places.device, task)):
                continue
            for function, start in places.running() if places.device is None else places.device.oldest():
                mean = sample.seconds(function)
                if mean is not None:
                    yield max(0.0, mean - (now - start)), there


def _free(device: DeviceView | None) -> float:
    return 0.0 if device is None else device.free_bandwidth


def _has_room(device: DeviceView, task: IOTask) -> bool:
    """A full device takes nothing, not even a task that says it needs no room; but who only reads there needs none."""
    free = device.free_capacity
    return bool(task.anchor) or (free > 0 and task.requirements.capacity <= free)
