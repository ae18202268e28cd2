"""Nodes as the ledger keeps them: their lanes, what is free on them, what is kept for somebody, and what fits."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from penstock.engine.devices import DeviceRecord
from penstock.model.resources import Node, Requirements, StorageLayer
from penstock.storage.redirect import usable

if TYPE_CHECKING:
    from penstock.engine.state import TaskRecord

__all__ = ["Hosts", "Kept", "Lane", "NodeRecord", "can_ever_fit", "most_processes", "processes_in"]

#: how many processes of a gang run on which node
Hosts: TypeAlias = "list[tuple[NodeRecord, int]]"


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
        "free_countable",
        "free_cpus",
        "free_memory",
        "guests",
        "idle",
        "idle_io",
        "index",
        "kept",
        "lanes",
        "lasting",
        "moves",
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
        #: numbers of the units of what is only counted; the one that was given back last is taken first, as lanes are
        self.free_countable = {name: list(range(count))[::-1] for name, count in node.countable}
        #: fastest first
        self.devices = devices
        #: some of them keep what lies on them
        self.lasting = any(not device.layer.temporary for device in devices)
        compute = [Lane(self, i, io=False) for i in range(node.cpus)]
        io = [Lane(self, node.cpus + i, io=True) for i in range(node.io_executors)]
        self.lanes = compute + io
        #: lanes with an empty queue and a process to serve them
        self.idle: list[Lane] = compute[::-1]
        self.idle_io: list[Lane] = io[::-1]
        #: attempts of I/O tasks here that hold no bandwidth of any device
        self.unlayered = 0
        #: files that are being moved from its layers
        self.moves = 0
        #: gangs that have processes here, but their lane on another node
        self.guests: dict[int, TaskRecord] = {}
        #: what is kept here for a task that waits for more than is free
        self.kept: Kept | None = None
        #: whether the node's properties match, by requirement
        self.suits: dict[Requirements, bool] = {}

    def lets_use(self, need: Requirements, device: DeviceRecord) -> bool:
        """Whether tasks with these requirements may use a device of this node, which may be for temporary files only.

        Where there is no other they take its bandwidth, for want of a better measure; their files go to their names.
        """
        return need.temporary or not device.layer.temporary or not self.lasting

    @property
    def used_cpus(self) -> int:
        """Computing units in use."""
        return self.node.cpus - self.free_cpus

    def fits(self, need: Requirements) -> bool:
        """Whether an attempt of a compute task with these requirements could start here now."""
        if need.or_else and any(self.fits(other) for other in need.or_else):
            return True
        if need.cpus > self.free_cpus or need.memory > self.free_memory or not self.idle:
            return False
        if need.processes > 1:
            return self.room_for(need) >= need.processes
        if need.countable and not self.has_countable(need):
            return False
        if self.kept is not None and not self.kept.leaves_room(self, need):
            return False
        if not need.properties:
            return True
        return self.is_suitable(need)

    def room_for(self, need: Requirements) -> int:
        """How many processes of a gang with these requirements could start here now, as far as the gang has so many."""
        if not self.idle or not self.is_suitable(need):
            return 0
        cpus, memory = self.free_cpus, self.free_memory
        if self.kept is not None and not self.kept.admits(need):
            cpus -= self.kept.cpus
            memory -= self.kept.memory
        return max(0, processes_in(need, cpus, memory))

    def has_countable(self, need: Requirements) -> bool:
        """Whether enough is free of what is only counted."""
        free = self.free_countable
        return all(count <= len(free.get(name, ())) for name, count in need.countable)

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


class Kept:
    """What of a node is kept, as it becomes free, for tasks with certain requirements."""

    __slots__ = ("_admitted", "countable", "cpus", "memory")

    def __init__(self, need: Requirements, processes: int) -> None:
        self._admitted = (need, replace(need, or_else=()), *need.or_else)
        self.cpus = need.cpus * processes
        self.memory = need.memory * processes
        self.countable = dict(need.countable)

    def admits(self, need: Requirements) -> bool:
        """Whether it is kept for a task with these requirements."""
        return need in self._admitted

    def leaves_room(self, node: NodeRecord, need: Requirements) -> bool:
        """Whether a task that fits takes nothing of what is kept, or may."""
        beside = node.free_cpus - need.cpus >= self.cpus and node.free_memory - need.memory >= self.memory
        for name, count in need.countable:
            beside = beside and len(node.free_countable[name]) - count >= self.countable.get(name, 0)
        return beside or self.admits(need)


def processes_in(need: Requirements, cpus: int, memory: int) -> int:
    """How many processes of a gang these units and this memory are enough for, as far as the gang has so many."""
    most = min(need.processes, need.processes_per_node or need.processes)
    if need.cpus:
        most = min(most, cpus // need.cpus)
    if need.memory:
        most = min(most, memory // need.memory)
    return most


def most_processes(node: Node, need: Requirements) -> int:
    """How many processes of a gang the empty node could run."""
    return processes_in(need, node.cpus, node.memory) if can_ever_fit(node, need) else 0


def can_ever_fit(node: Node, need: Requirements) -> bool:
    """Whether the empty node could run an attempt with these requirements; of a gang, a process of it."""
    if any(most_processes(node, other) >= other.processes for other in need.or_else):
        return True
    if need.cpus > node.cpus or need.memory > node.memory:
        return False
    if need.countable:
        there = dict(node.countable)
        if any(count > there.get(name, 0) for name, count in need.countable):
            return False
    if need.io and not (
        node.io_executors
        and (not need.layered or any(_could_hold(layer, need) for layer in usable(node.storage, need)))
    ):
        return False
    offered = {name.casefold(): value.casefold() for name, value in node.properties}
    return all(offered.get(name.casefold()) == value.casefold() for name, value in need.properties)


def _could_hold(layer: StorageLayer, need: Requirements) -> bool:
    room = layer.capacity is None or need.capacity <= layer.capacity
    least = need.bandwidth if need.auto is None else need.auto.least
    return room and least <= layer.bandwidth
