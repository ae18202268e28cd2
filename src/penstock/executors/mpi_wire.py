"""What the keeper of an MPI world and its ranks say to each other.

Every rank has a channel of its own to the keeper, which passes on to the node executor what concerns it. An output that
a rank hands over early is a message that workers send too.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from penstock.executors.wire import Define, Early, Frames, Logged, Run, Setup
from penstock.model.data import Slot
from penstock.model.outside import Outside
from penstock.model.tasks import Failure

__all__ = [
    "FromRank",
    "Hello",
    "Leaving",
    "RankDone",
    "RankError",
    "RankRun",
    "Unfit",
    "Welcome",
    "frames_from_rank",
    "frames_to_rank",
]


class Welcome(Struct, array_like=True, tag="w"):
    """The first that a process of the world is told; descriptors of standard output and error travel beside it."""

    setup: Setup
    #: rank r writes segments as number ``writer`` + 1 + r
    writer: int
    #: import path and arguments of the main program
    path: list[bytes]
    argv: list[str]
    #: the environment's own, which the way here has changed
    pythonpath: str | None


class RankRun(Struct, array_like=True, tag="r"):
    """An attempt to carry out together."""

    run: Run
    #: where outputs that are files are to be written, by position among the outputs
    files: dict[int, str]
    outside: Outside | None


class Hello(Struct, array_like=True, tag="h"):
    """A rank is there; ``size`` is that of its world."""

    rank: int
    size: int
    pid: int
    library: str


class RankDone(Struct, array_like=True, tag="d"):
    """The body returned in this rank."""

    outputs: list[Slot | None]
    seconds: float
    #: why the process should not run another task, if there is a reason
    spoilt: str


class RankError(Struct, array_like=True, tag="e"):
    """The body did not return in this rank, or what it returned cannot be sent."""

    failure: Failure
    seconds: float


class Unfit(Struct, array_like=True, tag="u"):
    """The rank will not take the attempt, because of what the task before left."""

    reason: str


class Leaving(Struct, array_like=True, tag="x"):
    """The task is about to end the process of this rank."""

    words: str
    traceback: str


ToRank = Welcome | Define | RankRun
FromRank = Hello | Early | Logged | RankDone | RankError | Unfit | Leaving


def frames_to_rank() -> Frames[ToRank]:
    """For the rank's end."""
    return Frames(msgspec.msgpack.Decoder(ToRank))


def frames_from_rank() -> Frames[FromRank]:
    """For the keeper's end."""
    return Frames(msgspec.msgpack.Decoder(FromRank))
