"""When layers have no room: tasks go to the next layer, then wait while files are moved out of their way.

A device's own word counts more than our sums: one that said it is full takes nothing until something on it is
deleted, or for a while, since others may make room too. If nothing of this run can make room, tasks that wait for it
are refused after a grace period, saying what is full: nobody waits for ever in silence. Nobody is refused while a task
runs that may make room; one that was itself told "full" does not count, else two of them could wait for each other.
"""

from __future__ import annotations

from penstock.engine.devices import DeviceRecord
from penstock.engine.failures import finish_without_outputs
from penstock.engine.flushing import is_io_quiet, relieve
from penstock.engine.learning import is_active
from penstock.engine.sharing import waits_for_others
from penstock.engine.state import IOTaskRecord, State
from penstock.model.events import LeftMeasured
from penstock.model.tasks import Failure, FailureKind
from penstock.units import format_size

__all__ = ["GRACE", "doubt", "end_crowd", "left_measured", "look", "next_look", "no_room", "overflows"]

#: seconds for which a device that said it is full is believed the first time; twice as long each time
_BELIEVED, _MOST_BELIEVED = 0.5, 8.0
#: seconds after which tasks that wait for room are refused, if nothing of ours can make room
GRACE = 10.0


def overflows(state: State, task: IOTaskRecord, device: DeviceRecord | None) -> bool:
    """The layer that an attempt wrote to is full; whether the task is to be tried elsewhere, or later."""
    if device is None:
        return False
    task.full_layers += 1
    device.doubts += 1
    device.full_until = state.now + min(_MOST_BELIEVED, _BELIEVED * 2 ** min(device.doubts - 1, 8))
    device.touch()
    state.ledger.full[device] = None
    state.ledger.doubted[device] = None
    waiting_since = max(_note_crowd(state), task.ready_since)
    if state.now < waiting_since + GRACE or _may_make_room(state):
        return True
    if any(not other.doubts for other in _open_to(state, task)):
        return True
    # Refused here too, not only in `look`: with several nodes some device is always due to be asked again, so the task
    # might never be found waiting.
    state.crowded_since = None  # who comes later has a grace period of its own
    return False


def _open_to(state: State, task: IOTaskRecord) -> list[DeviceRecord]:
    """The devices that a task could be tried on, if there is room."""
    nodes, need = state.ledger.nodes.values(), task.requirements
    if task.anchor:
        return [device for device in state.ledger.devices() if device.name == task.anchor]
    return list(dict.fromkeys(one for node in nodes for one in node.devices if node.lets_use(need, one)))


def _may_make_room(state: State) -> bool:
    """Files move or go, or a task is with a worker that nobody told "full": what it reads may go when it ends."""
    if state.moving or state.discarding:
        return True
    lanes = (state.tasks[number].lane for number in state.ledger.holders)
    sent = (task for lane in lanes if lane is not None for task in lane.queue)
    return any(not (isinstance(task, IOTaskRecord) and task.full_layers) for task in sent)


def _note_crowd(state: State) -> float:
    """Tasks wait for room alone; since when."""
    if state.crowded_since is None:
        state.crowded_since = state.now
    return state.crowded_since


def doubt(state: State) -> None:
    """Ask devices again that said long ago that they are full."""
    for device in list(state.ledger.full):
        if device.full_until <= state.now:
            device.full_until = 0.0
            device.touch()
            del state.ledger.full[device]


def end_crowd(state: State) -> None:
    """No I/O task waits now; but one that was told "full" and is tried again waits for room all the same."""
    doubted = state.ledger.doubted
    for device in [device for device in doubted if not device.doubts]:
        del doubted[device]
    if not doubted:
        state.crowded_since = None


def look(state: State) -> bool:
    """I/O tasks wait and none could be placed: help those that wait for room; whether some were refused instead."""
    if not state.ledger.open_io or not is_io_quiet(state):
        return False
    if any(is_active(state, course) for course in state.courses.values()):
        return False
    if waits_for_others(state):
        state.crowded_since = None
        return False
    if relieve(state) or len(state.ledger.holders) or len(state.ready):
        return False
    if state.now < _note_crowd(state) + GRACE:
        return False
    state.crowded_since = None  # who comes later has a grace period of its own
    rooms: dict[tuple[str, bool], str] = {}
    refused = [task for task in state.io_ready.tasks() if task.requirements.layered]
    for task in refused:
        assert isinstance(task, IOTaskRecord)
        if task.task in state.tasks:  # else an earlier one took it along
            where = task.anchor, task.requirements.temporary
            if where not in rooms:
                rooms[where] = _rooms(_open_to(state, task))
            message = _message(task, rooms[where])
            finish_without_outputs(state, task, Failure(FailureKind.STORAGE_FULL, message))
    return bool(refused)


def left_measured(state: State, event: LeftMeasured) -> None:
    """Somebody looked what earlier runs have left on a layer: what is gone from there is room."""
    for device in state.ledger.devices():
        if device.name == event.layer and event.taken < device.taken:
            device.remove(device.taken - event.taken)
            device.taken = event.taken
            state.io_changed = True
            state.crowded_since = None


def next_look(state: State) -> float | None:
    """When time alone may change something for those who wait."""
    times = [device.full_until for device in state.ledger.full]
    if state.crowded_since is not None and len(state.io_ready):
        times.append(state.crowded_since + GRACE)
    return min((time for time in times if time > state.now), default=None)


def no_room(state: State, task: IOTaskRecord) -> str:
    """Why a task that has just met a full layer is not tried again."""
    return _message(task, _rooms(_open_to(state, task)))


def _message(task: IOTaskRecord, rooms: str) -> str:
    size = task.requirements.capacity
    wanted = f"the {format_size(size)} that it writes" if size else "what it writes"
    return (
        f"no storage layer has room for {wanted}, and nothing of this run can be moved or deleted to make some: "
        f"{rooms}. Free space there, raise its capacity, or describe a further layer"
    )


def _rooms(devices: list[DeviceRecord]) -> str:
    """What is left on each layer; of a layer that many nodes have, on the device with the most."""
    alike: dict[str, list[DeviceRecord]] = {}
    for device in devices:
        alike.setdefault(device.name, []).append(device)
    rooms = []
    for group in alike.values():
        roomiest = max(group, key=lambda device: device.free_capacity)
        rooms.append(_room(roomiest) + (f" (the emptiest of {len(group)})" if len(group) > 1 else ""))
    return ", ".join(rooms)


def _room(device: DeviceRecord) -> str:
    if device.doubts:
        return f"{device.name} ({device.mount}) is full"
    capacity = device.layer.capacity
    if capacity is None:
        return f"{device.name} has room"
    room = f"{device.name} has {format_size(max(0.0, device.free_capacity))} of {format_size(capacity)} left"
    if device.taken:
        room += f" ({format_size(device.taken)} are of runs that are gone: `penstock recover` brings them home)"
    return room
