"""What I/O schedulers may see of I/O tasks, nodes and storage devices, and what they answer. Read-only.

The engine's own records are these views. What a task would have to take of a device is not in them: it may be
learned while the program runs, so the engine is asked for it at each decision (``Demand``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from penstock.scheduling.view import ReadyTask

__all__ = ["Demand", "DeviceView", "IONodeView", "IOTask", "Placement"]


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

    #: bytes per second
    @property
    def free_bandwidth(self) -> float: ...

    #: bytes; zero or less when it is full
    @property
    def free_capacity(self) -> float: ...

    def running(self) -> Iterable[tuple[int, float]]:
        """Function and start time of every attempt that holds bandwidth here."""
        ...

    def seconds(self, function: int) -> float | None:
        """Mean measured time of a function here."""
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


#: Bytes per second that the task would have to take there now, or ``None`` if it may not start there, however much is
#: free. Without a device: the same for a task that says nothing of storage, where any number will do. The answer may
#: depend on no more of the task than its function, requirements and anchor.
Demand: TypeAlias = Callable[[IOTask, IONodeView, DeviceView | None], float | None]


class Placement(NamedTuple):
    """A task that is to be launched now, where, and what it takes."""

    task: IOTask
    node: IONodeView
    #: ``None`` for a task that says nothing of storage
    device: DeviceView | None
    #: bytes per second
    bandwidth: float
