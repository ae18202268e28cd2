"""What the engine remembers: tasks, versions, segments, nodes, files on layers, and how long functions take. It is long
because every field that handlers share is explained in one place.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from penstock.engine.devices import DeviceRecord
from penstock.engine.gangs import Gangs
from penstock.engine.ledger import Lane, Ledger, NodeRecord
from penstock.engine.origins import Origins
from penstock.engine.profiles import Times
from penstock.engine.reservations import Reservations
from penstock.engine.segment_store import Store, StoreRules
from penstock.engine.story import Story
from penstock.errors import InternalError
from penstock.model.commands import Command
from penstock.model.data import FileRef, SegmentId, Slot, TaskId, VersionId
from penstock.model.events import Lost, Note, Report, RunAgain
from penstock.model.resources import Auto, Requirements
from penstock.model.tasks import TRANSITIONS, Failure, TaskCall, TaskSpec, TaskState
from penstock.scheduling.io import IOReadySet
from penstock.scheduling.view import ReadySet
from penstock.tuning.objective import TIE
from penstock.tuning.registry import Delivery, Learned
from penstock.tuning.tuner import Tuner

if TYPE_CHECKING:
    from penstock.engine.learning import Course

__all__ = [
    "NOWHERE",
    "Early",
    "IOTaskRecord",
    "OpenFile",
    "Placed",
    "Recovery",
    "State",
    "StorageRules",
    "TaskRecord",
    "VersionRecord",
]

NOWHERE: Mapping[str, int] = MappingProxyType({})

#: TRANSITIONS as a square, because it is looked at several times per task
_LEGAL = tuple(tuple((a, b) in TRANSITIONS for b in TaskState) for a in TaskState)


# Records of tasks and versions are made for each call: as structs, at the speed of C.
class TaskRecord(Struct, eq=False):
    """A task that is not over yet; also the view of it that policies get."""

    call: TaskCall
    task: TaskId
    requirements: Requirements
    priority: int
    state: TaskState = TaskState.WAITING
    #: attempts begun
    attempt: int = 0
    #: versions it still waits for
    missing: int = 0
    #: order in which it became ready
    serial: int = 0
    lane: Lane | None = None
    locality: Mapping[str, int] = NOWHERE
    freed: bool = False
    #: it reads something large, which goes when its readers are over
    relieves: bool = False
    #: its running attempt changes an input that exists nowhere else
    in_place: bool = False
    #: why its worker is being killed, or why it is to end as soon as it is taken back
    doom: Failure | None = None
    #: its doom does not hold should it turn out to have started
    spare_started: bool = False
    #: its call before it was settled which implementation runs, if there are several
    open_call: TaskCall | None = None

    @property
    def label(self) -> str:
        """How messages call it."""
        return self.call.shown


class IOTaskRecord(TaskRecord, eq=False, kw_only=True):
    """A task of the I/O pool."""

    #: the number by which I/O schedulers know its function
    function: int
    #: the only layer it can use, because it reads a file there; empty for any
    anchor: str = ""
    #: negative: not ready yet
    ready_since: float = -1.0
    started: float = 0.0
    #: where its attempt holds bandwidth, and how much
    device: DeviceRecord | None = None
    bandwidth: float = 0.0
    #: where room is set aside for what its attempt writes
    room: DeviceRecord | None = None
    #: what learns its constraint on that device, and whether this attempt is part of an epoch
    tuner: Tuner | None = None
    learning: bool = False
    #: when it took its bandwidth, and the load of the device up to then
    loaded: tuple[float, float] = (0.0, 0.0)
    #: attempts that ended because a layer was full: no fault of the task's
    full_layers: int = 0


# There is one for each version that the program has not let go: it is kept out of the garbage collector's rounds. No
# way leads from it back to what knows it.
class VersionRecord(Struct, eq=False, gc=False):
    """A version that somebody may still read, or that is still to be made."""

    version: VersionId
    #: its content once it exists, or why it never will
    outcome: Slot | Failure | None = None
    #: what it means to tasks that read it that it never will
    for_consumers: Failure | None = None
    #: the program can still ask for it
    held: bool = True
    #: tasks not over that read it
    uses: int = 0
    #: tasks that wait for it to exist
    waiters: list[TaskRecord] | tuple[()] = ()
    #: where its content is
    node: str = ""
    #: a persistent object, which is in its store: how many bytes of it lie on which nodes
    bytes_at: Mapping[str, int] | None = None
    #: for files: the name that this version belongs to
    file: str | None = None
    #: for files: the private path where it waits for those who read the version before it, and where those
    #: who found it there still read it
    scratch: str | None = None
    #: for files: its turn to bear the file's name has come, although it has a private path
    published: bool = False
    #: for files: the storage layer on which ``scratch`` is
    placed: Placed | None = None
    #: for files: its content is whatever bears the file's name, which may be an older version on a layer
    borrowed: bool = False
    #: for files set aside: the layer that their name lies on, and the room they take there
    home: tuple[DeviceRecord, int] | None = None
    #: for files: it could not be given the name
    unnamed: bool = False
    #: for files: of use during the run only
    temp: bool = False

    def release_later(self, task: TaskRecord) -> None:
        """A task waits for it to exist."""
        if self.waiters:
            self.waiters.append(task)
        else:
            self.waiters = [task]


class Placed:
    """A file on a storage layer that is not its home; its name is a link to it."""

    __slots__ = ("device", "dropped", "error", "moving", "node", "old", "size", "temp", "wanted_home")

    def __init__(self, node: NodeRecord, device: DeviceRecord, size: int, *, temp: bool) -> None:
        self.node = node
        self.device = device
        self.size = size
        #: of use during the run only
        self.temp = temp
        #: where it is being moved to: a device, or HOME
        self.moving: DeviceRecord | object | None = None
        #: the program wants it home, or away, as soon as it has been moved
        self.wanted_home = False
        self.dropped = False
        #: why it could not be moved
        self.error = ""
        #: copies that were moved away from, kept for those who read them: path, and device it takes room on
        self.old: list[tuple[str, DeviceRecord]] = []


class Astray(NamedTuple):
    """A file on a storage layer whose name the program took away, and that is kept because it may be of use."""

    file: str
    device: DeviceRecord
    size: int
    temp: bool


class Early:
    """Outputs that a task has handed over before its end, in whatever attempt."""

    __slots__ = ("further", "indices")

    def __init__(self) -> None:
        #: those among the call's ``writes``
        self.indices: set[int] = set()
        #: how many beyond them
        self.further = 0


class OpenFile:
    """A file that is being written, and may be read meanwhile."""

    __slots__ = ("readers", "ref")

    def __init__(self, ref: FileRef) -> None:
        self.ref = ref
        #: tasks that count on it: they may start, or have
        self.readers: dict[TaskRecord, None] = {}


class Recovery:
    """What the loss of data, or another end that was no fault of its own, means for a task that is not over."""

    __slots__ = ("forgiven", "lost", "spent")

    def __init__(self) -> None:
        #: attempts that do not count: those before it had to be run again, those that found an input lost, those that
        #: were ended on account of others
        self.forgiven = 0
        #: attempts that found an input lost
        self.lost = 0
        #: segments that its attempt changes in place, and whose version is being made again for others
        self.spent: list[SegmentId] = []


class StorageRules(Struct, frozen=True):
    """How storage is scheduled in this run."""

    #: name of an I/O scheduler
    scheduler: str = "fcfs"
    #: seconds after which an I/O task is served before those that want more bandwidth; None: never
    ageing: float | None = None
    #: move data that nobody reads any more down, when no I/O runs
    data_movement: bool = False
    #: bytes per second that a learned constraint never exceeds
    ceiling: float | None = None
    #: what earlier runs have learned in epochs, by function's identity and layer
    known: Mapping[tuple[str, str], Learned] = {}
    #: how constraints are learned: "adaptive", or "published", in epochs
    tuner: str = "adaptive"
    #: what earlier runs have seen devices deliver, by kind of access and layer
    deliveries: Mapping[tuple[str, str], Delivery] = {}
    #: published: estimates that differ by less than this part are equal, and tasks at a time are counted for the whole
    #: "cluster", or for a "node"
    tie: float = TIE
    counted_per: str = "cluster"


class State:
    """All state of the engine, and the few operations every handler shares."""

    def __init__(
        self,
        ready: ReadySet,
        *,
        follows_data: bool,
        storage: StorageRules,
        elastic: bool,
        store: StoreRules | None,
    ) -> None:
        self.tasks: dict[TaskId, TaskRecord] = {}
        self.versions: dict[VersionId, VersionRecord] = {}
        #: what versions that do not exist (yet) replace: a version, 0 for what the program itself has, or SPOILED
        self.replaced: dict[VersionId, VersionId] = {}
        #: how many of those each version is kept for
        self.kept: dict[VersionId, int] = {}
        #: holders of each segment: the program, unfinished calls, versions
        self.segments: dict[SegmentId, int] = {}
        #: where segments are, if memory for them is limited
        self.store = None if store is None else Store(store)
        #: versions that refer to each state of a persistent object
        self.object_states: dict[str, int] = {}
        self.ledger = Ledger(ready)
        self.ready = ready
        #: ready tasks of several processes
        self.gangs = Gangs(self.ledger)
        self.reservations = Reservations()
        #: whether the policy looks at where data are
        self.follows_data = follows_data
        #: nodes may join at any time: what none can host now waits for one that can
        self.elastic = elastic
        self.story = Story()
        self.now = 0.0
        #: commands of the event being handled
        self.out: list[Command] = []
        #: next value of ``TaskRecord.serial``
        self.serials = 0
        #: how long each function's body takes, per call
        self.times: dict[int, Times] = {}
        #: the same on a storage layer, by its name
        self.times_on: dict[tuple[int, str], Times] = {}
        #: attempts of functions that are one implementation of several
        self.tried: dict[int, int] = {}
        #: functions whose times in earlier runs the devices have been told
        self.recalled: set[int] = set()
        #: lanes that run short tasks and could take more, served in turn
        self.hungry: OrderedDict[Lane, None] = OrderedDict()
        #: the same, of the I/O pool
        self.hungry_io: OrderedDict[Lane, None] = OrderedDict()
        #: heap of (time, task, attempt)
        self.deadlines: list[tuple[float, TaskId, int]] = []
        #: when the pause of each task that pauses is over, and the same as a heap, with tasks that are over in it
        self.pauses: dict[TaskId, float] = {}
        self.pause_ends: list[tuple[float, TaskId]] = []
        #: lanes with attempts behind their head
        self.backlogged: dict[Lane, None] = {}
        #: live versions of each file, oldest first
        self.files: dict[str, OrderedDict[VersionId, None]] = {}
        #: attempts and tasks that ended without delivering, for the log; whoever drives the engine empties it
        self.reports: list[Report | Lost | RunAgain] = []
        #: versions of files that are being given their name
        self.publishing: set[VersionId] = set()
        #: versions of files of which more must be known, and those that nobody wrote and that will be the same
        self.unwritten: dict[VersionId, VersionId] = {}
        #: the first number of each function whose constraint is learned, by its identity
        self.learners: dict[tuple[str, Auto], int] = {}
        #: what unfinished tasks have handed over early
        self.early: dict[TaskId, Early] = {}
        #: files that running attempts are writing and that others read meanwhile
        self.open_files: dict[VersionId, OpenFile] = {}
        #: tasks on lanes whose attempt is being ended because what it read was not written to its end
        self.interrupted: set[TaskId] = set()
        #: I/O tasks that want a place
        self.io_ready = IOReadySet(storage.scheduler, storage.ageing)
        self.rules = storage
        #: something happened that may let an I/O task start
        self.io_changed = False
        #: what learns the constraint of a function on a layer, by identity and layer
        self.tuners: dict[tuple[str, str], Tuner] = {}
        #: those whose function has new instances since the constraint was last chosen
        self.unsettled: set[Tuner] = set()
        #: devices whose number of attempts is steered
        self.steered: list[DeviceRecord] = []
        #: learning phases under way
        self.courses: dict[tuple[str, str], Course] = {}
        #: what was learned, for whoever keeps and shows it; whoever drives the engine empties it
        self.notes: list[Note] = []
        #: versions on storage layers, oldest first
        self.placed: OrderedDict[VersionId, VersionRecord] = OrderedDict()
        #: those of them that may have come to rest, by node, in that order; no other can be moved
        self.resting: OrderedDict[NodeRecord, OrderedDict[VersionId, VersionRecord]] = OrderedDict()
        #: those that go home when the run is over, by node
        self.homeward: dict[NodeRecord, deque[VersionRecord]] = {}
        #: files of layered tasks that are at home, on a layer: its device and their size
        self.at_home: dict[str, tuple[DeviceRecord, int]] = {}
        #: copies being removed, and what that will give back
        self.discarding: dict[str, tuple[DeviceRecord, int]] = {}
        #: copies to which no name leads any more, and which stay
        self.astray: dict[str, Astray] = {}
        #: files under their own name that are of use during the run only
        self.temps: set[str] = set()
        #: versions on their way from a layer to another, or home
        self.moving: dict[VersionId, VersionRecord] = {}
        #: since when ready I/O tasks have waited for room alone; None if they do not
        self.crowded_since: float | None = None
        #: the run is over: nothing is started any more
        self.draining = False
        #: how versions in segments came to be
        self.origins = Origins()
        #: tasks that are run again, or wait again, because data were lost
        self.recoveries: dict[TaskId, Recovery] = {}
        self.done = 0
        self.failed = 0
        self.cancelled = 0

    def feed(self, lane: Lane) -> None:
        """A lane could take more."""
        (self.hungry_io if lane.io else self.hungry)[lane] = None

    def starve(self, lane: Lane) -> None:
        """A lane is sent nothing more for now."""
        (self.hungry_io if lane.io else self.hungry).pop(lane, None)

    def withdraw(self, task: TaskRecord) -> None:
        """A ready task wants no place any more."""
        if isinstance(task, IOTaskRecord):
            self.io_ready.remove(task)
        elif task.requirements.processes > 1:
            self.gangs.remove(task)
        else:
            self.ready.remove(task)

    def is_hopeless(self, need: Requirements) -> bool:
        """Whether nobody will ever be able to run an attempt with these requirements, as far as is known."""
        ledger = self.ledger
        return not ledger.is_possible(need) and not (self.elastic and ledger.was_possible(need))

    def expected(self, spec: TaskSpec) -> float | None:
        """Seconds that a function's body will take: as measured lately, else as earlier runs say."""
        times = self.times.get(spec.function)
        if times is not None:
            return times.recent
        return next((profile.mean for profile in spec.profiles if not profile.layer), None)

    def move(self, task: TaskRecord, to: TaskState) -> None:
        """Change a task's state, if the table of transitions allows it."""
        if not _LEGAL[task.state][to]:
            raise InternalError(
                f"task {task.label} cannot go from {task.state.name} to {to.name}; its story:\n"
                + self.story.of(task.task)
            )
        self.story.note((self.now, task.task, task.state._value_, to._value_))
        task.state = to
