"""All that the engine may ask of its driver, in the order it is to be done."""

from __future__ import annotations

from msgspec import Struct

from penstock.model.data import SegmentId, Slot, TaskId, VersionId
from penstock.model.tasks import Failure, TaskCall

__all__ = ["Command", "Discard", "Free", "Kill", "Launch", "Publish", "Recall", "Settle"]


class Launch(Struct, frozen=True):
    """Run an attempt on a lane, after what was sent to that lane before."""

    task: TaskId
    attempt: int
    node: str
    lane: int
    call: TaskCall
    #: the content of each of the call's slots
    slots: tuple[Slot, ...] = ()
    #: slots whose segment the task may change in place: nobody else will read it
    in_place: tuple[int, ...] = ()
    #: finished files may take their final name at once: nobody still reads the version they replace
    publish: bool = True
    #: the buffers of ``args`` that the task changes may be changed in place
    args_in_place: bool = False


class Recall(Struct, frozen=True):
    """Take back whatever the lane has not started; answered by ``Recalled``."""

    node: str
    lane: int


class Kill(Struct, frozen=True):
    """End the process behind a lane; answered by ``WorkerLost``."""

    node: str
    lane: int


class Settle(Struct, frozen=True):
    """A version has come to exist, or never will: tell whoever waits in the program."""

    version: VersionId
    outcome: Slot | Failure


class Free(Struct, frozen=True):
    """Nobody can read this segment any more."""

    segment: SegmentId


class Publish(Struct, frozen=True):
    """Give a finished file its final name; those who read the old one are done."""

    version: VersionId
    source: str
    target: str


class Discard(Struct, frozen=True):
    """Remove a private copy of a file; everybody who read it is done."""

    path: str


Command = Launch | Recall | Kill | Settle | Free | Publish | Discard
