"""Segments between memory and disk: out when memory holds too much, back when a task needs them.

    used > capacity ──▶ Spill(segment, layer) ──▶ Spilled        what has been idle for longest first
    a task admitted ──▶ Restore(segment, layer) ──▶ Restored     then it is ready

A move to or from a storage layer holds bandwidth of its device, as an I/O task's attempt does, and what it writes takes
room there. Moves go before I/O tasks: what waits for them is a whole task, or memory. A segment that could not be
brought back is read on disk; one that is gone is lost, and computed again if that can be.
"""

from __future__ import annotations

import heapq
from itertools import chain, islice
from math import floor

from penstock.engine.devices import DeviceRecord
from penstock.engine.lineage import lose_segments
from penstock.engine.placement import make_ready
from penstock.engine.segment_store import (
    SegmentRecord,
    Store,
    admit,
    change_used,
    device_for,
    divert,
    free,
    takes,
    unpark,
)
from penstock.engine.sharing import claim
from penstock.engine.state import State
from penstock.model.commands import AT_A_TIME, Restore, Spill
from penstock.model.events import Restored, Spilled

__all__ = ["admit_one", "advance", "restored", "spilled"]

#: of a device's bandwidth, what a move takes; or what is left, if that is less: it would else wait for others to end
#: while the device has time to spare
_SHARE = 8
#: seconds for which a place that could not take a segment is not asked again, unless something there is deleted
_DOUBT = 5.0
#: segments looked at for one that finds room
_LOOKED = 8


def advance(state: State) -> None:
    """Admit what memory has room for, and begin the moves that can begin."""
    store = state.store
    assert store is not None
    if store.eased and store.parked:
        _admit_parked(state, store)
    if store.used - store.leaving > store.capacity:
        _begin_spills(state, store)
    if store.queues:
        _begin_restores(state, store)


def admit_one(state: State) -> bool:
    """Nothing runs: if tasks wait for room and for nothing else, admit the first; whether one was."""
    store = state.store
    assert store is not None
    if store.awaited or store.spills:
        return False
    return bool(store.parked) and _admit_parked(state, store, forced=True)


def _admit_parked(state: State, store: Store, *, forced: bool = False) -> bool:
    """Admit parked tasks in order, as many as fit; ``forced``: the first in any case."""
    any_admitted = False
    while store.order:
        task = store.order[0][-1]
        number = task.task
        records = store.parked.get(number)
        if records is None or state.tasks.get(number) is not task:
            heapq.heappop(store.order)
            continue
        new = sum(record.size for record in records if not record.pins)
        if store.needs and store.pinned + new > store.capacity and not forced:
            break
        forced = False
        any_admitted = True
        heapq.heappop(store.order)
        del store.parked[number]
        task.missing -= 1
        for record in records:
            unpark(store, record)
        if admit(store, task, records) and not task.missing:
            make_ready(state, task)
    store.eased = False
    return any_admitted


# --- out ------------------------------------------------------------------------------------------------------------


def _begin_spills(state: State, store: Store, coming: int = 0) -> None:
    """Spill until memory holds no more than it may, with what is coming."""
    while store.used - store.leaving + coming > store.capacity and len(store.spills) < AT_A_TIME:
        # What parked tasks need goes last, and what will be needed last goes first of that.
        candidates = chain(store.idle.values(), reversed(store.wanted.values()))
        for record in islice(candidates, _LOOKED):
            place = _place_for(state, store, record.size)
            if place is None:
                continue
            bandwidth = _share(state, place[1])
            if not bandwidth:
                return
            _begin_spill(state, store, record, place, bandwidth)
            break
        else:
            return


def _place_for(state: State, store: Store, size: int) -> tuple[str, DeviceRecord | None] | None:
    """The first place that has room for a segment."""
    for name in store.rules.places:
        if takes(state, store, name, size):
            return name, device_for(state, name, size)
    return None


def _share(state: State, device: DeviceRecord | None) -> float:
    """Bytes per second that a move on a device can have now; 0 if it has to wait."""
    if device is None:
        return 1.0
    if claim(state, device):
        return 0.0
    course = device.course
    if course is not None and course.open and device.holders:
        return 0.0  # what is measured must not be disturbed
    # Whole bytes, which add up exactly.
    return float(floor(min(max(1.0, device.layer.bandwidth / _SHARE), device.free_bandwidth)))


def _begin_spill(
    state: State, store: Store, record: SegmentRecord, place: tuple[str, DeviceRecord | None], bandwidth: float
) -> None:
    name, device = place
    record.leaving = True
    record.device = device
    store.leaving += record.size
    store.spills[record.segment] = record
    store.rest(record)
    if device is not None:
        device.store(record.size)
        device.lend(record.segment, bandwidth)
    state.out.append(Spill(record.segment, name, record.size))


def _end_move(state: State, record: SegmentRecord) -> None:
    record.leaving = record.returning = False
    if record.device is not None:
        record.device.settle(record.segment)
        record.device.pay()
        state.io_changed = True


def spilled(state: State, event: Spilled) -> None:
    """A segment lies on disk, or could not be brought there and is where it was, or is nowhere."""
    store = state.store
    assert store is not None
    record = store.spills.pop(event.segment)
    store.leaving -= record.size
    _end_move(state, record)
    if event.error:
        name = "" if record.device is None else record.device.name
        if record.device is not None:
            record.device.remove(record.size)
            record.device = None
        if not event.lost:
            store.refused[name] = state.now + _DOUBT
            divert(state, store)
    else:
        record.spilled = True
        change_used(state, store, -record.size)
    if record.dropped:
        free(state, record.segment)
    elif event.lost:
        _lost(state, store, record, event.error)
    elif not record.pins:
        store.rest(record)
    elif record.spilled:  # somebody needs it by now
        store.enqueue(record)
    else:
        _arrived(state, store, record)


# --- back -----------------------------------------------------------------------------------------------------------


def _begin_restores(state: State, store: Store) -> None:
    for device, queue in list(store.queues.items()):
        while queue and len(store.restores) < AT_A_TIME:
            record = next(iter(queue.values()))
            bandwidth = _share(state, device)
            if not bandwidth:
                break
            if store.used + record.size > store.capacity:
                _begin_spills(state, store, record.size)
                if store.spills:
                    return  # room is being made
                bandwidth = _share(state, device)
            store.dequeue(record)
            store.restores[record.segment] = record
            record.returning = True
            change_used(state, store, record.size)
            if device is not None:
                device.lend(record.segment, bandwidth)
            state.out.append(Restore(record.segment, "" if device is None else device.name, record.size))


def restored(state: State, event: Restored) -> None:
    """A segment lies in memory, or could not be brought there and is where it was, or is nowhere."""
    store = state.store
    assert store is not None
    record = store.restores.pop(event.segment)
    _end_move(state, record)
    if event.error:
        change_used(state, store, -record.size)
    else:
        record.spilled = False
        if record.device is not None:
            record.device.remove(record.size)
            record.device = None
    if record.dropped:
        free(state, record.segment)
    elif event.lost:
        _lost(state, store, record, event.error)
    elif not record.pins:
        store.rest(record)
    else:
        if event.error:  # whoever needs it reads it on disk
            record.left = True
            store.pinned -= record.size
        _arrived(state, store, record)


def _arrived(state: State, store: Store, record: SegmentRecord) -> None:
    """Those that wait for a segment wait for it no more."""
    for number, task in store.waiters.pop(record.segment, {}).items():
        store.awaited[number] -= 1
        if not store.awaited[number]:
            del store.awaited[number]
            task.missing -= 1
            if not task.missing:
                make_ready(state, task)


def _lost(state: State, store: Store, record: SegmentRecord, why: str) -> None:
    """A segment is nowhere: what it held is made again, or fails."""
    record.left = record.left or bool(record.pins)
    if record.pins:
        store.pinned -= record.size
    store.rest(record)
    lose_segments(state, {record.segment}, why)
    if store.records.get(record.segment) is record:
        _forget(state, store, record)
    _arrived(state, store, record)  # whoever still wants it finds out by itself


def _forget(state: State, store: Store, record: SegmentRecord) -> None:
    """Calls or the program still hold a segment that is nowhere: it takes no room, and cannot be moved."""
    del store.records[record.segment]
    store.rest(record)
    store.dequeue(record)
    if record.in_memory:
        change_used(state, store, -record.size)
    if record.device is not None:
        record.device.remove(record.size)
        record.device = None
