"""What was learned: for each constraint that was tried, how long a task took. Plain values, also the form on disk."""

from __future__ import annotations

from msgspec import Struct

from penstock.model.resources import Auto

__all__ = ["Learned", "Measure"]


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


class Learned(Struct, frozen=True):
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
