"""Turns what the driver does into records of the event log."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from penstock.model import commands, events
from penstock.model.data import Value
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

    def launched(self, command: commands.Launch, now: float) -> None:
        """An attempt was sent to a lane."""
        self._lanes[command.task] = command.lane
        t = now - self._start
        self.log.append(records.Launched(t, command.task, command.attempt, command.node, command.lane))

    def event(self, event: events.Event, now: float) -> None:
        """Something was told to the engine, which has dealt with it."""
        t = now - self._start
        kind = type(event)
        if kind is events.Submitted:
            call = event.call  # type: ignore[union-attr]
            name, cpus = call.spec.name, call.spec.requirements.cpus
            record = records.Submitted(t, call.task, name, call.count, list(call.reads), list(call.writes), cpus)
            self.log.append(record)
        elif kind is events.Finished:
            self._finished(event, t)  # type: ignore[arg-type]
        elif kind is events.Recalled:
            for task in event.tasks:  # type: ignore[union-attr]
                self.log.append(records.Recalled(t, task))

    def _finished(self, event: events.Finished, t: float) -> None:
        size = sum(output.nbytes() for output in event.outputs if type(output) is Value)
        lane = self._lanes.pop(event.task, -1)
        self.log.append(records.Finished(t, event.task, event.attempt, self._node, lane, event.seconds, size))

    def reports(self, now: float) -> None:
        """What the engine says of attempts and tasks that did not deliver."""
        reports = self._engine.state.reports
        if self.log.active:
            for report in reports:
                self._report(report, now - self._start)
        reports.clear()

    def _report(self, report: events.Report, t: float) -> None:
        lane = self._lanes.pop(report.task, -1)
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
        else:
            self.log.append(records.WorkerDied(t, self._node, lane, pid, status))

    def freed(self, segment: int, size: int, now: float) -> None:
        """A segment was deleted."""
        self.log.append(records.Freed(now - self._start, segment, size))

    def published(self, version: int, path: str, now: float) -> None:
        """A file got its final name."""
        self.log.append(records.Published(now - self._start, version, path))
