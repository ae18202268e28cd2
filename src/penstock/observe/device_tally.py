"""What a run does with its storage, kept from the records of the log: per device, and per constraint that is learned.

The tally of tasks passes on what concerns storage. Memory grows with devices and functions, never with tasks.
"""

from __future__ import annotations

import os
from collections import deque

from msgspec import Struct, field

from penstock.observe import records
from penstock.observe.rates import Samples, recent_rate

__all__ = ["ConstraintTally", "DeviceLine", "DeviceTally", "StorageTally"]


class DeviceTally(Struct):
    """What is known of the storage devices of one layer; several nodes may have one each."""

    name: str
    mount: str
    #: bytes per second that it can bear
    limit: float
    #: bytes that tasks may fill; None is without limit
    capacity: int | None
    #: one device for all nodes
    shared: bool = False
    #: nodes that have one
    nodes: int = 0
    #: how the device of each node stands, as it last said
    parts: dict[str, records.Device] = field(default_factory=dict)
    #: bytes per second that attempts hold
    used: float = 0.0
    #: attempts that hold some
    running: int = 0
    #: bytes that finished tasks wrote through it
    written: int = 0
    #: bytes of finished files that are there now
    stored: int = 0
    #: files that were moved away from it, and their bytes
    flushes: int = 0
    flushed: int = 0
    #: when it was first used; None if never
    first: float | None = None
    #: seconds for which attempts ran there, up to ``since`` if some do now
    seconds: float = 0.0
    since: float = 0.0
    #: other programs that use it too, since when, and for how long any did before
    programs: int = 0
    programs_since: float = 0.0
    programs_seconds: float = 0.0
    #: how long the last finished attempt took
    last_seconds: float = 0.0
    samples: Samples = field(default_factory=deque)

    def seconds_in_use(self, now: float) -> float:
        """For how long attempts ran there."""
        return self.seconds + (max(0.0, now - self.since) if self.running else 0.0)

    def seconds_shared(self, now: float) -> float:
        """For how long other programs used it too."""
        return self.programs_seconds + (max(0.0, now - self.programs_since) if self.programs else 0.0)

    def rate(self, now: float) -> float:
        """Bytes per second written of late."""
        return recent_rate(self.samples, self.first or 0.0, now, self.written, self.last_seconds)


class ConstraintTally(Struct):
    """A bandwidth constraint that is learned: of one function on one layer."""

    function: str
    layer: str
    #: bytes per second: what was chosen, or while learning that of the epoch under way; 0 before the first
    value: float = 0.0
    #: tasks that run together at the chosen value; None while learning
    concurrency: int | None = None
    #: epochs that ended, and the tasks in them
    epochs: int = 0
    tasks: int = 0
    #: earlier runs had learned it
    remembered: bool = False

    @property
    def learning(self) -> bool:
        return self.concurrency is None


class DeviceLine(Struct, frozen=True):
    """One device of the view."""

    name: str
    used: float
    limit: float
    running: int
    #: bytes per second written of late
    rate: float
    stored: int
    capacity: int | None


class StorageTally:
    """The devices of a run and the constraints it learns."""

    def __init__(self) -> None:
        #: in the order of the layers, fastest first
        self.devices: dict[str, DeviceTally] = {}
        self.constraints: dict[tuple[str, str], ConstraintTally] = {}
        #: ready I/O tasks that wait; any device may be theirs
        self.waiting = 0
        #: bytes of the object store that went to disk for want of memory, and came back
        self.spilled = self.restored = 0

    def lines(self, now: float) -> list[DeviceLine]:
        """The devices that were used, as they stand at ``now``."""
        return [
            DeviceLine(
                name=device.name,
                used=device.used,
                limit=device.limit,
                running=device.running,
                rate=device.rate(now),
                stored=device.stored,
                capacity=device.capacity,
            )
            for device in self.devices.values()
            if device.first is not None
        ]

    # What happened. Layers that are not known (a log read from its middle) are passed over.

    def on_run_started(self, record: records.RunStarted) -> None:
        """Learn which layers there are."""
        for layer in record.storage:
            self.devices[layer.name] = _tally_of(layer)

    def on_node_joined(self, record: records.NodeJoined) -> None:
        """A node brings devices of its own."""
        for layer in record.storage:
            device = self.devices.setdefault(layer.name, _tally_of(layer))
            device.nodes += 1
            if device.nodes > 1 and not layer.shared:
                device.limit += layer.bandwidth
                if device.capacity is not None:
                    device.capacity = None if layer.capacity is None else device.capacity + layer.capacity

    def on_launched(self, record: records.Launched, function: str, *, learned: bool) -> None:
        """An attempt of ``function``, whose constraint may be ``learned``, went to a layer."""
        device = self.devices.get(record.layer)
        if device is not None and device.first is None:
            device.first = record.t
        if learned:
            constraint = self._constraint(function, record.layer)
            if constraint.learning:
                constraint.value = record.bandwidth

    def on_finished(self, record: records.Finished) -> None:
        """An attempt delivered what it wrote to a layer."""
        device = self.devices.get(record.layer)
        if device is not None:
            device.written += record.bytes
            device.last_seconds = record.seconds

    def on_device(self, record: records.Device) -> None:
        """Bandwidth was taken or given back."""
        self.waiting = record.waiting
        device = self.devices.get(record.layer)
        if device is None:
            return
        if device.running:
            device.seconds += record.t - device.since
        device.since = record.t
        before = device.parts.get(record.node)
        device.parts[record.node] = record
        device.used += record.used - (before.used if before else 0.0)
        device.running += record.running - (before.running if before else 0)
        device.stored += record.stored - (before.stored if before else 0)

    def on_moved(self, record: records.Moved) -> None:
        """A file left its layer for another, or for its home."""
        if record.error:
            return
        source = self._device_of(record.source)
        target = self.devices.get(record.layer) if record.layer else self._device_of(record.path)
        if source is not None:
            source.flushes += 1
            source.flushed += record.bytes
        if target is not None and target.first is None:
            target.first = record.t

    def on_spilled(self, record: records.Spilled) -> None:
        """A part of the object store went to disk."""
        if not record.error:
            self.spilled += record.bytes

    def on_restored(self, record: records.Restored) -> None:
        """A part of the object store came back."""
        if not record.error:
            self.restored += record.bytes

    def on_epoch_ended(self, record: records.EpochEnded) -> None:
        """Another value was measured; the next epoch shows itself by its launches."""
        constraint = self._constraint(record.name, record.layer)
        constraint.value = record.constraint
        constraint.concurrency = None
        constraint.epochs += 1
        constraint.tasks += record.tasks

    def on_constraint_chosen(self, record: records.ConstraintChosen) -> None:
        """Learning is over, or more or fewer waiting tasks make another value better."""
        constraint = self._constraint(record.name, record.layer)
        constraint.value = record.constraint
        constraint.concurrency = record.concurrency
        constraint.remembered = record.remembered

    def on_constraint_drifted(self, record: records.ConstraintDrifted) -> None:
        """Learning begins anew."""
        constraint = self._constraint(record.name, record.layer)
        constraint.value = 0.0
        constraint.concurrency = None
        constraint.remembered = False

    def on_limit_settled(self, record: records.LimitSettled) -> None:
        """It is known how many attempts at a time get most from a device."""
        for function in record.functions:
            constraint = self._constraint(function, record.layer)
            constraint.value = record.constraint
            constraint.concurrency = record.concurrency
            constraint.remembered = record.remembered

    def on_delivery_changed(self, record: records.DeliveryChanged) -> None:
        """It is looked for again."""
        for constraint in self.constraints.values():
            if constraint.layer == record.layer:
                constraint.concurrency = None
                constraint.remembered = False

    def on_layer_shared(self, record: records.LayerShared) -> None:
        """Other programs came to use it, or went."""
        device = self.devices.get(record.layer)
        if device is not None:
            device.programs_seconds = device.seconds_shared(record.t)
            device.programs, device.programs_since = record.others, record.t

    def _constraint(self, function: str, layer: str) -> ConstraintTally:
        key = (function, layer)
        found = self.constraints.get(key)
        if found is None:
            found = self.constraints[key] = ConstraintTally(function, layer)
        return found

    def _device_of(self, path: str) -> DeviceTally | None:
        """The device on which a file lies: that with the longest mount above it."""
        above = [device for device in self.devices.values() if _is_under(path, device.mount)]
        return max(above, key=lambda device: len(device.mount), default=None)


def _tally_of(layer: records.Layer) -> DeviceTally:
    return DeviceTally(layer.name, layer.mount, layer.bandwidth, layer.capacity, layer.shared)


def _is_under(path: str, mount: str) -> bool:
    return path.startswith(os.path.join(mount, ""))
