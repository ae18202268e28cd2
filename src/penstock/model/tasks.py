"""Tasks: what is declared once, what is said at each call, and the states a call goes through."""

from __future__ import annotations

from enum import Enum, IntEnum

from msgspec import Struct

from penstock.model.data import FileRef, SegmentId, TaskId, Value, VersionId
from penstock.model.outside import Outside
from penstock.model.profiles import Profile
from penstock.model.resources import Requirements
from penstock.model.worlds import World

__all__ = [
    "FINAL",
    "PROGRAM",
    "TRANSITIONS",
    "UNKNOWN",
    "Failure",
    "FailureKind",
    "OnFailure",
    "Output",
    "Steps",
    "TaskCall",
    "TaskSpec",
    "TaskState",
    "Use",
]


#: way to an object: position or keyword of the argument, then indices into collections; a dict's by order
Steps = tuple[int | str | tuple[int, ...], ...]


class TaskState(IntEnum):
    """Where a task is. The happy path is WAITING, READY, RUNNING, DONE."""

    #: some version it reads does not exist yet
    WAITING = 0
    #: all it reads exists; it wants a place
    READY = 1
    #: sent to a lane, behind an attempt that holds the tokens it will inherit
    QUEUED = 2
    #: it is the head of a lane and holds tokens
    RUNNING = 3
    #: its outputs exist
    DONE = 4
    #: it will not deliver: an error of its own or of a task it needs
    FAILED = 5
    #: it will not deliver: somebody said so
    CANCELLED = 6


FINAL = frozenset({TaskState.DONE, TaskState.FAILED, TaskState.CANCELLED})

_S = TaskState
#: the only moves a task may make; anything else is our bug and raises with the task's story
TRANSITIONS: frozenset[tuple[TaskState, TaskState]] = frozenset(
    {
        (_S.WAITING, _S.READY),
        (_S.WAITING, _S.FAILED),  # a version it needs will never exist
        (_S.WAITING, _S.CANCELLED),
        (_S.READY, _S.RUNNING),
        (_S.READY, _S.QUEUED),
        (_S.READY, _S.CANCELLED),
        (_S.READY, _S.WAITING),  # who was writing a file that it reads has failed, or what it reads was lost
        (_S.READY, _S.FAILED),  # the last node that could run it is gone, or no layer has room
        (_S.READY, _S.DONE),  # no layer has room, and its failure is to be ignored
        (_S.QUEUED, _S.RUNNING),  # it became the head of its lane
        (_S.QUEUED, _S.READY),  # taken back before it started
        (_S.QUEUED, _S.CANCELLED),
        (_S.QUEUED, _S.FAILED),  # taken back, but who was writing what it reads has failed for good
        (_S.QUEUED, _S.WAITING),  # taken back, and who was writing what it reads is tried again
        (_S.RUNNING, _S.DONE),
        (_S.RUNNING, _S.FAILED),
        (_S.RUNNING, _S.CANCELLED),
        (_S.RUNNING, _S.READY),  # it is tried again
        # It begins anew when what it was reading is written anew, or was lost; or after a pause.
        (_S.RUNNING, _S.WAITING),
    }
)


class OnFailure(Enum):
    """What a failure of a task means for those that need its outputs."""

    #: consumers fail, naming it; waiting for any of them raises
    FAIL = "fail"
    #: like FAIL, after ``retries`` more attempts, also when the body raised
    RETRY = "retry"
    #: outputs become ``None`` (an updated object keeps its old value) and consumers run
    IGNORE = "ignore"
    #: consumers are cancelled, and only they
    CANCEL_SUCCESSORS = "cancel_successors"


class FailureKind(Enum):
    """Why an attempt, and then perhaps its task, did not deliver."""

    EXCEPTION = "exception"
    RETURNS = "returns"
    SERIALIZATION = "serialization"
    CHANGED_INPUT = "changed_input"
    DIED = "died"
    #: the program's setup of its worker process raised
    SETUP = "setup"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    DEPENDENCY = "dependency"
    UNPLACEABLE = "unplaceable"
    STOPPED = "stopped"
    #: the storage layer it was writing to has no room left
    STORAGE_FULL = "storage_full"
    #: what it made, or what it needs, was lost and cannot be computed again
    LOST = "lost"


#: who made what is lost, where that is no task that is still known; a failure's path begins with it
PROGRAM = "the program"
UNKNOWN = "an earlier task"


class Failure(Struct, frozen=True, array_like=True):
    """All that is known of a failure, as a value that can travel."""

    kind: FailureKind
    #: what went wrong, in one sentence
    message: str
    #: the exception itself, pickled, when it could be
    exception: bytes | None = None
    #: the worker's traceback
    traceback: str = ""
    #: the task that failed first, then the tasks the failure passed through
    path: tuple[str, ...] = ()
    node: str = ""
    attempt: int = 0
    #: last lines the worker wrote
    output: str = ""
    #: the arguments, in short
    arguments: str = ""
    #: segments that an attempt needed and could not read
    lost: tuple[SegmentId, ...] = ()
    #: something that the task uses seems to be out of order for a while: a connection, a server, a file system
    outage: bool = False
    #: the task was called when what it needs had failed already
    called_after: bool = False


class TaskSpec(Struct, frozen=True, array_like=True):
    """What the decorators say of a function; one per decorated function and run."""

    #: number of the function in this run; workers are sent its code once
    function: int
    name: str
    requirements: Requirements = Requirements()
    #: larger goes first among ready tasks
    priority: int = 0
    #: further attempts after the first; ``None`` means: only when the worker died
    retries: int | None = None
    #: seconds an attempt may run
    timeout: float | None = None
    on_failure: OnFailure = OnFailure.FAIL
    #: what the function is called across runs, for what is learned about it
    identity: str = ""
    #: how long it took in earlier runs, by storage layer
    profiles: tuple[Profile, ...] = ()
    #: if there are several functions that do this: all of them, this one first, with their own requirements
    implementations: tuple[TaskSpec, ...] = ()
    #: an MPI task: the ranks that carry it out; ``None`` for any other
    world: World | None = None
    #: seconds before the second attempt, twice as many before each further one; ``None``: only after an outage
    retry_delay: float | None = None
    #: its body hands over its outputs one by one, and can be told then that no more are wanted
    yields: bool = False


# There may be millions of these, and they hold no cycles: keep them out of the garbage collector's rounds.
class TaskCall(Struct, frozen=True, gc=False):
    """One call of a task: its pickled arguments and the versions it reads and makes."""

    task: TaskId
    spec: TaskSpec
    #: pickled ``(args, kwargs)``, with numbered slots where data of other tasks belong
    args: Value
    #: what fills the slots: a version to wait for, or a value known at the call
    slots: tuple[VersionId | Value | FileRef, ...] = ()
    #: slots whose object the task may change (INOUT); the others are mapped read-only
    writable: tuple[int, ...] = ()
    #: versions that must exist first; the versions among the slots, and those only waited for
    reads: tuple[VersionId, ...] = ()
    #: versions this task makes: its returns first, then what ``outputs`` lists
    writes: tuple[VersionId, ...] = ()
    #: how many of ``writes`` are return values
    returns: int = 0
    #: where the other outputs are found after the body ran
    outputs: tuple[Output, ...] = ()
    #: segments that the arguments use, held until the task is over
    segments: tuple[SegmentId, ...] = ()
    #: -1 for a call; for a piece of a map, how many calls it holds
    items: int = -1
    #: how many buffers of ``args``, from the first, belong to objects that the task changes
    writable_buffers: int = 0
    #: those of ``reads`` that it can begin to read while they are still being written
    streams: tuple[VersionId, ...] = ()
    #: the state of the program's process at the call; None where no body will run
    outside: Outside | None = None
    #: what the program calls it, besides its function's name and its number
    label: str = ""

    @property
    def shown(self) -> str:
        """How messages call it."""
        name = f"{self.spec.name}#{self.task}"
        return f"{name} [{self.label}]" if self.label else name

    @property
    def count(self) -> int:
        """Calls in this record."""
        return 1 if self.items < 0 else self.items


class Use(Enum):
    """What a task does with parts of shared memory."""

    READ = "read"
    CHANGE = "change"


class Output(Struct, frozen=True, array_like=True, gc=False):
    """An output other than a return value: an updated object, or a written file."""

    #: where the object is after the body ran
    path: Steps
    #: the slot it came from, or -1 where it travelled with the arguments
    slot: int = -1
    #: for files: the name the user gave, where the finished version belongs
    file: str | None = None
    #: for files: the file holds a previous version that the task updates
    update: bool = False
    #: for files: it is of use during the run only
    temp: bool = False
    #: for files: others may read it while it is being written
    stream: bool = False
    #: where else the same object is
    also: tuple[Steps, ...] = ()
    #: no object, but the sign that the task has used parts of shared memory; those that it changes are at ``also``
    use: Use | None = None
    #: for files: it is a directory
    directory: bool = False
