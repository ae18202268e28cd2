"""The records of the event log, one class per kind of event; docs/event-log.md describes them to users.
It is long because there are many.

``t`` is always seconds since the start of the run, on a clock that never jumps. A record is written as one JSON
object whose ``event`` is the class name in snake case. New fields must have a default, so that old logs stay readable.
"""

from __future__ import annotations

from msgspec import Struct, field

from penstock.model.resources import Auto
from penstock.observe.event import Event
from penstock.observe.storage_records import (
    ConstraintChosen,
    ConstraintDrifted,
    DeliveryChanged,
    DeliveryMeasured,
    Device,
    Draining,
    EpochEnded,
    Freed,
    LayerShared,
    LimitSettled,
    Moved,
    Restored,
    Spilled,
)
from penstock.observe.stream_records import (
    EdgeFlowed,
    FileBorn,
    FileCommitted,
    FileDelivered,
    Stalled,
    StepEnded,
    StepStarted,
    Warned,
)
from penstock.observe.world_records import RankFailed, WorldEnded, WorldStarted

__all__ = [
    "Cancelled",
    "ConstraintChosen",
    "ConstraintDrifted",
    "Declared",
    "DeliveryChanged",
    "DeliveryMeasured",
    "Device",
    "Draining",
    "Dropped",
    "EdgeFlowed",
    "EpochEnded",
    "Failed",
    "Fetched",
    "FileBorn",
    "FileCommitted",
    "FileDelivered",
    "Finished",
    "Freed",
    "Launched",
    "Layer",
    "LayerShared",
    "LimitSettled",
    "Lost",
    "Moved",
    "NodeJoined",
    "NodeLost",
    "Output",
    "Published",
    "RankFailed",
    "Recalled",
    "Record",
    "Restored",
    "RunEnded",
    "RunStarted",
    "Spilled",
    "Stalled",
    "StepEnded",
    "StepStarted",
    "Stuck",
    "Submitted",
    "Waited",
    "Warned",
    "WorkerDied",
    "WorkerEnded",
    "WorkerStarted",
    "WorldEnded",
    "WorldStarted",
]


class Layer(Struct, omit_defaults=True):
    """A storage layer of the run, fastest first."""

    name: str
    mount: str
    #: bytes per second
    bandwidth: float
    #: bytes; None is without limit
    capacity: int | None = None
    shared: bool = False
    #: of an emulated device: bytes per second of all streams together at this many of them
    curve: list[tuple[int, float]] = field(default_factory=list)
    #: the same of a real one, where it was measured
    measured: list[tuple[int, float]] = field(default_factory=list)
    #: for files of use during the run only
    temporary: bool = False
    #: tasks write there no faster than what they hold
    enforced: bool = False


class RunStarted(Event):
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
    storage: list[Layer] = field(default_factory=list)
    #: seconds after which an I/O task goes before those that want more bandwidth
    io_ageing: float | None = None
    #: files that nobody reads any more are moved down during the run
    data_movement: bool = False
    #: bytes per second that a learned constraint never exceeds
    tuning_ceiling: float | None = None
    #: how constraints are learned; logs that do not say it are older than the other way
    tuner: str = "published"
    #: in epochs: estimates that differ by less than this part are equal, and where tasks at a time are counted
    tuning_tolerance: float = 0.02
    tuning_counts: str = "cluster"


class NodeJoined(Event):
    """A machine takes tasks from now on."""

    node: str
    cpus: int
    memory: int
    io_executors: int = 0
    storage: list[Layer] = field(default_factory=list)
    #: what tasks may ask of a machine by name and value
    properties: list[tuple[str, str]] = field(default_factory=list)
    #: how many it has of what is only counted
    countable: list[tuple[str, int]] = field(default_factory=list)


class NodeLost(Event):
    """A machine is gone."""

    node: str


class Declared(Event):
    """A function is called for the first time: what each of its tasks asks for."""

    #: its number in this run
    function: int
    name: str
    #: what it is called across runs
    identity: str = ""
    cpus: int = 1
    memory: int = 0
    io: bool = False
    #: bytes per second, and bytes, of a storage device
    bandwidth: float = 0.0
    capacity: int = 0
    #: least and largest value, and the factor between two, of a bandwidth that is learned
    auto: Auto | None = None
    properties: list[tuple[str, str]] = field(default_factory=list)
    priority: int = 0
    retries: int | None = None
    timeout: float | None = None
    on_failure: str = "fail"
    #: a gang if more than one, each with ``cpus`` and ``memory``; how many a machine may hold, 0 without limit
    processes: int = 1
    processes_per_node: int = 0
    #: seconds before the second attempt; absent: a pause only after what looks like an outage
    retry_delay: float | None = None
    #: how many each of its tasks takes of what is only counted
    countable: list[tuple[str, int]] = field(default_factory=list)


class Submitted(Event):
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
    #: number of its function; 0 in logs that do not declare functions
    function: int = 0
    #: names of the files among its outputs, which are the last of ``writes``; empty for those that are objects
    paths: list[str] = field(default_factory=list)
    #: its files are of use during the run only
    temp: bool = False
    #: it had delivered, and is run again because what it made was lost
    again: bool = False
    #: what the program calls it, besides its function's name
    label: str = ""


class Waited(Event):
    """The program waited for tasks until now."""

    seconds: float


class Launched(Event):
    """An attempt was sent to a lane, where it runs after those sent there before."""

    task: int
    attempt: int
    node: str
    lane: int
    #: for I/O tasks: the storage layer, and the bytes per second taken of it
    layer: str = ""
    bandwidth: float = 0.0
    #: name of the function that runs, if it is another implementation than the one that was called
    implementation: str = ""
    #: for a gang: its machines, and how many of its processes each has
    hosts: list[tuple[str, int]] = field(default_factory=list)


class Fetched(Event):
    """An attempt has got its data from other machines, and begins."""

    task: int
    attempt: int
    #: how long that took
    seconds: float
    bytes: int = 0


class Output(Event):
    """An attempt handed an output over before its end."""

    task: int
    attempt: int
    version: int
    bytes: int


class Finished(Event):
    """An attempt delivered its outputs."""

    task: int
    attempt: int
    node: str
    lane: int
    #: how long the body ran
    seconds: float
    #: size of the outputs, without those handed over before
    bytes: int
    #: for I/O tasks: the storage layer, whose bandwidth is given back
    layer: str = ""
    #: of these, the sizes of files, one for each of the task's ``paths``
    sizes: list[int] = field(default_factory=list)


class Failed(Event):
    """An attempt ended without delivering, or a task cannot be tried because one it needs failed."""

    task: int
    attempt: int
    node: str
    lane: int
    kind: str
    message: str
    #: there will be no further attempt
    final: bool
    #: how long the body ran; 0 where nobody could tell
    seconds: float = 0.0


class Cancelled(Event):
    """A task will not run, or was stopped, because somebody said so."""

    task: int


class Recalled(Event):
    """An attempt was taken back from its lane before it started."""

    task: int


class WorkerStarted(Event):
    """A process serves a lane."""

    node: str
    lane: int
    pid: int


class WorkerEnded(Event):
    """A process of the I/O pool was idle for long and ended."""

    node: str
    lane: int
    pid: int


class WorkerDied(Event):
    """The process behind a lane ended."""

    node: str
    lane: int
    pid: int
    #: exit status, or minus the number of the signal
    status: int


class Published(Event):
    """A finished file got its final name."""

    version: int
    path: str


class Lost(Event):
    """The content of a version was lost."""

    version: int
    #: the task that made it; 0 if that is not known
    task: int
    why: str
    #: it is computed again; if not, the version has failed
    again: bool


class Dropped(Event):
    """The disk could not keep up: this many records are missing before this one."""

    records: int


class Stuck(Event):
    """Nothing had begun or ended for long while tasks were pending and none ran."""

    seconds: float
    #: function, number of tasks, what they waited for, and who held that
    waiting: list[tuple[str, int, str, str]]


class RunEnded(Event):
    """The last record of a run that came to its end."""

    ok: bool
    done: int
    failed: int
    cancelled: int


Record = (
    RunStarted
    | NodeJoined
    | NodeLost
    | Declared
    | Submitted
    | Waited
    | Launched
    | Fetched
    | Output
    | Finished
    | Failed
    | Cancelled
    | Recalled
    | WorkerStarted
    | WorkerDied
    | WorkerEnded
    | WorldStarted
    | WorldEnded
    | RankFailed
    | StepStarted
    | StepEnded
    | FileBorn
    | FileCommitted
    | FileDelivered
    | EdgeFlowed
    | Stalled
    | Stuck
    | Warned
    | Published
    | Device
    | EpochEnded
    | ConstraintChosen
    | ConstraintDrifted
    | DeliveryMeasured
    | LimitSettled
    | DeliveryChanged
    | LayerShared
    | Moved
    | Draining
    | Freed
    | Spilled
    | Restored
    | Lost
    | Dropped
    | RunEnded
)
