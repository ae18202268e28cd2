"""Storage devices as the ledger sees them: bandwidth and room, who holds them, how long functions take there.

Bandwidth and the room for what is being written belong to attempts and are given back exactly. Room that finished
files fill stays taken until they are moved or deleted; it is measured, so it can exceed what was declared.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING

from penstock.errors import InternalError
from penstock.model.resources import StorageLayer

if TYPE_CHECKING:
    from penstock.engine.learning import Course
    from penstock.engine.state import IOTaskRecord

__all__ = ["DeviceRecord"]

#: weight of the newest duration in a function's mean
_NEWEST = 0.2


class DeviceRecord:
    """A device with what is free on it; also the view of it that I/O schedulers get."""

    __slots__ = (
        "_seconds",
        "course",
        "doubts",
        "free_bandwidth",
        "full_until",
        "holders",
        "layer",
        "name",
        "reserved",
        "stored",
    )

    def __init__(self, layer: StorageLayer) -> None:
        self.layer = layer
        self.name = layer.name
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
        #: the learning phase that has the device to itself, or is about to
        self.course: Course | None = None
        #: mean seconds of functions here
        self._seconds: dict[int, float] = {}

    @property
    def mount(self) -> str:
        return self.layer.mount

    @property
    def free_capacity(self) -> float:
        if self.full_until:
            return 0.0
        capacity = self.layer.capacity
        return inf if capacity is None else capacity - self.reserved - self.stored

    def running(self) -> Iterator[tuple[int, float]]:
        """Function and start time of every attempt that holds bandwidth here."""
        return ((task.function, task.started) for task in self.holders.values())

    def seconds(self, function: int) -> float | None:
        """Mean measured time of a function here."""
        return self._seconds.get(function)

    def learn(self, function: int, seconds: float) -> None:
        """An attempt took this long here."""
        known = self._seconds.get(function)
        self._seconds[function] = seconds if known is None else known + _NEWEST * (seconds - known)

    def take(self, task: IOTaskRecord, bandwidth: float) -> None:
        """Give an attempt bandwidth; its room was set aside before."""
        if bandwidth > self.free_bandwidth or task.task in self.holders:
            raise InternalError(f"task {task.task} cannot take {bandwidth} of {self.name}: {self.free_bandwidth} left")
        self.free_bandwidth -= bandwidth
        self.holders[task.task] = task
        task.device = self
        task.bandwidth = bandwidth

    def give_back(self, task: IOTaskRecord) -> None:
        """Take an attempt's bandwidth back, exactly."""
        del self.holders[task.task]
        self.free_bandwidth += task.bandwidth
        task.device = None
        task.bandwidth = 0.0

    def set_aside(self, task: IOTaskRecord) -> None:
        """Keep room for what an attempt will write."""
        task.room = self
        self.reserved += task.requirements.capacity

    def release(self, task: IOTaskRecord) -> None:
        """An attempt is over: what it wrote, if anything, is counted by its size."""
        if task.room is self:
            self.reserved -= task.requirements.capacity
            task.room = None

    def store(self, size: int) -> None:
        """A file fills this much."""
        self.stored += size

    def remove(self, size: int) -> None:
        """A file is gone."""
        self.stored -= size
        self.full_until = 0.0
        self.doubts = 0
