"""Storage devices as the ledger sees them: bandwidth and room, who holds them, how long functions take there.

Bandwidth and the room for what is being written belong to attempts and are given back exactly. Room that finished
files fill stays taken until they are moved or deleted; it is measured, so it can exceed what was declared. What a
device has in common with those of the same name on other nodes is in its ``LayerRecord``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING

from penstock.errors import InternalError
from penstock.model.resources import Requirements, StorageLayer

if TYPE_CHECKING:
    from penstock.engine.io_demand import SettledRate
    from penstock.engine.learning import Course
    from penstock.engine.ledger import NodeRecord
    from penstock.engine.state import IOTaskRecord

__all__ = ["DeviceRecord", "LayerRecord", "Running"]

#: weight of the newest duration in a function's mean
_NEWEST = 0.2


class Running:
    """Attempts that hold bandwidth, by function, the one that started first at the front."""

    __slots__ = ("_by_function", "count")

    def __init__(self) -> None:
        #: a function that ran here once keeps its place: it will run again
        self._by_function: dict[int, OrderedDict[int, IOTaskRecord]] = {}
        self.count = 0

    def add(self, task: IOTaskRecord) -> None:
        alike = self._by_function.get(task.function)
        if alike is None:
            alike = self._by_function[task.function] = OrderedDict()
        alike[task.task] = task
        self.count += 1

    def remove(self, task: IOTaskRecord) -> None:
        del self._by_function[task.function][task.task]
        self.count -= 1

    def oldest(self) -> Iterator[tuple[int, float]]:
        """Each function, and when the first of its attempts started."""
        if self.count:
            for function, alike in self._by_function.items():
                if alike:
                    yield function, next(iter(alike.values())).started


class LayerRecord:
    """What devices of one name have in common, whatever node they belong to."""

    __slots__ = ("nodes", "rates", "running", "seconds")

    def __init__(self) -> None:
        #: nodes that have such a device
        self.nodes = 0
        #: mean seconds of functions
        self.seconds: dict[int, float] = {}
        self.running = Running()
        #: what instances of functions that have learned take, by function and by the bandwidth of the whole device
        self.rates: dict[tuple[int, float], SettledRate] = {}


class DeviceRecord:
    """A device with what is free on it; also the view of it that I/O schedulers get."""

    __slots__ = (
        "_load",
        "_load_at",
        "_touched",
        "common",
        "course",
        "doubts",
        "free_bandwidth",
        "full_until",
        "holders",
        "layer",
        "moves",
        "name",
        "node",
        "reserved",
        "running",
        "shadows",
        "shared",
        "stored",
    )

    def __init__(self, layer: StorageLayer, common: LayerRecord, touched: dict[NodeRecord, None]) -> None:
        self.layer = layer
        self.name = layer.name
        self.shared = layer.shared
        self.common = common
        #: whose it is; none if nodes share it
        self.node: NodeRecord | None = None
        #: where that is to be noted when something changes
        self._touched = touched
        self.free_bandwidth = layer.bandwidth
        #: bytes set aside for what attempts are writing
        self.reserved = 0
        #: bytes of finished files
        self.stored = 0
        #: it said that it is full, whatever our sums say; believed until then, or until something is deleted
        self.full_until = 0.0
        #: how often it said so since something on it was deleted
        self.doubts = 0
        #: attempts that hold bandwidth here
        self.holders: dict[int, IOTaskRecord] = {}
        #: segments of the store on their way to or from here, and the bandwidth that each holds
        self.moves: dict[int, float] = {}
        #: attempts times seconds that they held bandwidth here, up to some time
        self._load = self._load_at = 0.0
        self.running = Running()
        #: the learning phase that has the device to itself, or is about to
        self.course: Course | None = None
        #: if nodes share it: tasks that would learn on a lower layer if this one could not take them, one per kind
        self.shadows: dict[tuple[int, Requirements], IOTaskRecord] = {}

    @property
    def mount(self) -> str:
        return self.layer.mount

    @property
    def free_capacity(self) -> float:
        if self.full_until:
            return 0.0
        capacity = self.layer.capacity
        return inf if capacity is None else capacity - self.reserved - self.stored

    def touch(self) -> None:
        """Something changed that may let a task start here, or not."""
        if self.node is not None:
            self._touched[self.node] = None

    def oldest(self) -> Iterator[tuple[int, float]]:
        """Each function with attempts that hold bandwidth here, and when the first of these started."""
        return self.running.oldest()

    def seconds(self, function: int) -> float | None:
        """Mean measured time of a function on this layer, on whatever node."""
        return self.common.seconds.get(function)

    def learn(self, function: int, seconds: float) -> None:
        """An attempt took this long here."""
        means = self.common.seconds
        known = means.get(function)
        means[function] = seconds if known is None else known + _NEWEST * (seconds - known)

    def concurrency(self, task: IOTaskRecord, now: float) -> int:
        """How many attempts, on the average, held bandwidth here since a task took its own."""
        since, load = task.loaded
        return max(1, round((self._advance(now) - load) / (now - since))) if now > since else len(self.holders)

    def _advance(self, now: float) -> float:
        self._load += len(self.holders) * (now - self._load_at)
        self._load_at = now
        return self._load

    def take(self, task: IOTaskRecord, bandwidth: float, now: float) -> None:
        """Give an attempt bandwidth; its room was set aside before."""
        if bandwidth > self.free_bandwidth or task.task in self.holders:
            raise InternalError(f"task {task.task} cannot take {bandwidth} of {self.name}: {self.free_bandwidth} left")
        self.free_bandwidth -= bandwidth
        task.loaded = now, self._advance(now)
        self.holders[task.task] = task
        self.running.add(task)
        self.common.running.add(task)
        task.device = self
        task.bandwidth = bandwidth
        self.touch()

    def give_back(self, task: IOTaskRecord, now: float) -> None:
        """Take an attempt's bandwidth back, exactly."""
        self._advance(now)
        del self.holders[task.task]
        self.running.remove(task)
        self.common.running.remove(task)
        self.free_bandwidth += task.bandwidth
        task.device = None
        task.bandwidth = 0.0
        self.touch()

    def lend(self, segment: int, bandwidth: float) -> None:
        """Give the move of a segment bandwidth."""
        if bandwidth > self.free_bandwidth or segment in self.moves:
            raise InternalError(f"segment {segment} cannot take {bandwidth} of {self.name}: {self.free_bandwidth} left")
        self.free_bandwidth -= bandwidth
        self.moves[segment] = bandwidth
        self.touch()

    def settle(self, segment: int) -> None:
        """Take the bandwidth of a segment's move back, exactly."""
        self.free_bandwidth += self.moves.pop(segment)
        self.touch()

    def set_aside(self, task: IOTaskRecord) -> None:
        """Keep room for what an attempt will write."""
        task.room = self
        self.reserved += task.requirements.capacity
        self.touch()

    def release(self, task: IOTaskRecord) -> None:
        """An attempt is over: what it wrote, if anything, is counted by its size."""
        if task.room is self:
            self.reserved -= task.requirements.capacity
            task.room = None
            self.touch()

    def store(self, size: int) -> None:
        """A file fills this much."""
        self.stored += size
        self.touch()

    def remove(self, size: int) -> None:
        """A file is gone."""
        self.stored -= size
        self.full_until = 0.0
        self.doubts = 0
        self.touch()
