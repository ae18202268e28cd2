"""A run as its event log tells it: machines, functions, calls with their attempts, and when the program waited.

events.jsonl ─▶ RecordedRun ─▶ program (what the program did), transfers, costs ─▶ a workload to simulate
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from penstock.errors import ConfigError
from penstock.model.data import TaskId, VersionId
from penstock.model.resources import Node, Requirements, StorageLayer
from penstock.model.tasks import OnFailure
from penstock.observe import records

__all__ = ["Attempt", "Call", "Function", "Move", "RecordedRun"]


class Attempt(Struct):
    """One attempt of a task that was not taken back."""

    node: str
    lane: int
    launched: float
    #: where it wrote, and the bytes per second that it held there
    layer: str = ""
    bandwidth: float = 0.0
    #: when its end was known; negative while it is not
    ended: float = -1.0
    #: how long the body ran, or, where that was not ``timed``, how long it was known to
    seconds: float = 0.0
    timed: bool = False
    ok: bool = False

    @property
    def begun(self) -> float:
        """When its body began, as far as its end tells."""
        return max(self.launched, self.ended - self.seconds)


class Call(Struct):
    """One call of a task."""

    task: TaskId
    name: str
    function: int
    count: int
    at: float
    reads: list[VersionId]
    writes: list[VersionId]
    #: names of its outputs other than return values; empty for those that are objects
    paths: list[str]
    temp: bool
    cpus: int
    io: bool
    attempts: list[Attempt] = []
    #: when it was known to be over, for better or worse; negative if the log does not say
    over: float = -1.0
    #: kind of its failure; empty if it did not fail
    failure: str = ""
    cancelled: bool = False
    #: size of all its outputs, and of the files among them
    bytes: int = 0
    sizes: list[int] = []
    #: what it handed over before its end, in order: versions, when and by which attempt, and how large
    early: dict[VersionId, tuple[float, Attempt, int]] = {}

    @property
    def files(self) -> list[tuple[str, int]]:
        """Names and sizes of the files that it wrote; none has a size if it did not come to that."""
        names = [path for path in self.paths if path]
        return list(zip(names, self.sizes or [0] * len(names), strict=False))

    @property
    def returned(self) -> list[VersionId]:
        """The versions of its return values, those last that only its run has shown."""
        declared = self.writes[: len(self.writes) - len(self.paths)]
        known = set(self.writes)
        return [*declared, *(version for version in self.early if version not in known)]


class Function(Struct, frozen=True):
    """What each task of a function asks for."""

    name: str
    requirements: Requirements
    #: fields of ``TaskSpec``
    options: dict[str, Any]


class Move(Struct, frozen=True):
    """A file was copied between layers, or home."""

    ended: float
    seconds: float
    size: int
    #: path that it came from, and layer that it went to
    source: str
    layer: str


class RecordedRun:
    """All that replaying needs of a log."""

    def __init__(self, log: Iterable[records.Record], name: str) -> None:
        self._started: records.RunStarted | None = None
        #: those that were there when the program began, and those that came later
        self.nodes: dict[str, Node] = {}
        self.joined: list[tuple[float, Node]] = []
        self.lost: list[tuple[float, str]] = []
        self.functions: dict[int, Function] = {}
        self._numbers: dict[str, int] = {}
        #: in the order of the program
        self.calls: dict[TaskId, Call] = {}
        #: tasks in the order in which they ended
        self.ended: list[Call] = []
        #: when the program waited: begin and end
        self.waits: list[tuple[float, float]] = []
        self.moves: list[Move] = []
        #: when processes began to serve each lane
        self.workers: dict[tuple[str, int], list[float]] = {}
        #: constraints that earlier runs had learned, by function's name
        self.remembered: dict[str, float] = {}
        self.dropped = 0
        #: tasks that are being run again
        self._again: set[TaskId] = set()
        for record in log:
            self._take(record)
        self._check(name)

    def _check(self, name: str) -> None:
        if self._started is None:
            raise ConfigError(f"{name} is no event log of a run: it has no record `run_started`")
        if self.dropped:
            raise ConfigError(
                f"{name} lacks {self.dropped} records, which the disk was too slow for: such a run cannot be replayed"
            )
        if not self.nodes:
            self.nodes[self._started.node] = _node(self._started)

    @property
    def started(self) -> records.RunStarted:
        """The first record."""
        assert self._started is not None
        return self._started

    @property
    def makespan(self) -> float:
        """When the last task was over, in seconds from the start of the run."""
        return max((call.over for call in self.calls.values()), default=0.0)

    def lanes(self) -> dict[tuple[str, int], list[Attempt]]:
        """The attempts of each lane that came to an end, in the order in which they did."""
        lanes: dict[tuple[str, int], list[Attempt]] = {}
        for call in self.calls.values():
            for attempt in call.attempts:
                if attempt.ended >= 0:
                    lanes.setdefault((attempt.node, attempt.lane), []).append(attempt)
        for attempts in lanes.values():
            attempts.sort(key=lambda one: one.ended)
        return lanes

    def _take(self, record: records.Record) -> None:
        if self._again and getattr(record, "task", 0) in self._again:
            self._pass_over(record)
            return
        match record:
            case records.Submitted(again=True, task=task):
                self._again.add(task)
            case records.Submitted():
                self._submitted(record)
            case records.Launched(task=task):
                attempt = Attempt(record.node, record.lane, record.t, record.layer, record.bandwidth)
                self.calls[task].attempts.append(attempt)
                if record.implementation:
                    self.calls[task].function = self._numbers[record.implementation]
            case records.Output(task=task, version=version):
                call = self.calls[task]
                if call.attempts:
                    call.early.setdefault(version, (record.t, call.attempts[-1], record.bytes))
            case records.Finished(task=task):
                call = self.calls[task]
                self._attempt_ended(call, record.t, record.seconds, ok=True)
                call.bytes = record.bytes + sum(size for _, _, size in call.early.values())
                call.sizes = _sizes(call, record.sizes) if call.early else record.sizes
                self._over(call, record.t)
            case records.Failed(task=task):
                call = self.calls[task]
                self._attempt_ended(call, record.t, record.seconds, ok=False)
                if call.attempts and any(node == record.node for _, node in self.lost):
                    call.attempts.pop()  # it went with its node, which is no fault of its own
                if record.final:
                    call.failure = record.kind
                    self._over(call, record.t)
            case records.Cancelled(task=task):
                self._attempt_ended(self.calls[task], record.t, 0.0, ok=False)
                self.calls[task].cancelled = True
                self._over(self.calls[task], record.t)
            case records.Recalled(task=task):
                self.calls[task].attempts.pop()
            case records.Waited():
                self.waits.append((record.t - record.seconds, record.t))
            case records.WorkerStarted():
                self.workers.setdefault((record.node, record.lane), []).append(record.t)
            case records.Moved(error=""):
                self.moves.append(Move(record.t, record.seconds, record.bytes, record.source, record.layer))
            case _:
                self._take_rare(record)

    def _pass_over(self, record: records.Record) -> None:
        """A task is run again because data were lost: that is no part of the program."""
        over = isinstance(record, records.Finished | records.Cancelled)
        if over or (isinstance(record, records.Failed) and record.final):
            self._again.discard(record.task)  # type: ignore[union-attr]

    def _take_rare(self, record: records.Record) -> None:
        match record:
            case records.RunStarted():
                self._started = record
            case records.NodeJoined() if self.calls:
                self.joined.append((record.t, _node(record)))
            case records.NodeJoined():
                self.nodes[record.node] = _node(record)
            case records.NodeLost():
                self.lost.append((record.t, record.node))
            case records.Declared():
                self.functions[record.function] = _function(record)
                self._numbers[record.name] = record.function
            case records.ConstraintChosen(remembered=True):
                self.remembered[record.name] = record.constraint
            case records.LimitSettled(remembered=True):
                self.remembered |= dict.fromkeys(record.functions, record.constraint)
            case records.Dropped():
                self.dropped += record.records

    def _submitted(self, record: records.Submitted) -> None:
        self.calls[record.task] = Call(
            record.task,
            record.name,
            record.function,
            record.count,
            record.t,
            record.reads,
            record.writes,
            record.paths,
            record.temp,
            record.cpus,
            record.io,
        )

    def _attempt_ended(self, call: Call, t: float, seconds: float, *, ok: bool) -> None:
        """An attempt under way ended; one that did not deliver may not say how long it ran."""
        if call.attempts and call.attempts[-1].ended < 0:
            attempt = call.attempts[-1]
            attempt.ended, attempt.ok, attempt.timed = t, ok, ok or seconds > 0
            attempt.seconds = seconds if attempt.timed else t - attempt.launched

    def _over(self, call: Call, t: float) -> None:
        call.over = t
        self.ended.append(call)


def _sizes(call: Call, at_end: list[int]) -> list[int]:
    """Sizes of all files of a call, some of which it handed over before its end."""
    rest = iter(at_end)
    files = [version for version, path in zip(call.writes[-len(call.paths) :], call.paths, strict=False) if path]
    return [call.early[version][2] if version in call.early else next(rest, 0) for version in files]


def _node(record: records.RunStarted | records.NodeJoined) -> Node:
    joined = record if isinstance(record, records.NodeJoined) else None
    properties, countable = (joined.properties, joined.countable) if joined is not None else ([], [])
    storage = tuple(
        StorageLayer(
            one.name,
            one.mount,
            one.bandwidth,
            one.capacity,
            shared=one.shared,
            curve=tuple(one.curve),
            measured=tuple(one.measured),
            temporary=one.temporary,
            enforced=one.enforced,
        )
        for one in record.storage
    )
    about = (record.node, record.cpus, record.memory, tuple(properties), storage, record.io_executors)
    return Node(*about, tuple(countable))


def _function(record: records.Declared) -> Function:
    need = Requirements(
        record.cpus,
        record.memory,
        tuple(record.properties),
        record.io,
        record.bandwidth,
        record.capacity,
        record.auto,
        processes=record.processes,
        processes_per_node=record.processes_per_node,
        countable=tuple(record.countable),
    )
    options: dict[str, Any] = {}
    if record.priority:
        options["priority"] = record.priority
    if record.retries is not None:
        options["retries"] = record.retries
    if record.retry_delay is not None:
        options["retry_delay"] = record.retry_delay
    if record.timeout is not None:
        options["timeout"] = record.timeout
    if record.on_failure != OnFailure.FAIL.value or record.retries is not None:
        options["on_failure"] = OnFailure(record.on_failure)
    return Function(record.name, need, options)
