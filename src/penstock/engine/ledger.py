"""Who holds which computing units, how much memory and which executors, on which node; devices.py adds storage.

Tokens belong to attempts: what an attempt takes is exactly what it gives back, however it ends. An attempt queued
behind another on a lane holds nothing; it *inherits* when the one before it ends, so short tasks follow one another
without the tokens ever being free in between.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from penstock.engine.devices import DeviceRecord
from penstock.errors import InternalError
from penstock.model.resources import Node, Requirements, StorageLayer

if TYPE_CHECKING:
    from penstock.engine.state import IOTaskRecord, TaskRecord

__all__ = ["Lane", "Ledger", "NodeRecord", "can_ever_fit"]


class Lane:
    """A seat for one worker process: the attempt at the head runs and holds tokens, those behind it wait."""

    __slots__ = ("dying", "index", "io", "killed", "node", "open", "queue", "recalling", "since")

    def __init__(self, node: NodeRecord, index: int, *, io: bool) -> None:
        self.node = node
        self.index = index
        #: it is of the I/O pool
        self.io = io
        self.queue: deque[TaskRecord] = deque()
        #: when the head started, as far as is known
        self.since = 0.0
        #: a Recall is under way: send nothing until it is answered
        self.recalling = False
        #: its process is ending: send nothing until ``WorkerLost`` says that another may serve it
        self.dying = False
        #: its process is ending because we asked for it
        self.killed = False
        #: False once its process is gone for good
        self.open = True


class NodeRecord:
    """A node with what is free on it; also the view of it that policies get."""

    __slots__ = (
        "devices",
        "free_cpus",
        "free_memory",
        "idle",
        "idle_io",
        "index",
        "lanes",
        "name",
        "node",
        "suits",
        "unlayered",
    )

    def __init__(self, node: Node, index: int, devices: list[DeviceRecord]) -> None:
        self.node = node
        self.name = node.name
        self.index = index
        self.free_cpus = node.cpus
        self.free_memory = node.memory
        #: fastest first
        self.devices = devices
        compute = [Lane(self, i, io=False) for i in range(node.cpus)]
        io = [Lane(self, node.cpus + i, io=True) for i in range(node.io_executors)]
        self.lanes = compute + io
        #: lanes with an empty queue and a process to serve them
        self.idle: list[Lane] = compute[::-1]
        self.idle_io: list[Lane] = io[::-1]
        #: attempts of I/O tasks here that hold no bandwidth of any device
        self.unlayered = 0
        #: whether the node's properties match, by requirement
        self.suits: dict[Requirements, bool] = {}

    @property
    def used_cpus(self) -> int:
        """Computing units in use."""
        return self.node.cpus - self.free_cpus

    def fits(self, need: Requirements) -> bool:
        """Whether an attempt of a compute task with these requirements could start here now."""
        if need.cpus > self.free_cpus or need.memory > self.free_memory or not self.idle:
            return False
        if not need.properties:
            return True
        return self.is_suitable(need)

    def is_suitable(self, need: Requirements) -> bool:
        """Whether the node, if it were empty, could run such an attempt."""
        suits = self.suits.get(need)
        if suits is None:
            suits = self.suits[need] = can_ever_fit(self.node, need)
        return suits

    @property
    def io_open(self) -> bool:
        """Whether an I/O executor is idle."""
        return bool(self.idle_io)

    def pool(self, lane: Lane) -> list[Lane]:
        """The idle lanes among which this one counts."""
        return self.idle_io if lane.io else self.idle


def can_ever_fit(node: Node, need: Requirements) -> bool:
    """Whether the empty node could run an attempt with these requirements."""
    if need.cpus > node.cpus or need.memory > node.memory:
        return False
    if need.io and not (
        node.io_executors and (not need.layered or any(_could_hold(layer, need) for layer in node.storage))
    ):
        return False
    offered = {name.casefold(): value.casefold() for name, value in node.properties}
    return all(offered.get(name.casefold()) == value.casefold() for name, value in need.properties)


def _could_hold(layer: StorageLayer, need: Requirements) -> bool:
    room = layer.capacity is None or need.capacity <= layer.capacity
    least = need.bandwidth if need.auto is None else need.auto.least
    return room and least <= layer.bandwidth


class Ledger:
    """Nodes, and who holds what on them."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeRecord] = {}
        #: nodes that ever joined
        self.joined = 0
        #: a node was lost: what was possible before may not be any more
        self.shrunk = False
        self._possible: dict[Requirements, bool] = {}
        #: nodes where something could start
        self.open: dict[NodeRecord, None] = {}
        #: nodes with an idle I/O executor
        self.open_io: dict[NodeRecord, None] = {}
        #: holder → the node it holds tokens of
        self.holders: dict[int, NodeRecord] = {}
        #: devices that several nodes share, by the name of their layer
        self.shared: dict[str, DeviceRecord] = {}

    def join(self, node: Node) -> NodeRecord:
        """Add a node with all its tokens."""
        if node.name in self.nodes:
            raise InternalError(f"node {node.name!r} joined twice")
        devices = [self._device(layer) for layer in node.storage]
        record = self.nodes[node.name] = NodeRecord(node, self.joined, devices)
        self.joined += 1
        self._possible.clear()
        self._note_capacity(record)
        return record

    def _device(self, layer: StorageLayer) -> DeviceRecord:
        return self.shared.setdefault(layer.name, DeviceRecord(layer)) if layer.shared else DeviceRecord(layer)

    def devices(self) -> list[DeviceRecord]:
        """Every device once."""
        return list(dict.fromkeys(device for node in self.nodes.values() for device in node.devices))

    def leave(self, name: str) -> NodeRecord:
        """Remove a node; its holders must have given back before."""
        record = self.nodes.pop(name)
        self.open.pop(record, None)
        self.open_io.pop(record, None)
        self.shrunk = True
        self._possible.clear()
        return record

    def is_possible(self, need: Requirements) -> bool:
        """Whether some node, if it were empty, could run an attempt with these requirements."""
        known = self._possible.get(need)
        if known is None:
            known = self._possible[need] = any(can_ever_fit(record.node, need) for record in self.nodes.values())
        return known

    def take(self, task: TaskRecord, node: NodeRecord) -> Lane:
        """Give an attempt its tokens and an idle lane."""
        need = task.requirements
        if need.cpus > node.free_cpus or need.memory > node.free_memory or task.task in self.holders:
            raise InternalError(f"task {task.task} cannot take {need} of node {node.name}")
        node.free_cpus -= need.cpus
        node.free_memory -= need.memory
        self.holders[task.task] = node
        lane = (node.idle_io if need.io else node.idle).pop()
        self._note_capacity(node)
        return lane

    def take_storage(self, task: IOTaskRecord, node: NodeRecord, device: DeviceRecord | None, bandwidth: float) -> None:
        """Give the attempt of an I/O task its bandwidth, and its room."""
        if device is None:
            node.unlayered += 1
        else:
            device.set_aside(task)
            device.take(task, bandwidth)

    def give_back(self, task: TaskRecord, lane: Lane) -> None:
        """Return an attempt's tokens; its lane is idle again, unless its process is ending."""
        node = self.holders.pop(task.task)
        need = task.requirements
        node.free_cpus += need.cpus
        node.free_memory += need.memory
        if need.io:
            self._give_back_storage(task, node)  # type: ignore[arg-type]
        if lane.open and not lane.dying:
            node.pool(lane).append(lane)
        self._note_capacity(node)

    def _give_back_storage(self, task: IOTaskRecord, node: NodeRecord) -> None:
        if task.device is None:
            node.unlayered -= 1
        else:
            task.device.give_back(task)
        if task.room is not None:
            task.room.release(task)

    def inherit(self, ended: TaskRecord, heir: TaskRecord) -> None:
        """Pass the tokens of an ended attempt to the one behind it, which needs exactly the same."""
        self.holders[heir.task] = self.holders.pop(ended.task)
        if ended.requirements.io:
            self._inherit_storage(ended, heir)  # type: ignore[arg-type]

    def _inherit_storage(self, ended: IOTaskRecord, heir: IOTaskRecord) -> None:
        device, bandwidth = ended.device, ended.bandwidth
        if device is not None:
            device.give_back(ended)
            device.take(heir, bandwidth)
        if ended.room is not None:
            ended.room.release(ended)

    def reopen(self, lane: Lane) -> None:
        """A new process serves the lane."""
        if lane.dying and lane.open:
            lane.dying = lane.killed = False
            if not lane.queue:
                lane.node.pool(lane).append(lane)
                self._note_capacity(lane.node)

    def seclude(self, lane: Lane) -> None:
        """Use a lane no more until it is reopened: its process is ending."""
        lane.dying = True
        pool = lane.node.pool(lane)
        if lane in pool:
            pool.remove(lane)
            self._note_capacity(lane.node)

    def close(self, lane: Lane) -> None:
        """Use a lane no more: its process is gone and none takes its place."""
        self.seclude(lane)
        lane.open = False

    def _note_capacity(self, node: NodeRecord) -> None:
        if node.free_cpus > 0 and node.idle and node.name in self.nodes:
            self.open[node] = None
        else:
            self.open.pop(node, None)
        if node.idle_io and node.name in self.nodes:
            self.open_io[node] = None
        else:
            self.open_io.pop(node, None)
