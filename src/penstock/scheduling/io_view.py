"""What I/O schedulers may see of I/O tasks, nodes and storage devices, and what they answer. Read-only.

The engine's own records are these views. What a task would have to take of a device is not in them: it may be
learned while the program runs, so the engine is asked for it (``StorageView.demand``), and says when its answers have
changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from penstock.scheduling.view import ReadyTask

__all__ = ["DeviceView", "IONodeView", "IOTask", "Placement", "Rate", "StorageView", "bytes_per_second"]


#: Bytes per second: a number, or what gives the number that holds now. The latter may give another each time it is
#: called, without anybody being told.
Rate: TypeAlias = float | Callable[[], float]


def bytes_per_second(rate: Rate) -> float:
    return rate() if callable(rate) else rate


class IOTask(ReadyTask, Protocol):
    """An I/O task whose data exist and that wants a place. None of this changes while it is in the ready set."""

    #: number of its function: how long tasks take is known by function
    @property
    def function(self) -> int: ...

    @property
    def ready_since(self) -> float: ...

    #: name of the only layer it can use, because it reads a file there; empty for any
    @property
    def anchor(self) -> str: ...


class DeviceView(Protocol):
    """A storage device as a node sees it. A device that nodes share is one object in all of them."""

    #: name of its layer
    @property
    def name(self) -> str: ...

    #: other nodes may have it too; then no node counts as changed when the device does
    @property
    def shared(self) -> bool: ...

    #: bytes per second
    @property
    def free_bandwidth(self) -> float: ...

    #: bytes; zero or less when it is full
    @property
    def free_capacity(self) -> float: ...

    def oldest(self) -> Iterable[tuple[int, float]]:
        """Each function that has attempts here which hold bandwidth, and when the first of these started."""
        ...

    def seconds(self, function: int) -> float | None:
        """Mean measured time of a function; the same for all devices that are called like this one."""
        ...


class IONodeView(Protocol):
    """A node as an I/O scheduler sees it."""

    @property
    def name(self) -> str: ...

    #: order in which nodes joined; unique
    @property
    def index(self) -> int: ...

    #: it has an idle I/O executor
    @property
    def io_open(self) -> bool: ...

    #: fastest first
    @property
    def devices(self) -> Sequence[DeviceView]: ...


class StorageView(Protocol):
    """What is known of the storage as a whole, and what tasks would have to take of it."""

    def demand(self, task: IOTask, node: IONodeView, device: DeviceView | None) -> Rate | None:
        """What the task would have to take there, or ``None`` if it may not start there, however much is free.

        Without a device: the same for a task that says nothing of storage, where any number will do. The answer
        depends on no more of the task than its function, requirements and anchor. It holds until the node changes, or
        until the ready set is told that demands have changed. A task that declares its bandwidth takes that or nothing.
        """
        ...

    def oldest(self) -> Iterable[tuple[float | None, float]]:
        """For each layer and each function with attempts there: its mean time, if known, and the first one's start."""
        ...


class Placement(NamedTuple):
    """A task that is to be launched now, where, and what it takes."""

    task: IOTask
    node: IONodeView
    #: ``None`` for a task that says nothing of storage
    device: DeviceView | None
    #: bytes per second
    bandwidth: float
