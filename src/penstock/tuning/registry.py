"""What was learned, as plain values, which are also the form on disk: what devices deliver, and what epochs found.

A value that no run can have seen raises a ValueError: the file was damaged, or edited, and none of it is believed.
"""

from __future__ import annotations

from msgspec import Struct

from penstock.model.resources import Auto

__all__ = ["Delivered", "Delivery", "Learned", "Measure"]

#: more than any count, rate or time there is, and so little that it can be squared
_BEYOND = 1e30


def _check(believed: bool, what: object) -> None:
    if not believed:
        raise ValueError(f"{what} cannot have been measured")


def _are_amounts(*values: float) -> bool:
    return all(0 < value < _BEYOND for value in values)


def _are_parts(*values: float) -> bool:
    """Whether they may be errors, or times: zero will do."""
    return all(0 <= value < _BEYOND for value in values)


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

    def __post_init__(self) -> None:
        _check(_are_amounts(self.constraint, self.concurrency, self.tasks) and _are_parts(self.seconds), self)


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

    def __post_init__(self) -> None:
        sound = _are_amounts(self.bandwidth, self.executors) and (self.ceiling is None or self.ceiling > 0)
        bounds = self.auto
        if bounds.delta:
            sound = sound and _are_amounts(bounds.least, bounds.most, bounds.delta - 1) and bounds.least <= bounds.most
        _check(sound, f"{self.function!r} on {self.layer!r}")


class Delivered(Struct, frozen=True):
    """What a device delivered to so many attempts at a time."""

    concurrency: int
    #: bytes per second, of all of them
    rate: float
    #: standard error, as a part of that
    error: float

    def __post_init__(self) -> None:
        _check(_are_amounts(self.concurrency, self.rate) and _are_parts(self.error), self)


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

    def __post_init__(self) -> None:
        sound = _are_amounts(self.bandwidth, self.executors, self.best, self.attempts) and _are_parts(self.spread)
        _check(sound and bool(self.curve), f"{self.function!r} on {self.layer!r}")
