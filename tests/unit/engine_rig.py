"""Drives an engine by hand: one method per event, the invariants checked after each."""

from __future__ import annotations

from collections import Counter
from typing import Any

from penstock.engine.checks import check
from penstock.engine.engine import Engine
from penstock.engine.state import StorageRules
from penstock.model.commands import Command, Launch, Publish, Settle
from penstock.model.data import FileRef, Piece, Slot, Value
from penstock.model.events import (
    CancelRequested,
    Event,
    Failed,
    Finished,
    NodeJoined,
    NodeLost,
    OutputReady,
    Provided,
    Published,
    Recalled,
    Released,
    SegmentMade,
    SegmentReleased,
    Submitted,
    Ticked,
    WorkerLost,
)
from penstock.model.resources import Node
from penstock.model.tasks import Failure, FailureKind, Output, TaskCall, TaskSpec, TaskState
from penstock.scheduling.compute import Fifo
from penstock.scheduling.ready_queues import ReadyQueues
from penstock.scheduling.view import ReadySet

NO_ARGUMENTS = Value(b"()")
BOOM = Failure(FailureKind.EXCEPTION, "ValueError: boom")


def value(content: str) -> Value:
    """A small value, carried inline."""
    return Value(content.encode())


def big(*segments: int) -> Value:
    """A value with a buffer in each of these segments."""
    return Value(b"stream", tuple(Piece(segment, False, 0, 1 << 20) for segment in segments))


def spec(name: str = "f", **fields: Any) -> TaskSpec:
    """A function; those of one name share their number, and so their mean duration."""
    return TaskSpec(sum(name.encode()), name, **fields)


def call(task: int, of: TaskSpec | None = None, **fields: Any) -> TaskCall:
    """A call that returns one value, as version ``100 + task``, unless told otherwise."""
    if "writes" not in fields:
        fields |= {"writes": (100 + task,), "returns": 1}
    if "slots" in fields and "reads" not in fields:
        fields["reads"] = tuple(slot for slot in fields["slots"] if type(slot) is int)
    return TaskCall(task, of or spec(), NO_ARGUMENTS, **fields)


def updates(task: int, old: int | Value, new: int, of: TaskSpec | None = None, **fields: Any) -> TaskCall:
    """A call with one INOUT argument."""
    outputs = (Output((0,), 0),)
    return call(task, of, slots=(old,), writable=(0,), writes=(new,), outputs=outputs, **fields)


def writes_file(task: int, new: int, file: str, *, old: int | None = None, of: TaskSpec | None = None) -> TaskCall:
    """A call with one FILE_OUT argument, or a FILE_INOUT one if there is an old version."""
    if old is None:
        return call(task, of, writes=(new,), outputs=(Output((0,), -1, file),))
    return call(task, of, slots=(old,), writable=(0,), writes=(new,), outputs=(Output((0,), 0, file, True),))


class Rig:
    """An engine, the time, and what the program holds."""

    def __init__(
        self,
        *,
        ready: ReadySet | None = None,
        lanes: int = 2,
        follows_data: bool = False,
        storage: StorageRules | None = None,
    ) -> None:
        ready = ReadyQueues(Fifo()) if ready is None else ready
        self.engine = Engine(ready, follows_data=follows_data, storage=storage)
        self.now = 0.0
        self.held: Counter[int] = Counter()
        #: off where there are so many tasks that checking them all after each event takes too long
        self.checking = True
        if lanes:
            self.join("n", lanes)

    def tell(self, event: Event) -> list[Command]:
        answers: list[Command] = []
        pending: list[Event] = [event]
        for one in pending:
            commands = self.engine.handle(one, self.now)
            if self.checking:
                check(self.engine, self.held)
            answers += commands
            # A file gets its name at once.
            pending += [Published(c.version, c.target) for c in commands if isinstance(c, Publish)]
        return answers

    def join(self, name: str, cpus: int, memory: int = 0, **properties: str) -> list[Command]:
        return self.tell(NodeJoined(Node(name, cpus, memory, tuple(properties.items()))))

    def lose_node(self, name: str) -> list[Command]:
        return self.tell(NodeLost(name))

    def submit(self, *calls: TaskCall) -> list[Command]:
        return [command for one in calls for command in self.tell(Submitted(one))]

    def finish(self, task: int, *outputs: Slot | None, seconds: float = 1.0) -> list[Command]:
        record = self.engine.state.tasks[task]
        if not outputs:
            outputs = (value("x"),) * len(record.call.writes)
        return self.tell(Finished(task, record.attempt, list(outputs), seconds))

    def hand_over(self, task: int, index: int, content: Slot) -> list[Command]:
        return self.tell(OutputReady(task, self.attempt(task), index, content))

    def fail(self, task: int, failure: Failure = BOOM) -> list[Command]:
        return self.tell(Failed(task, self.attempt(task), failure, 1.0))

    def lose_worker(self, lane: int, reason: str = "killed by SIGKILL", **fields: Any) -> list[Command]:
        return self.tell(WorkerLost("n", lane, reason, **fields))

    def recalled(self, lane: int, *tasks: int) -> list[Command]:
        return self.tell(Recalled("n", lane, tasks))

    def cancel(self, task: int, *, kill: bool = False) -> list[Command]:
        return self.tell(CancelRequested(task, kill))

    def provide(self, version: int, content: Slot | Failure) -> list[Command]:
        return self.tell(Provided(version, content))

    def release(self, version: int) -> list[Command]:
        return self.tell(Released((version,)))

    def hold_segment(self, segment: int) -> list[Command]:
        self.held[segment] += 1
        return self.tell(SegmentMade(segment, 1 << 20))

    def release_segment(self, segment: int) -> list[Command]:
        self.held[segment] -= 1
        return self.tell(SegmentReleased(segment))

    def tick(self, seconds: float) -> list[Command]:
        self.now += seconds
        return self.tell(Ticked())

    def teach(self, of: TaskSpec, seconds: float, task: int = 9000) -> None:
        """Have a call run and end, so that the engine knows how long this function takes."""
        self.submit(call(task, of))
        self.finish(task, seconds=seconds)
        self.release(100 + task)

    def attempt(self, task: int) -> int:
        return self.engine.state.tasks[task].attempt

    def state(self, task: int) -> TaskState | None:
        record = self.engine.state.tasks.get(task)
        return None if record is None else record.state

    def lane_of(self, task: int) -> int:
        lane = self.engine.state.tasks[task].lane
        assert lane is not None
        return lane.index

    @property
    def empty(self) -> bool:
        """Whether nothing is left: no task, no datum, no token in use."""
        state = self.engine.state
        free = all(node.used_cpus == 0 for node in state.ledger.nodes.values())
        return free and not (state.tasks or state.versions or state.segments or state.files or len(state.ready))


def launched(commands: list[Command]) -> list[int]:
    """The tasks that commands send to lanes."""
    return [command.task for command in commands if type(command) is Launch]


def settled(commands: list[Command]) -> dict[int, Slot | Failure]:
    """What commands tell the program of versions; each at most once."""
    told = [(command.version, command.outcome) for command in commands if type(command) is Settle]
    assert len(told) == len({version for version, _ in told})
    return dict(told)


def failure_of(commands: list[Command], version: int) -> Failure:
    outcome = settled(commands)[version]
    assert type(outcome) is Failure
    return outcome


__all__ = [
    "BOOM",
    "FileRef",
    "Rig",
    "big",
    "call",
    "failure_of",
    "launched",
    "settled",
    "spec",
    "updates",
    "value",
    "writes_file",
]
