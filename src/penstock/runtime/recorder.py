"""Turns what a driver does, on real or on virtual time, into records of the event log.

All times that it is told are of the driver's own clock; records count from the start of the run.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from penstock.executors import wire
from penstock.executors.saying import say
from penstock.model import commands, events
from penstock.model.data import FileRef, Slot, Value
from penstock.model.resources import Node, StorageLayer
from penstock.model.tasks import FailureKind, TaskCall, TaskSpec
from penstock.model.waits import Wait
from penstock.observe import records
from penstock.observe.log import EventLog

if TYPE_CHECKING:
    from penstock.engine.devices import DeviceRecord
    from penstock.engine.engine import Engine

__all__ = ["Recorder"]

_NOWHERE = ("", -1, "")


class Recorder:
    """Writes one run's events. Who calls it for every task looks first whether the log is active."""

    def __init__(self, log: EventLog, engine: Engine, node: str, start: float) -> None:
        self.log = log
        self._engine = engine
        #: where worker processes are that we are told of
        self._node = node
        self._start = start
        #: node, lane and storage layer of attempts under way, so that their end can name them
        self._places: dict[int, tuple[str, int, str]] = {}
        #: functions that were declared, by the identity of their specification, which is kept with their number
        self._declared: dict[int, tuple[TaskSpec, int]] = {}
        #: the attempt that said last how long it ran before it failed
        self._failed: tuple[int, float] = (0, 0.0)
        #: why the MPI world of a lane takes no more tasks
        self._spent: dict[int, str] = {}
        #: the user knows that data were lost
        self._warned = False
        #: functions that were called, by task, where another implementation may run in their place
        self._called: dict[int, TaskSpec] = {}

    def started(self, version: str, argv: list[str], scheduler: str, nodes: Iterable[Node], wall: float) -> None:
        """The run begins, on these nodes; each of them is told of when it joins, too."""
        nodes = list(nodes)
        rules, first = self._engine.state.rules, nodes[0]
        self.log.append(
            records.RunStarted(
                0.0,
                wall,
                version,
                argv,
                sum(node.cpus for node in nodes),
                sum(node.memory for node in nodes),
                first.name,
                scheduler,
                first.io_executors,
                rules.scheduler,
                _layers(first.storage),
                rules.ageing,
                rules.data_movement,
                rules.ceiling,
                rules.tuner,
                rules.tie,
                rules.counted_per,
            )
        )

    def launched(self, command: commands.Launch, now: float) -> None:
        """An attempt was sent to a lane."""
        self._places[command.task] = (command.node, command.lane, command.layer)
        t = now - self._start
        about = (t, command.task, command.attempt, command.node, command.lane)
        if command.layer or command.hosts or self._called:
            special: dict[str, Any] = {"implementation": self._implementation(command, t), "hosts": list(command.hosts)}
            if command.layer:
                special |= {"layer": command.layer, "bandwidth": command.bandwidth}
            self.log.append(records.Launched(*about, **special))
            if command.layer:
                self._devices(t, command.node, command.layer)
        else:
            self.log.append(records.Launched(*about))

    def _implementation(self, command: commands.Launch, t: float) -> str:
        """The name of the function that runs in place of the one that was called; empty if it is the same."""
        spec = command.call.spec
        if self._called.get(command.task, spec).name == spec.name:
            return ""
        if id(spec) not in self._declared:
            self._declare(spec, t)
        return spec.name

    def event(self, event: events.Event, now: float) -> None:
        """Something was told to the engine, which has dealt with it."""
        t = now - self._start
        kind = type(event)
        if kind is events.Submitted:
            self._submitted(event.call, t)  # type: ignore[union-attr]
        elif kind is events.Finished:
            self._finished(event, t)  # type: ignore[arg-type]
        elif kind is events.OutputReady:
            self._output(event, t)  # type: ignore[arg-type]
        elif kind is events.Failed:
            self._failed = (event.task, event.seconds)  # type: ignore[union-attr]
        elif kind is events.Recalled:
            for task in event.tasks:  # type: ignore[union-attr]
                self.log.append(records.Recalled(t, task))
        elif kind is events.Discarded:
            self._devices(t)
        elif kind is events.NodeJoined:
            self._joined(event.node, t)  # type: ignore[union-attr, arg-type]
        elif kind is events.NodeLost:
            self.log.append(records.NodeLost(t, event.name))  # type: ignore[union-attr]

    def _submitted(self, call: TaskCall, t: float, *, again: bool = False) -> None:
        spec = call.spec
        declared = self._declared.get(id(spec))
        function = self._declare(spec, t) if declared is None else declared[1]
        if spec.implementations:
            self._called[call.task] = spec
        need = spec.requirements
        about = (t, call.task, spec.name, call.count, list(call.reads), list(call.writes))
        how = (need.cpus, need.io, need.auto is not None, function)
        if call.outputs and any(output.file for output in call.outputs):
            paths = [output.file or "" for output in call.outputs]
            temp = all(output.temp for output in call.outputs if output.file)
            self.log.append(records.Submitted(*about, *how, paths, temp, label=call.label))
        elif again or call.label:
            self.log.append(records.Submitted(*about, *how, again=again, label=call.label))
        else:
            self.log.append(records.Submitted(*about, *how))

    def _declare(self, spec: TaskSpec, t: float) -> int:
        number = len(self._declared) + 1
        self._declared[id(spec)] = (spec, number)
        need = spec.requirements
        values = (
            spec.identity,
            need.cpus,
            need.memory,
            need.io,
            need.bandwidth,
            need.capacity,
            need.auto,
            list(need.properties),
            spec.priority,
            spec.retries,
            spec.timeout,
            spec.on_failure.value,
            need.processes,
            need.processes_per_node,
            spec.retry_delay,
            list(need.countable),
        )
        kind = records.Declared
        fields = zip(kind.__struct_fields__[-len(values) :], values, kind.__struct_defaults__, strict=True)
        said: dict[str, Any] = {name: value for name, value, default in fields if value != default}
        self.log.append(kind(t, number, spec.name, **said))
        return number

    def _finished(self, event: events.Finished, t: float) -> None:
        size = sum(map(_size, event.outputs))
        node, lane, layer = self._places.pop(event.task, _NOWHERE)
        if self._called:
            self._called.pop(event.task, None)
        about = (t, event.task, event.attempt, node or self._node, lane, event.seconds, size, layer)
        files = [output.size for output in event.outputs if type(output) is FileRef]
        self.log.append(records.Finished(*about, files) if files else records.Finished(*about))
        if layer:
            self._devices(t, node, layer)

    def _output(self, event: events.OutputReady, t: float) -> None:
        task = self._engine.state.tasks.get(event.task)
        if task is None:
            return  # it was given up in the meantime
        writes = task.call.writes
        version = writes[event.index] if event.index < len(writes) else event.version
        if version:
            self.log.append(records.Output(t, event.task, event.attempt, version, _size(event.value)))

    def _joined(self, node: Node, t: float) -> None:
        about = (node.name, node.cpus, node.memory, node.io_executors)
        self.log.append(
            records.NodeJoined(t, *about, _layers(node.storage), list(node.properties), list(node.countable))
        )

    def _devices(self, t: float, node: str = "", layer: str = "") -> None:
        """Bandwidth or room was taken or given back: of one device, or of any."""
        nodes = self._engine.state.ledger.nodes
        if not node:
            for device in self._engine.state.ledger.devices():
                self._device(t, next(name for name, record in nodes.items() if device in record.devices), device)
        elif node in nodes:
            self._device(t, node, next(device for device in nodes[node].devices if device.name == layer))

    def _device(self, t: float, node: str, device: DeviceRecord) -> None:
        used = device.layer.bandwidth - device.free_bandwidth
        about = (used, len(device.holders), len(self._engine.state.io_ready), device.stored)
        self.log.append(records.Device(t, "" if device.layer.shared else node, device.name, *about))

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
                case events.DeliveryMeasured():
                    record = records.DeliveryMeasured(
                        t, note.layer, note.node, note.concurrency, note.delivered, note.error
                    )
                case events.LimitSettled():
                    record = records.LimitSettled(
                        t,
                        note.layer,
                        note.node,
                        list(note.functions),
                        note.concurrency,
                        note.delivered,
                        note.constraint,
                        note.other,
                        note.other_delivered,
                        note.remembered,
                    )
                case events.DeliveryChanged():
                    record = records.DeliveryChanged(
                        t, note.layer, note.node, note.concurrency, note.before, note.delivered
                    )
                case events.LayerShared():
                    record = records.LayerShared(t, note.layer, note.others, note.bandwidth)
            self.log.append(record)

    def waited(self, since: float, now: float) -> None:
        """A thread of the program waited for tasks, until now."""
        self.log.append(records.Waited(now - self._start, now - since))

    def fetched(self, task: int, attempt: int, seconds: float, size: int, now: float) -> None:
        """An attempt has got its data from other nodes."""
        self.log.append(records.Fetched(now - self._start, task, attempt, seconds, size))

    def moved(self, command: commands.Move, size: int, seconds: float, error: str, now: float) -> None:
        """A file was moved, or could not be."""
        t = now - self._start
        record = records.Moved(t, command.version, command.name, command.source, command.layer, size, seconds, error)
        self.log.append(record)

    def draining(self, now: float) -> None:
        """The tasks are over; whatever files lie on layers go home now."""
        placed = [version.placed for version in self._engine.state.placed.values() if version.placed is not None]
        sizes = [one.size for one in placed if not one.temp]
        if sizes:
            self.log.append(records.Draining(now - self._start, len(sizes), sum(sizes)))

    def reports(self, now: float) -> None:
        """What the engine says of attempts and tasks that did not deliver."""
        reports = self._engine.state.reports
        if self.log.active:
            t = now - self._start
            for report in reports:
                match report:
                    case events.Report():
                        self._report(report, t)
                    case events.Lost(version, task, why, again):
                        self.log.append(records.Lost(t, version, task, why, again))
                    case events.RunAgain(call):
                        self._submitted(call, t, again=True)
        if not self._warned:
            self._warn_of_loss(reports)
        reports.clear()

    def _warn_of_loss(self, reports: Iterable[object]) -> None:
        """Once in a run: what is computed again costs time, and a disk that loses data will go on doing so."""
        lost = next((one for one in reports if type(one) is events.Lost and one.again), None)
        if lost is not None:
            self._warned = True
            task = self._engine.state.tasks.get(lost.task)
            name = lost.task if task is None else task.label
            say(
                f"penstock: an output of task {name} was lost: {lost.why}. It is computed again, and so is whatever "
                f"else may be lost in this run; the event log has it all.\n"
            )

    def _report(self, report: events.Report, t: float) -> None:
        node, lane, layer = self._places.pop(report.task, _NOWHERE)
        if layer:
            self._devices(t, node, layer)
        if report.final:
            self._called.pop(report.task, None)
        failure = report.failure
        if failure.kind is FailureKind.CANCELLED:
            self.log.append(records.Cancelled(t, report.task))
            return
        about = (report.node, lane, failure.kind.value, failure.message, report.final)
        ran: dict[str, Any] = {"seconds": self._failed[1]} if self._failed[0] == report.task else {}
        self._failed = (0, 0.0)
        self.log.append(records.Failed(t, report.task, report.attempt, *about, **ran))

    def worker(self, what: str, lane: int, pid: int, status: int) -> None:
        """A worker process started or died."""
        t = time.monotonic() - self._start
        if what == "started":
            self.log.append(records.WorkerStarted(t, self._node, lane, pid))
        elif what == "ended":
            self.log.append(records.WorkerEnded(t, self._node, lane, pid))
        else:
            self.log.append(records.WorkerDied(t, self._node, lane, pid, status))

    def world(self, lane: int, ranks: int, said: wire.Up | None) -> None:
        """An MPI world started, lost a rank, is spent, or (if nothing is said) ended."""
        t = time.monotonic() - self._start
        match said:
            case wire.WorldStarted(seconds):
                self.log.append(records.WorldStarted(t, self._node, lane, ranks, seconds))
            case wire.RankFailed(task, attempt, rank, message):
                self.log.append(records.RankFailed(t, task, attempt, self._node, rank, message))
            case wire.Spent(reason):
                self._spent[lane] = reason
            case None:
                self.log.append(records.WorldEnded(t, self._node, lane, ranks, self._spent.pop(lane, "")))

    def spilled(self, command: commands.Spill, seconds: float, error: str, now: float) -> None:
        """A segment was moved to disk, or could not be."""
        about = (command.segment, command.layer, command.size, seconds, error)
        self.log.append(records.Spilled(now - self._start, *about))

    def restored(self, command: commands.Restore, seconds: float, error: str, now: float) -> None:
        """A segment was moved back to memory, or could not be."""
        about = (command.segment, command.layer, command.size, seconds, error)
        self.log.append(records.Restored(now - self._start, *about))

    def freed(self, segment: int, size: int, now: float) -> None:
        """A segment was deleted."""
        self.log.append(records.Freed(now - self._start, segment, size))

    def published(self, version: int, path: str, now: float) -> None:
        """A file got its final name."""
        self.log.append(records.Published(now - self._start, version, path))

    def stuck(self, seconds: float, waits: list[Wait], now: float) -> None:
        """Nothing has moved for so long."""
        waiting = [(wait.function, wait.count, wait.reason, wait.holder) for wait in waits]
        self.log.append(records.Stuck(now - self._start, seconds, waiting))


def _layers(layers: Iterable[StorageLayer]) -> list[records.Layer]:
    return [
        records.Layer(
            *(one.name, one.mount, one.bandwidth, one.capacity, one.shared),
            *(list(one.curve), list(one.measured), one.temporary, one.enforced),
        )
        for one in layers
    ]


def _size(output: Slot | None) -> int:
    if output is None:
        return 0
    return output.nbytes() if type(output) is Value else output.size  # type: ignore[union-attr]
