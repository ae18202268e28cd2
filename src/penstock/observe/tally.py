"""Counts per function, kept from the records of a run: what progress and summary show. No drawing, no clock.

What concerns storage is passed on to ``device_tally``.

Memory grows with the number of functions and of pending tasks, never with finished ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from copy import copy
from typing import Any

from msgspec import Struct, field

from penstock.observe import records
from penstock.observe.device_tally import ConstraintTally, DeviceLine, StorageTally
from penstock.observe.rates import Samples, recent_rate
from penstock.observe.records import Record
from penstock.observe.task_failures import TaskFailure

__all__ = ["FunctionTally", "Line", "Snapshot", "Tally"]

#: failures that are kept with their message
_KEPT_FAILURES = 10


class FunctionTally(Struct):
    """What is known of the calls of one function."""

    name: str
    submitted: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    #: sum of the durations of finished calls
    seconds: float = 0.0
    #: the same, times computing units
    busy: float = 0.0
    first: float = 0.0
    #: when a call last came to its end
    last: float = 0.0
    #: its calls are I/O tasks, and their bandwidth is learned
    io: bool = False
    learned: bool = False
    samples: Samples = field(default_factory=deque)

    @property
    def pending(self) -> int:
        """Calls that wait or run."""
        return self.submitted - self.done - self.failed - self.cancelled

    def rate(self, now: float) -> float:
        """Finished calls per second, of late."""
        mean = self.seconds / self.done if self.done else 0.0
        return recent_rate(self.samples, self.first, now, self.done, mean)


class Line(Struct, frozen=True):
    """One line of the view."""

    name: str
    waiting: int
    running: int
    done: int
    failed: int
    cancelled: int
    #: finished calls per second, of late
    rate: float
    elapsed: float
    #: estimate in seconds; None while there is nothing to base it on
    remaining: float | None


class Snapshot(Struct, frozen=True):
    """A picture of the run: a line for each function in order of appearance, the total, and storage that was used."""

    lines: list[Line]
    total: Line
    #: fastest first
    devices: list[DeviceLine] = []
    #: learned constraints of functions that still have calls to run, as they stand
    constraints: list[ConstraintTally] = []
    #: ready I/O tasks that wait for a device
    waiting: int = 0


class _Pending(Struct, gc=False):
    """A task on its way."""

    function: FunctionTally
    count: int
    cpus: int
    #: where it was sent
    lane: tuple[str, int] | None = None


class Tally:
    """Feed it batches with ``add``; ask for a ``snapshot``. Not locked: the caller keeps the two apart."""

    def __init__(self) -> None:
        self.functions: dict[str, FunctionTally] = {}
        self.failures: list[TaskFailure] = []
        self.storage = StorageTally()
        self.cpus = 1
        self.retried = 0
        self.workers_died = 0
        #: versions whose content was lost, and calls that were run again on that account
        self.lost = 0
        self.run_again = 0
        self.elapsed = 0.0
        self.ended: records.RunEnded | None = None
        #: the tasks are over, and finished files are brought home
        self.draining = False
        self._pending: dict[int, _Pending] = {}
        #: tasks sent to each lane, oldest first; that one runs, the others queue behind it
        self._lanes: dict[tuple[str, int], dict[int, None]] = {}
        self._peak_rate = 0.0
        self._samples: Samples = deque()
        self._handlers: dict[type, Callable[[Any], None]] = {
            records.RunStarted: self._on_run_started,
            records.NodeJoined: self.storage.on_node_joined,
            records.Submitted: self._on_submitted,
            records.Launched: self._on_launched,
            records.Finished: self._on_finished,
            records.Failed: self._on_failed,
            records.Cancelled: self._on_cancelled,
            records.Recalled: self._on_recalled,
            records.WorkerDied: self._on_worker_died,
            records.Lost: self._on_lost,
            records.RunEnded: self._on_run_ended,
            records.Draining: self._on_draining,
            records.Device: self.storage.on_device,
            records.Moved: self.storage.on_moved,
            records.Spilled: self.storage.on_spilled,
            records.Restored: self.storage.on_restored,
            records.EpochEnded: self.storage.on_epoch_ended,
            records.ConstraintChosen: self.storage.on_constraint_chosen,
            records.ConstraintDrifted: self.storage.on_constraint_drifted,
            records.LimitSettled: self.storage.on_limit_settled,
            records.DeliveryChanged: self.storage.on_delivery_changed,
            records.LayerShared: self.storage.on_layer_shared,
        }

    def add(self, batch: Iterable[Record]) -> None:
        """Count a batch of records."""
        handlers = self._handlers
        record = None
        for record in batch:
            handler = handlers.get(type(record))
            if handler is not None:
                handler(record)
        if record is not None:
            self.elapsed = max(self.elapsed, record.t)

    @property
    def busy(self) -> float:
        """Seconds that computing units spent in finished calls."""
        return sum(function.busy for function in self.functions.values())

    def snapshot(self, now: float) -> Snapshot:
        """The picture at ``now``, in seconds since the start of the run."""
        running = self._running()
        functions = list(self.functions.values())
        done = sum(function.done for function in functions)
        rate = recent_rate(self._samples, 0.0, now, done)
        self._peak_rate = max(self._peak_rate, rate)
        rates = [function.rate(now) for function in functions]
        remaining = self._remaining(functions, rates)
        lines = [
            _line(function, running.get(function.name, 0), now, rate, remaining)
            for function, rate in zip(functions, rates, strict=True)
        ]
        total = Line(
            name="total",
            waiting=sum(line.waiting for line in lines),
            running=sum(line.running for line in lines),
            done=done,
            failed=sum(line.failed for line in lines),
            cancelled=sum(line.cancelled for line in lines),
            rate=rate,
            elapsed=now,
            remaining=remaining,
        )
        constraints = [
            copy(constraint)
            for constraint in self.storage.constraints.values()
            if constraint.function in self.functions and self.functions[constraint.function].pending
        ]
        return Snapshot(lines, total, self.storage.lines(now), constraints, self.storage.waiting)

    def _running(self) -> dict[str, int]:
        running: dict[str, int] = {}
        for tasks in self._lanes.values():
            for task in tasks:
                name = self._pending[task].function.name
                running[name] = running.get(name, 0) + 1
                break
        return running

    def _remaining(self, functions: list[FunctionTally], rates: list[float]) -> float | None:
        """Work that is left, divided among the computing units, or what I/O takes if that is longer.

        A call is taken to cost what the function's calls cost so far, but no less than the run's best rate allows:
        for tiny tasks our own work per task is what counts. I/O tasks run beside the others, as fast as storage lets
        them: they go on at the rate they had of late.
        """
        floor = 1 / self._peak_rate if self._peak_rate else 0.0
        computing = writing = 0.0
        for function, rate in zip(functions, rates, strict=True):
            if not function.pending:
                continue
            if not function.done:
                return None
            if function.io:
                # None of late: they wait for others, and will be as fast as before once it is their turn.
                span = function.last - function.first
                writing = max(writing, function.pending / rate if rate else function.pending * span / function.done)
            else:
                computing += function.pending * max(function.busy / function.done / self.cpus, floor)
        return max(computing, writing)

    # One handler per record; tasks that are not known (a log read from its middle) are passed over.

    def _on_run_started(self, record: records.RunStarted) -> None:
        self.cpus = max(1, record.cpus)
        self.storage.on_run_started(record)

    def _on_submitted(self, record: records.Submitted) -> None:
        function = self.functions.get(record.name)
        if function is None:
            function = self.functions[record.name] = FunctionTally(
                record.name, first=record.t, io=record.io, learned=record.learned
            )
        if record.again:
            if function.done >= record.count:
                function.done -= record.count
            else:
                function.failed -= record.count  # and that was ignored
            self.run_again += record.count
        else:
            function.submitted += record.count
        self._pending[record.task] = _Pending(function, record.count, record.cpus)

    def _on_launched(self, record: records.Launched) -> None:
        pending = self._pending.get(record.task)
        if pending is not None:
            self._leave_lane(record.task, pending)
            pending.lane = lane = (record.node, record.lane)
            self._lanes.setdefault(lane, {})[record.task] = None
            if record.layer:
                self.storage.on_launched(record, pending.function.name, learned=pending.function.learned)

    def _on_finished(self, record: records.Finished) -> None:
        pending = self._take(record.task)
        if pending is not None:
            function = pending.function
            function.done += pending.count
            function.seconds += record.seconds
            function.busy += record.seconds * pending.cpus
            function.last = record.t
        if record.layer:
            self.storage.on_finished(record)

    def _on_failed(self, record: records.Failed) -> None:
        if not record.final:
            self.retried += 1
            self._on_recalled(record)
            return
        pending = self._take(record.task)
        if pending is not None:
            pending.function.failed += pending.count
            pending.function.last = record.t
            if len(self.failures) < _KEPT_FAILURES:
                failure = TaskFailure(record.task, pending.function.name, record.kind, record.message)
                self.failures.append(failure)

    def _on_cancelled(self, record: records.Cancelled) -> None:
        pending = self._take(record.task)
        if pending is not None:
            pending.function.cancelled += pending.count
            pending.function.last = record.t

    def _on_recalled(self, record: records.Recalled | records.Failed) -> None:
        pending = self._pending.get(record.task)
        if pending is not None:
            self._leave_lane(record.task, pending)

    def _on_worker_died(self, record: records.WorkerDied) -> None:
        self.workers_died += 1

    def _on_lost(self, record: records.Lost) -> None:
        self.lost += 1

    def _on_draining(self, record: records.Draining) -> None:
        self.draining = True

    def _on_run_ended(self, record: records.RunEnded) -> None:
        self.ended = record

    def _take(self, task: int) -> _Pending | None:
        """Forget a task that came to its end."""
        pending = self._pending.pop(task, None)
        if pending is not None:
            self._leave_lane(task, pending)
        return pending

    def _leave_lane(self, task: int, pending: _Pending) -> None:
        if pending.lane is not None:
            del self._lanes[pending.lane][task]
            pending.lane = None


def _line(function: FunctionTally, running: int, now: float, rate: float, total_remaining: float | None) -> Line:
    pending = function.pending
    remaining: float | None = None
    if pending and rate:
        remaining = pending / rate
        if total_remaining is not None:
            # It may have had few lanes of late because others had them; it will not outlast the whole.
            remaining = min(remaining, total_remaining)
    return Line(
        name=function.name,
        waiting=pending - running,
        running=running,
        done=function.done,
        failed=function.failed,
        cancelled=function.cancelled,
        rate=rate,
        elapsed=(now if pending else function.last) - function.first,
        remaining=remaining,
    )
