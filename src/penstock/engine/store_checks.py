"""The invariants of the segment store as code; ``checks.check`` calls them."""

from __future__ import annotations

from collections import Counter

from penstock.engine.devices import DeviceRecord
from penstock.engine.segment_store import SegmentRecord, Store
from penstock.engine.state import State
from penstock.errors import InternalError
from penstock.model.commands import AT_A_TIME
from penstock.model.tasks import TaskState

__all__ = ["check_store", "stored_segments"]


def stored_segments(state: State) -> Counter[DeviceRecord]:
    """Bytes of segments on each device, with those on their way to and from it."""
    stored: Counter[DeviceRecord] = Counter()
    if state.store is not None:
        for record in state.store.records.values():
            if record.device is not None:
                stored[record.device] += record.size
    return stored


def check_store(state: State, store: Store) -> None:
    """Raise InternalError if the records of the store contradict each other, or if nobody would ever go on."""
    for segment in state.segments:
        _require(segment in store.records, f"segment {segment} is held, but nobody knows its size")
    for record in store.records.values():
        _check_record(state, store, record)
    _check_sums(store)
    _check_diversion(state, store)
    _check_moves(state, store)
    _check_waiting(state, store)
    _check_relief(state, store)


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise InternalError(otherwise)


def _check_record(state: State, store: Store, record: SegmentRecord) -> None:
    name = f"segment {record.segment}"
    moving = record.leaving or record.returning
    _require(record.dropped == (record.segment not in state.segments), f"{name} is kept for nobody, or lost")
    _require(not record.dropped or moving, f"{name} is of no more use, but is kept")
    _require(record.leaving == (record.segment in store.spills), f"{name} is being spilled, or is not")
    _require(record.returning == (record.segment in store.restores), f"{name} is being restored, or is not")
    _require(not (record.leaving and record.spilled), f"{name} is spilled twice")
    _require(not record.returning or record.spilled, f"{name} is restored, but lies in memory")
    idle = not (record.pins or record.spilled or moving or record.dropped)
    _require((record.segment in store.idle) == (idle and not record.parked), f"{name} is idle, or is not")
    _require((record.segment in store.wanted) == (idle and record.parked > 0), f"{name} is wanted, or is not")
    _require(record.device is None or record.spilled or moving, f"{name} takes room on a device, but is not there")
    queued = record.segment in store.queues.get(record.device, ())
    pending = record.pins > 0 and record.spilled and not record.returning and not record.left and not record.dropped
    _require(queued == pending, f"{name} waits to be restored, or should")
    waited_for = record.segment in store.waiters
    _require(not waited_for or queued or moving, f"tasks wait for {name}, which is on no way to them")


def _check_sums(store: Store) -> None:
    records = store.records.values()
    used = sum(record.size for record in records if record.in_memory)
    _require(store.used == used, f"the store counts {store.used} bytes in memory of {used}")
    leaving = sum(record.size for record in records if record.leaving)
    _require(store.leaving == leaving, f"the store counts {store.leaving} bytes on their way out of {leaving}")
    pinned = sum(record.size for record in records if record.pins and not record.left)
    _require(store.pinned == pinned, f"the store counts {store.pinned} bytes that tasks need of {pinned}")
    pins = Counter(record for needed in store.needs.values() for record in needed)
    parked = Counter(record for needed in store.parked.values() for record in needed)
    for record in records:
        right = (record.pins, record.parked) == (pins[record], parked[record])
        _require(right, f"segment {record.segment} counts wrongly who needs it")


def _check_diversion(state: State, store: Store) -> None:
    if store.diverted:
        _require(store.used > store.most, "new segments go to disk, and there is room in memory")
        refused = store.refused.get(store.rules.direct, -1.0)
        _require(refused <= state.now, "new segments go to a disk that takes none")


def _check_moves(state: State, store: Store) -> None:
    for moves in (store.spills, store.restores):
        _require(len(moves) <= AT_A_TIME, f"{len(moves)} segments move at a time")
    moving = {**store.spills, **store.restores}
    for device in state.ledger.devices():
        here = {segment for segment, record in moving.items() if record.device is device}
        _require(device.moves.keys() == here, f"device {device.name} lends bandwidth to moves that are not under way")


def _check_waiting(state: State, store: Store) -> None:
    for number in (*store.parked, *store.needs):
        _require(number in state.tasks, f"task {number} needs segments, but is over")
    for number in (*store.parked, *store.awaited):
        waits = state.tasks[number].state is TaskState.WAITING
        _require(waits, f"task {number} waits for the store, but is {state.tasks[number].state.name}")
    awaited = Counter(number for waiting in store.waiters.values() for number in waiting)
    _require(awaited == Counter(store.awaited), "the tasks that wait for segments are counted wrongly")
    goes_on = state.draining or state.ledger.holders or store.spills or store.restores
    _require(bool(goes_on) or not (store.parked or store.awaited), "tasks wait for the store, and nothing happens")


def _check_relief(state: State, store: Store) -> None:
    _require(store.passing_bytes == sum(store.passing.values()), "the bytes that only tasks need are counted wrongly")
    for number in store.passing:
        version = state.versions.get(number)
        _require(version is not None and not version.held, f"version {number} is passing, but is gone or held")
    for number, readers in store.readers.items():
        version = state.versions.get(number)
        _require(version is not None and version.held, f"version {number} has readers that wait for it to be dropped")
        _require(bool(readers) and readers.keys() <= state.tasks.keys(), f"version {number} has readers that are over")
