"""What was learned, as plain values, which are also the form on disk: what devices deliver, and what epochs found."""

from __future__ import annotations

from msgspec import Struct

from penstock.model.resources import Auto

__all__ = ["Delivered", "Delivery", "Learned", "Measure"]


class Measure(Struct, frozen=True):
    """One closed epoch."""

    #: bytes per second that each task reserved
    constraint: float
    #: mean time of the tasks that succeeded
    seconds: float
    #: tasks that ran at the same time, on one node
    concurrency: int
    #: successful tasks
    tasks: int
    #: closed before it was full, because no more tasks could come
    partial: bool = False


class Learned(Struct, frozen=True, tag="epochs"):
    """All that is known of one function on one layer, and under which circumstances it was found."""

    function: str
    layer: str
    #: bytes per second of the device
    bandwidth: float
    #: I/O tasks that a node runs at a time
    executors: int
    auto: Auto
    #: by rising constraint
    measures: tuple[Measure, ...]
    #: bytes per second above which nothing was tried
    ceiling: float | None = None


class Delivered(Struct, frozen=True):
    """What a device delivered to so many attempts at a time."""

    concurrency: int
    #: bytes per second, of all of them
    rate: float
    #: standard error, as a part of that
    error: float


class Delivery(Struct, frozen=True, tag="delivery"):
    """What a layer delivers to one kind of access, and where the search for the best had ended."""

    #: the kind of access
    function: str
    layer: str
    #: bytes per second of the device, as described
    bandwidth: float
    #: I/O tasks that a node runs at a time
    executors: int
    #: attempts at a time that were best
    best: int
    #: by rising concurrency
    curve: tuple[Delivered, ...]
    #: the flow of bytes could be read while attempts ran
    steady: bool
    #: how measurements at the best differed from each other, as a part of them
    spread: float
    #: attempts that ended
    attempts: int
