"""The records of the event log, one class per kind of event; docs/event-log.md describes them to users.

``t`` is always seconds since the start of the run, on a clock that never jumps. A record is written as one JSON
object whose ``event`` is the class name in snake case. New fields must have a default, so that old logs stay readable.
"""

from __future__ import annotations

from msgspec import Struct

__all__ = [
    "Cancelled",
    "ConstraintChosen",
    "ConstraintDrifted",
    "Device",
    "Draining",
    "Dropped",
    "EpochEnded",
    "Failed",
    "Finished",
    "Freed",
    "Launched",
    "Layer",
    "Moved",
    "Published",
    "Recalled",
    "Record",
    "RunEnded",
    "RunStarted",
    "Submitted",
    "WorkerDied",
    "WorkerEnded",
    "WorkerStarted",
]


def _snake_case(name: str) -> str:
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name).lstrip("_")


# Records hold no cycles and there may be millions: keep them out of the garbage collector's rounds.
class _Base(Struct, tag_field="event", tag=_snake_case, gc=False, omit_defaults=True):
    t: float


class Layer(Struct, omit_defaults=True):
    """A storage layer of the run, fastest first."""

    name: str
    mount: str
    #: bytes per second
    bandwidth: float
    #: bytes; None is without limit
    capacity: int | None = None
    shared: bool = False


class RunStarted(_Base):
    """The first record of a run."""

    #: seconds since 1970, to place the run in the calendar
    wall: float
    version: str
    argv: list[str]
    cpus: int
    memory: int
    node: str
    scheduler: str
    io_executors: int = 0
    io_scheduler: str = ""
    storage: list[Layer] = []


class Submitted(_Base):
    """The program called a task, or a whole array of calls of it."""

    task: int
    name: str
    #: calls in this record: 1, or the length of a piece of a map
    count: int
    #: versions it waits for
    reads: list[int]
    #: versions it makes
    writes: list[int]
    #: computing units that an attempt holds
    cpus: int = 1
    #: it is an I/O task
    io: bool = False
    #: the bandwidth it takes is learned
    learned: bool = False


class Launched(_Base):
    """An attempt was sent to a lane, where it runs after those sent there before."""

    task: int
    attempt: int
    node: str
    lane: int
    #: for I/O tasks: the storage layer, and the bytes per second taken of it
    layer: str = ""
    bandwidth: float = 0.0


class Finished(_Base):
    """An attempt delivered its outputs."""

    task: int
    attempt: int
    node: str
    lane: int
    #: how long the body ran
    seconds: float
    #: size of the outputs
    bytes: int
    #: for I/O tasks: the storage layer, whose bandwidth is given back
    layer: str = ""


class Failed(_Base):
    """An attempt ended without delivering, or a task cannot be tried because one it needs failed."""

    task: int
    attempt: int
    node: str
    lane: int
    kind: str
    message: str
    #: there will be no further attempt
    final: bool


class Cancelled(_Base):
    """A task will not run, or was stopped, because somebody said so."""

    task: int


class Recalled(_Base):
    """An attempt was taken back from its lane before it started."""

    task: int


class WorkerStarted(_Base):
    """A process serves a lane."""

    node: str
    lane: int
    pid: int


class WorkerEnded(_Base):
    """A process of the I/O pool was idle for long and ended."""

    node: str
    lane: int
    pid: int


class WorkerDied(_Base):
    """The process behind a lane ended."""

    node: str
    lane: int
    pid: int
    #: exit status, or minus the number of the signal
    status: int


class Published(_Base):
    """A finished file got its final name."""

    version: int
    path: str


class Device(_Base):
    """Bandwidth of a storage device was taken or given back: how it stands now."""

    node: str
    layer: str
    #: bytes per second taken
    used: float
    #: attempts that hold some
    running: int
    #: ready I/O tasks that wait for this or another device
    waiting: int
    #: bytes of finished files
    stored: int = 0


class EpochEnded(_Base):
    """An epoch of a learning phase closed: the mean time at one value of the constraint is known."""

    name: str
    layer: str
    node: str
    #: bytes per second
    constraint: float
    seconds: float
    concurrency: int
    tasks: int
    partial: bool = False
    registered: bool = True


class ConstraintChosen(_Base):
    """The value that a learned constraint has from now on."""

    name: str
    layer: str
    #: bytes per second
    constraint: float
    concurrency: int
    seconds: float
    remembered: bool = False


class ConstraintDrifted(_Base):
    """Attempts take another time than was learned: learning begins anew."""

    name: str
    layer: str
    ratio: float


class Moved(_Base):
    """A file was moved to another layer, or home (an empty layer)."""

    version: int
    path: str
    source: str
    layer: str
    bytes: int
    seconds: float
    error: str = ""


class Draining(_Base):
    """The tasks are over, and files that lie on layers are brought to their own names."""

    files: int
    bytes: int


class Freed(_Base):
    """Nobody can read a segment of the store any more; it was deleted."""

    segment: int
    bytes: int


class Dropped(_Base):
    """The disk could not keep up: this many records are missing before this one."""

    records: int


class RunEnded(_Base):
    """The last record of a run that came to its end."""

    ok: bool
    done: int
    failed: int
    cancelled: int


Record = (
    RunStarted
    | Submitted
    | Launched
    | Finished
    | Failed
    | Cancelled
    | Recalled
    | WorkerStarted
    | WorkerDied
    | WorkerEnded
    | Published
    | Device
    | EpochEnded
    | ConstraintChosen
    | ConstraintDrifted
    | Moved
    | Draining
    | Freed
    | Dropped
    | RunEnded
)
