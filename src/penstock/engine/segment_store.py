"""What the engine knows of the shared-memory store: which segments lie in memory, which are spilled, who needs them.

A task that reads segments is *admitted* when all its other data exist: its segments are pinned until it is over. As
much is admitted at a time as memory holds; the others are *parked*, so that what they read may be spilled meanwhile.
A segment that no admitted task needs is idle. What moves when is in spilling.py.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from typing import TYPE_CHECKING

from msgspec import Struct

from penstock.model.commands import Divert, Free
from penstock.model.data import SegmentId, TaskId, Value, VersionId, in_segments, segments_of

if TYPE_CHECKING:
    from penstock.engine.devices import DeviceRecord
    from penstock.engine.state import State, TaskRecord

__all__ = [
    "SegmentRecord",
    "Store",
    "StoreRules",
    "admit",
    "admits",
    "change_used",
    "device_for",
    "divert",
    "forget_needs",
    "free",
    "note_segment",
    "note_value",
    "takes",
]

#: of the capacity: what is made beyond it goes straight to disk, so that tasks which make data faster than the disk
#: takes them are slowed to its pace. In between lies what running tasks use and what is on its way out.
_MOST = 1.5


class StoreRules(Struct, frozen=True):
    """How the store of the node is used."""

    #: bytes that may lie in memory for long
    capacity: int
    #: storage layers to which segments are spilled, best first; empty is a place on none of them
    places: tuple[str, ...] = ("",)
    #: the layer on which lies what is spilled as it is written; empty for none
    direct: str = ""


class SegmentRecord:
    """A segment that somebody holds."""

    __slots__ = (
        "device",
        "dropped",
        "leaving",
        "left",
        "parked",
        "pins",
        "returning",
        "segment",
        "size",
        "spilled",
    )

    def __init__(self, segment: SegmentId) -> None:
        self.segment = segment
        self.size = 0
        #: admitted tasks that need it
        self.pins = 0
        #: parked tasks that need it
        self.parked = 0
        #: it lies on disk; while it is returning, still
        self.spilled = False
        #: the device on which it takes room, if it is on one that is a storage layer, or on its way
        self.device: DeviceRecord | None = None
        #: it is being spilled, or restored
        self.leaving = self.returning = False
        #: it stays on disk although it is pinned: who needs it reads it there
        self.left = False
        #: nobody holds it any more; it goes when it has been moved
        self.dropped = False

    @property
    def in_memory(self) -> bool:
        """Whether it takes room in memory."""
        return not self.spilled or self.returning


class Store:
    """The segments of a run."""

    def __init__(self, rules: StoreRules) -> None:
        self.capacity = rules.capacity
        self.most = int(rules.capacity * _MOST)
        self.rules = rules
        self.records: dict[SegmentId, SegmentRecord] = {}
        #: bytes in memory, with what is on its way in or out
        self.used = 0
        #: of these, what is on its way out
        self.leaving = 0
        #: bytes of segments that admitted tasks need in memory
        self.pinned = 0
        #: new segments go to disk, unless that has no room after all
        self.diverted = False
        #: segments in memory that no task needs now, the one idle for longest first
        self.idle: OrderedDict[SegmentId, SegmentRecord] = OrderedDict()
        #: those that only parked tasks need; the last will be needed last
        self.wanted: OrderedDict[SegmentId, SegmentRecord] = OrderedDict()
        #: being moved
        self.spills: dict[SegmentId, SegmentRecord] = {}
        self.restores: dict[SegmentId, SegmentRecord] = {}
        #: to be restored, by the device on which they are
        self.queues: dict[DeviceRecord | None, OrderedDict[SegmentId, SegmentRecord]] = {}
        #: what admitted tasks need
        self.needs: dict[TaskId, tuple[SegmentRecord, ...]] = {}
        #: admitted tasks that wait for segments to be restored, and for how many
        self.awaited: dict[TaskId, int] = {}
        #: who waits for a segment
        self.waiters: dict[SegmentId, dict[TaskId, TaskRecord]] = {}
        #: tasks that wait for room, and what they need
        self.parked: dict[TaskId, tuple[SegmentRecord, ...]] = {}
        #: the same in order; some are parked no more
        self.order: list[tuple[int, int, int, TaskRecord]] = []
        #: entries made there: a task that is run again has the place that it had, but is another record
        self.parkings = 0
        #: a parked task may have become admissible
        self.eased = False
        #: bytes in segments that a call of each function made lately, of those that made any
        self.makes: dict[int, int] = {}
        #: what lies in segments and the program holds, and the ready tasks that use it up once it does not
        self.readers: dict[VersionId, dict[TaskId, TaskRecord]] = {}
        #: what lies in segments and only tasks need, and how many bytes that is
        self.passing: dict[VersionId, int] = {}
        self.passing_bytes = 0
        #: a task that used something up has ended: one that was held back may go on
        self.turn = False
        #: how long such a task is waited for
        self.patient_until = 0.0
        #: places that could not take a segment, and until when that is believed
        self.refused: dict[str, float] = {}

    @property
    def is_pressed(self) -> bool:
        """Whether something may have to be moved, or admitted."""
        return bool(self.parked or self.queues) or self.used - self.leaving > self.capacity

    def waits(self, task: TaskId) -> bool:
        """Whether a task waits for the store."""
        return task in self.parked or task in self.awaited

    def rest(self, record: SegmentRecord) -> None:
        """Note where a segment stands among those that could be spilled, as of now."""
        self.idle.pop(record.segment, None)
        self.wanted.pop(record.segment, None)
        idle = not (record.pins or record.spilled or record.leaving)
        if idle and self.records.get(record.segment) is record:
            (self.wanted if record.parked else self.idle)[record.segment] = record

    def enqueue(self, record: SegmentRecord) -> None:
        """Have a spilled segment restored, as soon as that can be."""
        self.queues.setdefault(record.device, OrderedDict())[record.segment] = record

    def dequeue(self, record: SegmentRecord) -> None:
        """Do not restore it after all, or begin to."""
        queue = self.queues.get(record.device)
        if queue is not None and queue.pop(record.segment, None) is not None and not queue:
            del self.queues[record.device]

    def is_spilled(self, segments: set[SegmentId]) -> bool:
        """Whether any of these lies on disk."""
        records = (self.records.get(segment) for segment in segments)
        return any(record is not None and record.spilled for record in records)


def change_used(state: State, store: Store, change: int) -> None:
    """So much more, or less, lies in memory."""
    store.used += change
    if store.diverted or store.used > store.most:
        divert(state, store)


def divert(state: State, store: Store) -> None:
    """Have new segments written to disk or to memory, as is right now.

    The capacity is what memory should hold; that it holds more harms nobody as long as there is room in truth. So
    nothing is sent to a disk that takes nothing.
    """
    diverted = store.used > store.most and takes(state, store, store.rules.direct)
    if diverted is not store.diverted:
        store.diverted = diverted
        state.out.append(Divert(diverted))


def takes(state: State, store: Store, place: str, size: int = 1) -> bool:
    """Whether a place on disk may be asked to take a segment, by what is known of it."""
    if store.refused.get(place, -1.0) > state.now:
        return False
    return not place or device_for(state, place, size) is not None


def device_for(state: State, layer: str, size: int) -> DeviceRecord | None:
    """A device of a layer that has room."""
    devices = (device for device in state.ledger.devices() if device.name == layer and device.free_capacity >= size)
    return next(devices, None)


def trust(state: State, store: Store, place: str) -> None:
    """Something was deleted there: a place that was full may have room again."""
    if store.refused.pop(place, None) is not None:
        divert(state, store)


# --- segments come and go -------------------------------------------------------------------------------------------


def note_value(state: State, value: Value) -> None:
    """Count the segments in which a value lies."""
    if state.store is not None:
        for piece in value.pieces():
            note_segment(state, piece.segment, piece.offset + piece.size, spilled=piece.spilled)


def note_segment(state: State, segment: SegmentId, size: int, *, spilled: bool = False) -> None:
    """Count a segment; one that several pieces lie in has the size of the furthest."""
    store = state.store
    if store is None:
        return
    record = store.records.get(segment)
    if record is None:
        record = store.records[segment] = SegmentRecord(segment)
        record.spilled = spilled
        if spilled and store.rules.direct:
            devices = (device for device in state.ledger.devices() if device.name == store.rules.direct)
            record.device = next(devices, None)
        store.rest(record)
    grown = size - record.size
    if grown > 0:
        record.size = size
        if record.in_memory:
            change_used(state, store, grown)
        if record.leaving:
            store.leaving += grown
        if record.device is not None:
            record.device.store(grown)
        if record.pins and not record.left:
            store.pinned += grown


def free(state: State, segment: SegmentId) -> None:
    """Nobody holds a segment any more: have it removed, at once or when it has been moved."""
    store = state.store
    record = None if store is None else store.records.get(segment)
    if store is None or record is None:
        state.out.append(Free(segment))
        return
    if record.leaving or record.returning:
        record.dropped = True
        return
    del store.records[segment]
    store.rest(record)
    store.dequeue(record)
    if not record.spilled:
        change_used(state, store, -record.size)
    elif not record.device:
        trust(state, store, "")
    told = record.device is not None
    if record.device is not None:
        trust(state, store, record.device.name)
        state.discarding[f"s{segment}"] = (record.device, record.size)
    state.out.append(Free(segment, record.size, told))


# --- tasks ----------------------------------------------------------------------------------------------------------


def admits(state: State, store: Store, task: TaskRecord) -> bool:
    """Whether a task has its data in memory, or need not; if not, it waits until it may be made ready."""
    call = task.call
    if not (call.reads or call.segments) or task.task in store.needs:
        return True  # it needs none, or it is tried again
    records = _needed(state, store, task)
    if not records:
        return True
    new = sum(record.size for record in records if not record.pins)
    if new and (store.parked or (store.needs and store.pinned + new > store.capacity)):
        _park(store, task, records)
        return False
    return admit(store, task, records)


def _needed(state: State, store: Store, task: TaskRecord) -> tuple[SegmentRecord, ...]:
    segments = set(task.call.segments)
    for number in task.call.reads:
        outcome = state.versions[number].outcome
        if in_segments(outcome):
            segments |= segments_of(outcome)
    return tuple(store.records[segment] for segment in sorted(segments) if segment in store.records)


def _park(store: Store, task: TaskRecord, records: tuple[SegmentRecord, ...]) -> None:
    task.missing += 1
    store.parked[task.task] = records
    store.parkings += 1
    heapq.heappush(store.order, (-task.priority, task.serial, store.parkings, task))
    store.eased = True
    for record in records:
        record.parked += 1
        if not record.pins:
            store.rest(record)


def admit(store: Store, task: TaskRecord, records: tuple[SegmentRecord, ...]) -> bool:
    """Pin what a task needs; whether it can be made ready, since all of it is there.

    What lies on disk is restored as far as memory may hold it. The rest of a task that needs more is read on disk.
    """
    store.needs[task.task] = records
    awaited = 0
    for record in sorted(records, key=lambda record: record.spilled):  # what is there anyway first
        record.pins += 1
        if record.pins == 1:
            _pin(store, record)
        if not record.left and (record.spilled or record.leaving):
            store.waiters.setdefault(record.segment, {})[task.task] = task
            awaited += 1
    if awaited:
        store.awaited[task.task] = awaited
        task.missing += 1
    return not awaited


def _pin(store: Store, record: SegmentRecord) -> None:
    store.rest(record)
    on_disk = record.spilled and not record.returning
    if on_disk and store.pinned + record.size > store.capacity:
        record.left = True
        return
    store.pinned += record.size
    if on_disk:
        store.enqueue(record)


def forget_needs(state: State, task: TaskRecord) -> None:
    """A task is over, or must begin from its data anew: it needs no segments any more, and does not wait for them."""
    store = state.store
    if store is None:
        return
    parked = store.parked.pop(task.task, None)
    if parked is not None:
        task.missing -= 1
        store.eased = True
        for record in parked:
            unpark(store, record)
        return
    records = store.needs.pop(task.task, None)
    if records is None:
        return
    if store.readers:
        _forget_reader(store, task)
    if store.awaited.pop(task.task, None) is not None:
        task.missing -= 1
        for record in records:
            waiters = store.waiters.get(record.segment)
            if waiters is not None and waiters.pop(task.task, None) is not None and not waiters:
                del store.waiters[record.segment]
    store.eased = True
    for record in records:
        record.pins -= 1
        if not record.pins:
            _unpin(store, record)


def _forget_reader(store: Store, task: TaskRecord) -> None:
    for number in task.call.reads:
        readers = store.readers.get(number)
        if readers is not None and readers.pop(task.task, None) is not None and not readers:
            del store.readers[number]


def _unpin(store: Store, record: SegmentRecord) -> None:
    if record.left:
        record.left = False
    else:
        store.pinned -= record.size
    store.dequeue(record)
    store.rest(record)


def unpark(store: Store, record: SegmentRecord) -> None:
    """One parked task less needs a segment."""
    record.parked -= 1
    if not record.parked and not record.pins:
        store.rest(record)
