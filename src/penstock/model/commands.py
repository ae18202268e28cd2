"""All that the engine may ask of its driver, in the order it is to be done."""

from __future__ import annotations

from msgspec import Struct

from penstock.model.data import SegmentId, Slot, TaskId, VersionId
from penstock.model.tasks import Failure, TaskCall

__all__ = [
    "AT_A_TIME",
    "Command",
    "Discard",
    "Divert",
    "DropState",
    "Free",
    "HoldStates",
    "Kill",
    "Launch",
    "Move",
    "Publish",
    "Recall",
    "Restore",
    "Sample",
    "Settle",
    "Spill",
    "Warm",
]


# There may be millions of these, and they hold no cycles: keep them out of the garbage collector's rounds.
class Launch(Struct, frozen=True, gc=False):
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
    #: the storage layer whose bandwidth the attempt holds
    layer: str = ""
    #: bytes per second that it holds there
    bandwidth: float = 0.0
    #: which of the call's outputs are files to be written on that layer instead of beside their name
    redirected: tuple[int, ...] = ()
    #: for a gang: how many of its processes run on which nodes; the first is the node of the lane
    hosts: tuple[tuple[str, int], ...] = ()
    #: outputs that an earlier attempt handed over before it ended: they stay as they are
    delivered: tuple[int, ...] = ()
    #: which of the node's GPUs the attempt holds, by their place among them
    gpus: tuple[int, ...] = ()


class Recall(Struct, frozen=True):
    """Take back whatever the lane has not started; answered by ``Recalled``."""

    node: str
    lane: int


class Kill(Struct, frozen=True):
    """End the process behind a lane; answered by ``WorkerLost``."""

    node: str
    lane: int
    #: a task that may end by itself before that, because its body can be asked to; 0 if there is none
    ask: TaskId = 0


class Warm(Struct, frozen=True):
    """This many I/O executors of a node will soon be needed at once; answered by ``Warmed`` when they are there."""

    node: str
    executors: int


class Sample(Struct, frozen=True):
    """How many bytes have attempts on this layer of a node transferred so far? Answered by ``Sampled``."""

    node: str
    layer: str


class Claim(Struct, frozen=True):
    """Something wants to use a layer that is shared with other programs. Answered by ``BudgetChanged``."""

    layer: str


class Settle(Struct, frozen=True):
    """A version has come to exist, or never will: tell whoever waits in the program."""

    #: 0 for the failure of a task that had handed over all its outputs before: nobody waits, but it must be known
    version: VersionId
    outcome: Slot | Failure


class Free(Struct, frozen=True):
    """Nobody can read this segment any more."""

    segment: SegmentId
    #: bytes, where the store is limited
    size: int = 0
    #: it takes room on a storage layer: answer with ``Discarded`` once it is gone
    tell: bool = False


#: segments that are asked to move at a time, in each direction: one alone leaves a device idle while its end is dealt
#: with
AT_A_TIME = 2


class Spill(Struct, frozen=True):
    """Move a segment from memory to disk; answered by ``Spilled``."""

    segment: SegmentId
    #: the storage layer to go to; empty: the run's own place
    layer: str
    size: int


class Restore(Struct, frozen=True):
    """Move a segment from disk to memory; answered by ``Restored``."""

    segment: SegmentId
    #: the storage layer that it is on; empty: the run's own place
    layer: str
    size: int


class Divert(Struct, frozen=True):
    """From now on new segments are written to disk, or to memory again."""

    to_disk: bool


class HoldStates(Struct, frozen=True):
    """Versions refer to states of persistent objects from now on: the store must know that this run lives."""


class DropState(Struct, frozen=True):
    """No version refers to this state of a persistent object any more; unless it is the newest, it may go."""

    state: str


class Publish(Struct, frozen=True):
    """Give a finished file its final name; those who read the old one are done."""

    version: VersionId
    source: str
    target: str
    #: the file stays where it is, on a storage layer, and its name becomes a link to it
    link: bool = False
    #: the task has synced the file: so must be the folder with its name
    synced: bool = False


class Move(Struct, frozen=True):
    """Copy a file from its layer to another, or to its name; answered by ``Moved``. The source stays."""

    version: VersionId
    source: str
    #: the layer to go to; empty: home, where its name is
    layer: str
    #: the file's name
    name: str
    #: it is of use during the run only
    temp: bool
    #: its name was made a link to it; if it is no more, the program has changed that
    linked: bool = True


class Discard(Struct, frozen=True):
    """Remove a private copy of a file; everybody who read it is done."""

    path: str
    #: it takes room on a storage layer: answer with ``Discarded`` once it is gone
    tell: bool = False


Command = (
    Launch
    | Recall
    | Kill
    | Warm
    | Sample
    | Claim
    | Settle
    | Free
    | Spill
    | Restore
    | Divert
    | HoldStates
    | DropState
    | Publish
    | Move
    | Discard
)
