"""What an attempt does when its turn comes: told to the executor by whoever knows, a workload, a log or a program."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

from msgspec import Struct

from penstock.errors import ConfigError
from penstock.model.commands import Launch
from penstock.model.tasks import Failure

__all__ = ["NO_COSTS", "Costs", "Work", "WorkOf"]


class Work(Struct, frozen=True, gc=False):
    """One attempt: it gets its data, computes, then writes; a failure shows at its end."""

    #: of computing
    seconds: float = 0.0
    #: bytes of each of the call's ``outputs``, files and updated objects alike; empty if none has any
    sizes: tuple[int, ...] = ()
    #: bytes of its return values, all together
    makes: int = 0
    #: further bytes that it transfers on the layer it is placed on
    traffic: int = 0
    failure: Failure | None = None
    #: seconds after it began to compute at which each of its return values is handed over; empty: all at its end
    ready: tuple[float, ...] = ()


#: asked once for each attempt, when it starts
WorkOf = Callable[[Launch], Work]


class Costs(Struct, frozen=True):
    """Seconds that executors need besides the tasks themselves. They are no part of how long an attempt ran."""

    #: until a worker process takes tasks: from its node's joining for computing, from the first attempt for I/O
    start: float = 0.0
    #: between two processes that a node starts: they come one after the other
    each: float = 0.0
    #: between the launch on an idle lane and the body's begin
    first: float = 0.0
    #: between two bodies on a lane, the second having waited behind the first
    next: float = 0.0
    #: between a body's end and the news of it; the lane goes on meanwhile
    told: float = 0.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            seconds = getattr(self, name)
            if not (seconds >= 0 and isfinite(seconds)):
                raise ConfigError(f"costs of executors: {name}={seconds}; it must be finite, zero or above")


NO_COSTS = Costs()
