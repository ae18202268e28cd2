"""Turns what the driver does into records of the event log."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from penstock.model import commands, events
from penstock.model.data import Slot, Value
from penstock.model.tasks import FailureKind
from penstock.observe import records
from penstock.observe.log import EventLog

if TYPE_CHECKING:
    from penstock.engine.engine import Engine

__all__ = ["Recorder"]


class Recorder:
    """Writes one run's events. Who calls it for every task looks first whether the log is active."""

    def __init__(self, log: EventLog, engine: Engine, node: str, start: float) -> None:
        self.log = log
        self._engine = engine
        self._node = node
        self._start = start
        #: lanes of attempts under way, so that their end can name the lane
        self._lanes: dict[int, int] = {}
        #: storage layers of attempts under way
        self._layers: dict[int, str] = {}

    def launched(self, command: commands.Launch, now: float) -> None:
        """An attempt was sent to a lane."""
        self._lanes[command.task] = command.lane
        t = now - self._start
        about = (t, command.task, command.attempt, command.node, command.lane)
        if command.layer:
            self._layers[command.task] = command.layer
            self.log.append(records.Launched(*about, command.layer, command.bandwidth))
            self._devices(t, command.layer)
        else:
            self.log.append(records.Launched(*about))

    def event(self, event: events.Event, now: float) -> None:
        """Something was told to the engine, which has dealt with it."""
        t = now - self._start
        kind = type(event)
        if kind is events.Submitted:
            call = event.call  # type: ignore[union-attr]
            name, need = call.spec.name, call.spec.requirements
            reads, writes = list(call.reads), list(call.writes)
            how = (need.cpus, need.io, need.auto is not None)
            self.log.append(records.Submitted(t, call.task, name, call.count, reads, writes, *how))
        elif kind is events.Finished:
            self._finished(event, t)  # type: ignore[arg-type]
        elif kind is events.Recalled:
            for task in event.tasks:  # type: ignore[union-attr]
                self.log.append(records.Recalled(t, task))
        elif kind is events.Discarded:
            self._devices(t)

    def _finished(self, event: events.Finished, t: float) -> None:
        size = sum(map(_size, event.outputs))
        lane = self._lanes.pop(event.task, -1)
        layer = self._layers.pop(event.task, "")
        self.log.append(records.Finished(t, event.task, event.attempt, self._node, lane, event.seconds, size, layer))
        if layer:
            self._devices(t, layer)

    def _devices(self, t: float, layer: str = "") -> None:
        """Bandwidth or room of a device was taken or given back, or room of any device."""
        state = self._engine.state
        for device in state.ledger.devices():
            if not layer or device.name == layer:
                used = device.layer.bandwidth - device.free_bandwidth
                running, waiting = len(device.holders), len(state.io_ready)
                self.log.append(records.Device(t, self._node, device.name, used, running, waiting, device.stored))

    def notes(self, now: float) -> None:
        """What the engine says of constraints that are learned."""
        t = now - self._start
        for note in self._engine.state.notes:
            match note:
                case events.EpochEnded():
                    record: records.Record = records.EpochEnded(
                        t,
                        note.function,
                        note.layer,
                        note.node,
                        note.constraint,
                        note.seconds,
                        note.concurrency,
                        note.tasks,
                        note.partial,
                        note.registered,
                    )
                case events.ConstraintChosen():
                    record = records.ConstraintChosen(
                        t, note.function, note.layer, note.constraint, note.concurrency, note.seconds, note.remembered
                    )
                case events.ConstraintDrifted():
                    record = records.ConstraintDrifted(t, note.function, note.layer, note.ratio)
            self.log.append(record)

    def moved(self, command: commands.Move, size: int, seconds: float, error: str) -> None:
        """A file was moved, or could not be."""
        t = time.monotonic() - self._start
        record = records.Moved(t, command.version, command.name, command.source, command.layer, size, seconds, error)
        self.log.append(record)

    def draining(self) -> None:
        """The tasks are over; whatever files lie on layers go home now."""
        placed = [version.placed for version in self._engine.state.placed.values() if version.placed is not None]
        sizes = [one.size for one in placed if not one.temp]
        if sizes:
            self.log.append(records.Draining(time.monotonic() - self._start, len(sizes), sum(sizes)))

    def reports(self, now: float) -> None:
        """What the engine says of attempts and tasks that did not deliver."""
        reports = self._engine.state.reports
        if self.log.active:
            for report in reports:
                self._report(report, now - self._start)
        reports.clear()

    def _report(self, report: events.Report, t: float) -> None:
        lane = self._lanes.pop(report.task, -1)
        layer = self._layers.pop(report.task, "")
        if layer:
            self._devices(t, layer)
        failure = report.failure
        if failure.kind is FailureKind.CANCELLED:
            self.log.append(records.Cancelled(t, report.task))
            return
        kind, message = failure.kind.value, failure.message
        self.log.append(records.Failed(t, report.task, report.attempt, report.node, lane, kind, message, report.final))

    def worker(self, what: str, lane: int, pid: int, status: int) -> None:
        """A worker process started or died."""
        t = time.monotonic() - self._start
        if what == "started":
            self.log.append(records.WorkerStarted(t, self._node, lane, pid))
        elif what == "ended":
            self.log.append(records.WorkerEnded(t, self._node, lane, pid))
        else:
            self.log.append(records.WorkerDied(t, self._node, lane, pid, status))

    def freed(self, segment: int, size: int, now: float) -> None:
        """A segment was deleted."""
        self.log.append(records.Freed(now - self._start, segment, size))

    def published(self, version: int, path: str, now: float) -> None:
        """A file got its final name."""
        self.log.append(records.Published(now - self._start, version, path))


def _size(output: Slot | None) -> int:
    if output is None:
        return 0
    return output.nbytes() if type(output) is Value else output.size  # type: ignore[union-attr]
