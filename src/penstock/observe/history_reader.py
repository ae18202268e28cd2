"""From the records of a log to the history of its run.

A log tells when something was called, sent and over. From that follows the rest: a task is ready when the last version
it reads exists; the head of a lane holds what it needs, those sent after it wait; a body ran for the time it says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct

from penstock.observe import records
from penstock.observe.history import Attempt, DeviceHistory, Group, History, NodeHistory
from penstock.observe.records import Record
from penstock.observe.task_failures import TaskFailure

__all__ = ["HistoryReader", "read_history"]

#: what is smaller than this share of a time is rounding
_ROUNDING = 1e-12
#: failures that are kept with their message
_KEPT_FAILURES = 5


class _Call(Struct, gc=False):
    """A task that was called and is not over."""

    task: int
    index: int
    name: str
    at: float
    cpus: int
    io: bool
    learned: bool
    #: number of its function
    function: int
    reads: list[int]
    count: int
    #: the attempt under way
    attempt: Attempt | None = None
    #: position of the last attempt that failed
    failed: int = -1
    #: what the attempt under way has handed over
    early: _Early | None = None


class _Early(Struct):
    """Outputs that an attempt handed over before its end."""

    times: list[float] = []
    #: attempts that one of them made ready
    awaited: list[Attempt] = []
    #: of the attempt in the history, once it is over
    position: int = -1


def read_history(run: Iterable[Record]) -> History:
    """Read a log, from its first record to its last."""
    reader = HistoryReader()
    reader.add(run)
    return reader.close()


class HistoryReader:
    """For a log that comes piece by piece."""

    def __init__(self) -> None:
        self._history = History()
        self._calls: dict[int, _Call] = {}
        #: tasks by the versions they make, and attempts by the tasks that are over
        self._maker: dict[int, int] = {}
        self._done: dict[int, int] = {}
        #: versions that were handed over before their task was over: when, and by whom
        self._early: dict[int, tuple[float, _Early]] = {}
        #: when the last attempt on a lane was over
        self._lane_free: dict[tuple[str, int], float] = {}
        self._groups: dict[tuple[object, ...], Group] = {}
        #: by number, and by name for those that run in the place of another
        self._declared: dict[int | str, records.Declared] = {}
        self._shared: set[str] = set()
        self._handlers: dict[type, Callable[[Any], None]] = {
            records.RunStarted: self._on_run_started,
            records.Declared: self._on_declared,
            records.Submitted: self._on_submitted,
            records.Waited: self._on_waited,
            records.Launched: self._on_launched,
            records.Fetched: self._on_fetched,
            records.Output: self._on_output,
            records.Finished: self._on_finished,
            records.Failed: self._on_failed,
            records.Cancelled: self._on_cancelled,
            records.Recalled: self._on_recalled,
            records.Device: self._on_device,
            records.Moved: self._on_moved,
            records.ConstraintChosen: self._on_chosen,
            records.ConstraintDrifted: self._on_drifted,
            records.LimitSettled: self._on_settled,
            records.Dropped: self._on_dropped,
            records.RunEnded: self._on_run_ended,
            records.NodeJoined: self._on_node_joined,
            records.NodeLost: self._on_node_lost,
        }

    def add(self, batch: Iterable[Record]) -> None:
        """Read further records."""
        handlers = self._handlers
        record = None
        for record in batch:
            handler = handlers.get(type(record))
            if handler is not None:
                handler(record)
        if record is not None:
            self._history.end = record.t

    def close(self) -> History:
        """That was the last record."""
        self._close()
        self._history.releases.sort()
        self._history.makespan = max((attempt.ended for attempt in self._history.attempts), default=0.0)
        return self._history

    def _close(self) -> None:
        """What was under way when the log ended."""
        history = self._history
        for call in self._calls.values():
            attempt = call.attempt
            if attempt is not None and attempt.launched >= 0:
                attempt.taken = max(attempt.launched, self._lane_free.get((attempt.node, attempt.lane), 0.0))
                if attempt.taken < history.end:
                    attempt.begun, attempt.ended = attempt.taken, history.end
                    self._keep(call, attempt)
        for device in history.devices.values():
            _advance(device, history.end)

    # --- the machine --------------------------------------------------------------------------------------------------

    def _on_run_started(self, record: records.RunStarted) -> None:
        self._history.started = record
        if record.node:
            node = NodeHistory(record.node, record.cpus, record.memory, record.io_executors, record.storage)
            self._add_node(node)

    def _on_node_joined(self, record: records.NodeJoined) -> None:
        storage = record.storage
        node = NodeHistory(record.node, record.cpus, record.memory, record.io_executors, storage, joined=record.t)
        node.countable = record.countable
        self._add_node(node)

    def _add_node(self, node: NodeHistory) -> None:
        self._history.nodes[node.name] = node
        for layer in node.storage:
            if layer.shared:
                self._shared.add(layer.name)
            key = ("" if layer.shared else node.name, layer.name)
            if key not in self._history.devices:
                self._history.devices[key] = DeviceHistory(*key, layer.bandwidth, layer.mount, layer.capacity)

    def _on_node_lost(self, record: records.NodeLost) -> None:
        node = self._history.nodes.get(record.node)
        if node is not None:
            node.lost = record.t

    def _device(self, node: str, layer: str) -> DeviceHistory | None:
        return self._history.devices.get(("" if layer in self._shared else node, layer))

    def _on_device(self, record: records.Device) -> None:
        device = self._device(record.node, record.layer)
        if device is None:
            return
        _advance(device, record.t)
        device.used, device.running = record.used, record.running
        if device.capacity is not None:
            self._history.stored.append((record.t, (device.node, device.layer), record.stored))

    def _on_moved(self, record: records.Moved) -> None:
        if not record.error and (device := self._target(record)) is not None:
            device.moved += record.bytes

    def _target(self, record: records.Moved) -> DeviceHistory | None:
        """Where a file was moved to: a layer, or home, which is on the device with the longest mount above it."""
        devices = self._history.devices.values()
        if record.layer:
            return next((device for device in devices if device.layer == record.layer), None)
        above = [device for device in devices if record.path.startswith(device.mount.rstrip("/") + "/")]
        return max(above, key=lambda device: len(device.mount), default=None)

    def _on_chosen(self, record: records.ConstraintChosen) -> None:
        self._history.learned.append((record.t, record.name, record.layer, True))

    def _on_drifted(self, record: records.ConstraintDrifted) -> None:
        self._history.learned.append((record.t, record.name, record.layer, False))

    def _on_settled(self, record: records.LimitSettled) -> None:
        for function in record.functions:
            self._history.learned.append((record.t, function, record.layer, True))

    # --- attempts -----------------------------------------------------------------------------------------------------

    def _on_declared(self, record: records.Declared) -> None:
        self._declared[record.function] = self._declared[record.name] = record

    def _on_waited(self, record: records.Waited) -> None:
        self._history.waits.append((record.t - record.seconds, record.t))

    def _on_submitted(self, record: records.Submitted) -> None:
        call = _Call(
            record.task,
            len(self._history.calls),
            record.name,
            record.t,
            record.cpus,
            record.io,
            record.learned,
            record.function,
            record.reads,
            record.count,
        )
        self._history.calls.append(record.t)
        self._calls[record.task] = call
        for version in record.writes:
            self._maker[version] = record.task

    def _on_launched(self, record: records.Launched) -> None:
        call = self._calls.get(record.task)
        if call is None:
            return  # a log that begins in the middle
        group = self._group(call, record)
        attempt = Attempt(call.task, call.index, group, call.at, launched=record.t, node=record.node, lane=record.lane)
        attempt.number = record.attempt
        attempt.hosts = tuple(record.hosts)
        attempt.count = call.count
        self._set_ready(call, attempt)
        call.attempt = attempt

    def _group(self, call: _Call, record: records.Launched) -> Group:
        # What is learned differs from one attempt to the next: it would only make groups of one.
        bandwidth = 0.0 if call.learned else record.bandwidth
        key = (call.name, call.cpus, call.function, bandwidth, record.layer, record.implementation)
        group = self._groups.get(key)
        if group is None:
            need = self._declared.get(record.implementation or call.function) or records.Declared(
                0.0, 0, "", cpus=call.cpus
            )
            group = self._groups[key] = Group(
                record.implementation or call.name,
                need.cpus,
                need.memory,
                call.io,
                call.learned,
                bandwidth,
                need.capacity,
                record.layer,
                need.processes,
                tuple(need.countable),
            )
        return group

    def _set_ready(self, call: _Call, attempt: Attempt) -> None:
        """What was there when it was called needs no mention; else the last one to come made it ready."""
        attempts = self._history.attempts
        attempt.ready = call.at
        early: _Early | None = None
        if call.failed >= 0:
            attempt.after = call.failed
            attempt.ready = attempts[call.failed].ended
            return
        for version in call.reads:
            if version in self._early:
                there, by = self._early[version]
                if there > attempt.ready:
                    attempt.ready, early = there, by
                continue
            done = self._done.get(self._maker.get(version, -1), -1)
            if done >= 0 and attempts[done].ended > attempt.ready:
                attempt.ready, early = attempts[done].ended, None
                attempt.after = done
        if early is not None:
            # Its place in the history is known when it is over.
            attempt.after = early.position
            early.awaited.append(attempt)

    def _on_fetched(self, record: records.Fetched) -> None:
        call = self._calls.get(record.task)
        if call is not None and call.attempt is not None:
            call.attempt.fetching += record.seconds

    def _on_output(self, record: records.Output) -> None:
        call = self._calls.get(record.task)
        if call is None or record.version in self._early:
            return
        if call.early is None:
            call.early = _Early()
        call.early.times.append(record.t)
        self._early[record.version] = (record.t, call.early)

    def _on_finished(self, record: records.Finished) -> None:
        call = self._calls.pop(record.task, None)
        if call is None or call.attempt is None:
            return
        attempt = call.attempt
        attempt.ok = True
        attempt.bytes = record.bytes
        self._done[record.task] = self._end(call, attempt, record.t, record.seconds)
        if record.layer and (device := self._device(attempt.node, record.layer)) is not None:
            device.written += record.bytes

    def _end(self, call: _Call, attempt: Attempt, t: float, seconds: float | None) -> int:
        """An attempt is over; where it is kept."""
        lane = (attempt.node, attempt.lane)
        attempt.taken = min(t, max(attempt.launched, self._lane_free.get(lane, 0.0)))
        attempt.ready = min(attempt.ready, attempt.taken)
        attempt.begun = attempt.taken
        # What is far below the times themselves is rounding, not waiting.
        if seconds is not None and t - seconds - attempt.taken > _ROUNDING * t:
            attempt.begun = t - seconds
        attempt.ended = t
        self._lane_free[lane] = t
        return self._keep(call, attempt)

    def _keep(self, call: _Call, attempt: Attempt) -> int:
        call.attempt = None
        position = len(self._history.attempts)
        self._history.attempts.append(attempt)
        if call.early is not None:
            self._place(call.early, position)
            call.early = None
        return position

    def _place(self, early: _Early, position: int) -> None:
        """An attempt that handed over outputs has its place in the history."""
        early.position = position
        for attempt in early.awaited:
            attempt.after = position
        self._history.releases += [(time, position) for time in early.times]

    def _on_failed(self, record: records.Failed) -> None:
        call = self._calls.get(record.task)
        if record.final:
            self._history.failed += 1
            self._calls.pop(record.task, None)
            if len(self._history.failures) < _KEPT_FAILURES:
                name = "" if call is None else call.name
                self._history.failures.append(TaskFailure(record.task, name, record.kind, record.message))
        else:
            self._history.retried += 1
        if call is not None and call.attempt is not None:
            call.failed = self._end(call, call.attempt, record.t, record.seconds or None)

    def _on_cancelled(self, record: records.Cancelled) -> None:
        self._history.cancelled += 1
        call = self._calls.pop(record.task, None)
        if call is not None and call.attempt is not None:
            self._end(call, call.attempt, record.t, None)

    def _on_recalled(self, record: records.Recalled) -> None:
        call = self._calls.get(record.task)
        if call is not None:
            call.attempt = None

    def _on_dropped(self, record: records.Dropped) -> None:
        self._history.dropped += record.records

    def _on_run_ended(self, record: records.RunEnded) -> None:
        self._history.ended = record


def _advance(device: DeviceHistory, now: float) -> None:
    span = now - device.since
    if span > 0:
        device.held += device.used * span
        device.busy += span if device.running else 0.0
        device.since = now
