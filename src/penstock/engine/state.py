"""What the engine remembers: tasks, versions, segments, nodes, and how long functions take."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from penstock.engine.ledger import Lane, Ledger
from penstock.engine.story import Story
from penstock.errors import InternalError
from penstock.model.commands import Command
from penstock.model.data import SegmentId, Slot, TaskId, VersionId
from penstock.model.events import Report
from penstock.model.resources import Requirements
from penstock.model.tasks import TRANSITIONS, Failure, TaskCall, TaskState
from penstock.scheduling.view import ReadySet

__all__ = ["NOWHERE", "State", "TaskRecord", "VersionRecord"]

NOWHERE: Mapping[str, int] = {}

#: TRANSITIONS as a square, because it is looked at several times per task
_LEGAL = tuple(tuple((a, b) in TRANSITIONS for b in TaskState) for a in TaskState)


class TaskRecord:
    """A task that is not over yet; also the view of it that policies get."""

    __slots__ = (
        "attempt",
        "call",
        "doom",
        "freed",
        "in_place",
        "lane",
        "locality",
        "missing",
        "priority",
        "requirements",
        "serial",
        "spare_started",
        "state",
        "task",
    )

    def __init__(self, call: TaskCall) -> None:
        spec = call.spec
        self.call = call
        self.task: TaskId = call.task
        self.state = TaskState.WAITING
        self.requirements: Requirements = spec.requirements
        self.priority = spec.priority
        #: attempts begun
        self.attempt = 0
        #: versions it still waits for
        self.missing = 0
        #: order in which it became ready
        self.serial = 0
        self.lane: Lane | None = None
        self.locality = NOWHERE
        self.freed = False
        #: its running attempt changes an input that exists nowhere else
        self.in_place = False
        #: why its worker is being killed, or why it is to end as soon as it is taken back
        self.doom: Failure | None = None
        #: its doom does not hold should it turn out to have started
        self.spare_started = False

    @property
    def label(self) -> str:
        """How messages call it."""
        return f"{self.call.spec.name}#{self.task}"


class VersionRecord:
    """A version that somebody may still read, or that is still to be made."""

    __slots__ = (
        "file",
        "for_consumers",
        "held",
        "node",
        "outcome",
        "published",
        "scratch",
        "uses",
        "version",
        "waiters",
    )

    def __init__(self, version: VersionId) -> None:
        self.version = version
        #: its content once it exists, or why it never will
        self.outcome: Slot | Failure | None = None
        #: what it means to tasks that read it that it never will
        self.for_consumers: Failure | None = None
        #: the program can still ask for it
        self.held = True
        #: tasks not over that read it
        self.uses = 0
        #: tasks that wait for it to exist
        self.waiters: list[TaskRecord] = []
        #: where its content is
        self.node = ""
        #: for files: the name that this version belongs to
        self.file: str | None = None
        #: for files: the private path where it waits for those who read the version before it, and where those
        #: who found it there still read it
        self.scratch: str | None = None
        #: for files: its turn to bear the file's name has come, although it has a private path
        self.published = False


class State:
    """All state of the engine, and the few operations every handler shares."""

    def __init__(self, ready: ReadySet, *, follows_data: bool) -> None:
        self.tasks: dict[TaskId, TaskRecord] = {}
        self.versions: dict[VersionId, VersionRecord] = {}
        #: holders of each segment: the program, unfinished calls, versions
        self.segments: dict[SegmentId, int] = {}
        self.ledger = Ledger()
        self.ready = ready
        #: whether the policy looks at where data are
        self.follows_data = follows_data
        self.story = Story()
        self.now = 0.0
        #: commands of the event being handled
        self.out: list[Command] = []
        #: next value of ``TaskRecord.serial``
        self.serials = 0
        #: mean duration of each function's body, exponentially weighted
        self.durations: dict[int, float] = {}
        #: lanes that run short tasks and could take more, served in turn
        self.hungry: OrderedDict[Lane, None] = OrderedDict()
        #: heap of (time, task, attempt)
        self.deadlines: list[tuple[float, TaskId, int]] = []
        #: lanes with attempts behind their head
        self.backlogged: dict[Lane, None] = {}
        #: live versions of each file, oldest first
        self.files: dict[str, OrderedDict[VersionId, None]] = {}
        #: attempts and tasks that ended without delivering, for the log; whoever drives the engine empties it
        self.reports: list[Report] = []
        #: versions of files that are being given their name
        self.publishing: set[VersionId] = set()
        self.done = 0
        self.failed = 0
        self.cancelled = 0

    def move(self, task: TaskRecord, to: TaskState) -> None:
        """Change a task's state, if the table of transitions allows it."""
        if not _LEGAL[task.state][to]:
            raise InternalError(
                f"task {task.label} cannot go from {task.state.name} to {to.name}; its story:\n"
                + self.story.of(task.task)
            )
        self.story.note((self.now, task.task, task.state, to))
        task.state = to
