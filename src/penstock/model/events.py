"""All that can happen: what a driver tells the engine. Handled by ``Engine.handle(event, now)``.
It is long because each of them is explained here, and so is what the engine says for the log.
"""

from __future__ import annotations

from math import inf

from msgspec import Struct

from penstock.model.data import SegmentId, Slot, TaskId, VersionId
from penstock.model.resources import Node
from penstock.model.tasks import Failure, TaskCall

__all__ = [
    "BudgetChanged",
    "CancelRequested",
    "ConstraintChosen",
    "ConstraintDrifted",
    "DeliveryChanged",
    "DeliveryMeasured",
    "Discarded",
    "Draining",
    "EpochEnded",
    "Event",
    "Failed",
    "FileDropped",
    "Finished",
    "HomeWanted",
    "LayerShared",
    "LeftMeasured",
    "LimitSettled",
    "Lost",
    "Moved",
    "NodeJoined",
    "NodeLost",
    "Note",
    "OutputReady",
    "Provided",
    "Published",
    "Recalled",
    "Released",
    "Report",
    "Restored",
    "Reverted",
    "RunAgain",
    "Sampled",
    "SegmentMade",
    "SegmentReleased",
    "SegmentsLost",
    "Spilled",
    "Submitted",
    "Ticked",
    "Warmed",
    "WorkerLost",
]


class NodeJoined(Struct, frozen=True):
    """A machine is ready to run tasks; it has one lane per computing unit."""

    node: Node


class NodeLost(Struct, frozen=True):
    """A machine is gone, with everything that ran there."""

    name: str


# There may be millions of these, and they hold no cycles: keep them out of the garbage collector's rounds.
class Submitted(Struct, frozen=True, gc=False):
    """The program called a task."""

    call: TaskCall
    #: versions that the program lets go, since the call supersedes them or their futures are gone: only those who read
    #: them already still can
    released: tuple[VersionId, ...] = ()
    #: seconds before it may start: the call stands for a further attempt of one that failed
    pause: float = 0.0
    #: versions that the call makes, and what each replaces should it fail: another version, or 0 for what the program
    #: itself has
    replaces: tuple[tuple[VersionId, VersionId], ...] = ()


class Finished(Struct, frozen=True, gc=False):
    """An attempt delivered all outputs that were not delivered early."""

    task: TaskId
    attempt: int
    #: what each of the call's ``writes`` holds; ``None`` for an output delivered early or changed in no way
    outputs: list[Slot | None]
    #: how long the body ran
    seconds: float


class OutputReady(Struct, frozen=True, gc=False):
    """A running attempt handed over one output before its end."""

    task: TaskId
    attempt: int
    #: which of the call's ``writes``; beyond them, the outputs of a task that has any number of them
    index: int
    value: Slot
    #: for an output beyond the call's ``writes``: the version that it is
    version: VersionId = 0


class Failed(Struct, frozen=True):
    """An attempt ended without delivering."""

    task: TaskId
    attempt: int
    failure: Failure
    seconds: float


class Recalled(Struct, frozen=True):
    """Queued attempts were taken back from a lane before they started."""

    node: str
    lane: int
    tasks: tuple[TaskId, ...]


class WorkerLost(Struct, frozen=True):
    """The process behind a lane ended; attempts that it had not started were taken back before this."""

    node: str
    lane: int
    #: what became of it, in words: the signal or exit status
    reason: str
    #: the lane will be served by a new process
    replaced: bool = True
    #: last lines it wrote
    output: str = ""
    #: number of the process, by which its segments are known
    worker: int = 0
    #: how many processes it had started for an MPI task, which are known by the numbers that follow
    ranks: int = 0
    #: private folders of an attempt that it had delivered, and not cleared up after
    left: tuple[str, ...] = ()


class Warmed(Struct, frozen=True):
    """The I/O executors asked for by ``Warm`` take tasks, as far as they could be started."""

    node: str


class Sampled(Struct, frozen=True):
    """The bytes that attempts on this layer of a node have transferred, all together, ever; None: nobody can tell."""

    node: str
    layer: str
    delivered: float | None
    #: the process of one of them does not take tasks yet
    starting: bool = False


class CancelRequested(Struct, frozen=True):
    """The program gave a task up."""

    task: TaskId
    #: also when it runs already
    kill: bool


class Provided(Struct, frozen=True):
    """The program itself made a version: a shared object, one element of a map, or the failure to make one.

    None promises a version that will be provided later.
    """

    version: VersionId
    value: Slot | Failure | None
    #: for an object that is in a store: how many bytes of it lie on which nodes
    bytes_at: dict[str, int] | None = None


class Released(Struct, frozen=True):
    """The program let go of versions: their futures are gone, or newer versions took their places."""

    versions: tuple[VersionId, ...]


class Reverted(Struct, frozen=True):
    """The program knows that a version failed, and goes on with what that was to replace."""

    version: VersionId


class Published(Struct, frozen=True):
    """A file asked for by ``Publish`` bears its name, or could not be given it and stays where it is."""

    version: VersionId
    #: where the version is now
    path: str


class Moved(Struct, frozen=True):
    """A file asked for by ``Move`` is complete and durable at ``path``, or could not be moved and is where it was."""

    version: VersionId
    path: str
    #: why it could not be moved, in words
    error: str = ""
    #: the program has taken its name away: it is where it was, and nothing that we know of leads to it
    astray: bool = False


class Discarded(Struct, frozen=True):
    """A copy that took room on a layer is gone."""

    path: str


class HomeWanted(Struct, frozen=True):
    """The program wants to change a file itself: it must be where its name is."""

    name: str


class FileDropped(Struct, frozen=True):
    """The program deletes a file that nobody uses any more."""

    name: str


class Draining(Struct, frozen=True):
    """The run is over: start nothing more, and bring everything permanent home."""


class SegmentMade(Struct, frozen=True):
    """The program stored large buffers; it holds them until it says ``SegmentReleased``."""

    segment: SegmentId
    size: int
    #: they lie on disk
    spilled: bool = False


class SegmentReleased(Struct, frozen=True):
    """The program no longer holds a segment."""

    segment: SegmentId


class SegmentsLost(Struct, frozen=True):
    """Segments are gone, or hold other bytes than were written."""

    segments: tuple[SegmentId, ...]
    #: what is wrong with which file, in words
    why: str


class Lost(Struct, frozen=True):
    """Not for the engine but of it, for the log: the content of a version was lost."""

    version: VersionId
    #: the task that made it; 0 if that is not known
    task: TaskId
    why: str
    #: it is computed again; if not, it has failed
    again: bool


class RunAgain(Struct, frozen=True):
    """Not for the engine but of it, for the log: a task that had delivered is run again, since data were lost."""

    call: TaskCall


class Spilled(Struct, frozen=True):
    """A segment asked for by ``Spill`` is complete on disk and not in memory any more, or is where it was."""

    segment: SegmentId
    #: why it could not be moved, in words
    error: str = ""
    #: it is nowhere
    lost: bool = False


class Restored(Struct, frozen=True):
    """A segment asked for by ``Restore`` is in memory and not on disk any more, or is where it was."""

    segment: SegmentId
    #: why it could not be moved, in words
    error: str = ""
    #: it is nowhere, or its bytes are not those that were written
    lost: bool = False


class LeftMeasured(Struct, frozen=True):
    """What earlier runs have left on a layer takes this much now: somebody brings it home, or removes it."""

    layer: str
    #: bytes
    taken: int


class BudgetChanged(Struct, frozen=True):
    """What this program has of a layer that it shares with other programs. Of a layer of which this was never said it
    has all.
    """

    layer: str
    #: bytes per second that its attempts may hold together
    bandwidth: float
    #: bytes that its files may fill; None: as many as there is room for
    room: int | None = None
    #: when it ends unless it is said anew
    until: float = inf
    #: how many others want some of it too
    others: int = 0
    #: nothing is had of it before it is asked for (``Claim``)
    closed: bool = False


class Report(Struct, frozen=True):
    """Not for the engine but of it, for the log: an attempt or a task ended without delivering."""

    task: TaskId
    attempt: int
    node: str
    failure: Failure
    #: there will be no further attempt
    final: bool


class EpochEnded(Struct, frozen=True):
    """Not for the engine but of it: an epoch of a learning phase closed."""

    function: str
    layer: str
    node: str
    #: bytes per second that each attempt held
    constraint: float
    #: mean time of its attempts
    seconds: float
    #: attempts at a time
    concurrency: int
    tasks: int
    #: it closed before it was full, because no more instances came
    partial: bool
    #: it counts; the one that ends unbounded learning does not
    registered: bool


class ConstraintChosen(Struct, frozen=True):
    """Not for the engine but of it: the value that a learned constraint has from now on."""

    function: str
    layer: str
    constraint: float
    #: attempts at a time that it admits on one node
    concurrency: int
    #: mean time of an attempt, as registered
    seconds: float
    #: it is the first value in this run
    first: bool
    #: it was learned by an earlier run
    remembered: bool


class ConstraintDrifted(Struct, frozen=True):
    """Not for the engine but of it: attempts take another time than was learned, so it is learned anew."""

    function: str
    layer: str
    #: measured time divided by the expected one
    ratio: float


class DeliveryMeasured(Struct, frozen=True):
    """Not for the engine but of it: what a device delivered while so many attempts ran."""

    layer: str
    node: str
    #: attempts at a time
    concurrency: int
    #: bytes per second, of all of them
    delivered: float
    #: standard error, as a part of that
    error: float


class LimitSettled(Struct, frozen=True):
    """Not for the engine but of it: so many attempts at a time were found to get most from a device."""

    layer: str
    node: str
    #: functions whose constraint follows from it
    functions: tuple[str, ...]
    concurrency: int
    #: bytes per second, of all of them
    delivered: float
    #: bytes per second that each reserves
    constraint: float
    #: the next best of those that were tried, and what it delivered; 0 if no other was
    other: int = 0
    other_delivered: float = 0.0
    #: it is where an earlier run had ended
    remembered: bool = False


class DeliveryChanged(Struct, frozen=True):
    """Not for the engine but of it: a device delivers otherwise than it did, so other numbers are tried again."""

    layer: str
    node: str
    concurrency: int
    #: bytes per second
    before: float
    delivered: float


class LayerShared(Struct, frozen=True):
    """Not for the engine but of it: other programs use a layer too, or do not any more."""

    layer: str
    #: how many
    others: int
    #: bytes per second that this program may hold of it from now on
    bandwidth: float


#: what others than the control thread did, and say when it is done
Reported = Published | Moved | Discarded | Spilled | Restored | LeftMeasured | BudgetChanged

Note = (
    EpochEnded | ConstraintChosen | ConstraintDrifted | DeliveryMeasured | LimitSettled | DeliveryChanged | LayerShared
)


class Ticked(Struct, frozen=True):
    """Time passed: deadlines and slow lanes are looked at."""


Event = (
    NodeJoined
    | NodeLost
    | Submitted
    | Finished
    | OutputReady
    | Failed
    | Recalled
    | WorkerLost
    | Warmed
    | Sampled
    | CancelRequested
    | Provided
    | Released
    | Reverted
    | Published
    | Moved
    | Discarded
    | HomeWanted
    | FileDropped
    | Draining
    | SegmentMade
    | SegmentReleased
    | Spilled
    | Restored
    | SegmentsLost
    | LeftMeasured
    | BudgetChanged
    | Ticked
)
