"""Moving files between layers: down when nobody reads them and no I/O runs, away when room is wanted, home at the end.

While tasks run, one file of a node moves at a time. It is copied, made durable and given its place before the old
copy goes, and its readers keep the old copy for as long as they need it: nothing is lost wherever a move breaks off.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

from penstock.engine.devices import DeviceRecord
from penstock.engine.lifetimes import drop_if_unused
from penstock.engine.nodes import NodeRecord
from penstock.engine.placed_files import drop_old_copies, leave_home, leave_layer, note_named
from penstock.engine.sharing import claim
from penstock.engine.state import Astray, Placed, State, VersionRecord
from penstock.model.commands import Discard, Move, Publish
from penstock.model.data import FileRef
from penstock.model.events import Draining, FileDropped, HomeWanted, Moved
from penstock.storage.flush import HOME, target
from penstock.storage.redirect import home_of

__all__ = ["delays_names", "drain", "drop_file", "flush", "is_io_quiet", "moved", "relieve", "want_home"]


#: nodes that are looked at in one go
_LOOKED = 16


def is_io_quiet(state: State) -> bool:
    """Whether no I/O task runs."""
    ledger = state.ledger
    return not ledger.unlayered and not any(layer.running.count for layer in ledger.layers.values())


def flush(state: State) -> None:
    """Move the next file of each node down on which no I/O task runs, if none could run."""
    resting = state.resting
    if len(state.io_ready):
        return
    for node in list(islice(resting, _LOOKED)):
        if not node.moves and not node.unlayered and not any(device.holders or device.moves for device in node.devices):
            _move_next(state, node)
        if node in resting:
            resting.move_to_end(node)  # the others' turn comes with the next events


def delays_names(state: State) -> bool:
    """Whether a newer version of a file waits for its name until an older one has been moved."""
    for version in state.moving.values():
        assert version.file is not None
        newest = state.versions[next(reversed(state.files[version.file]))]
        if newest is not version and type(newest.outcome) is FileRef:
            return True
    return False


def relieve(state: State) -> bool:
    """Tasks wait for room: move the next file out of the way; whether one is on its way."""
    return bool(state.moving or state.discarding) or any(_move_next(state, node) for node in list(state.resting))


def _move_next(state: State, node: NodeRecord) -> bool:
    """Move the file that has rested longest on a node, of those that can move; whether there is one.

    Those that do not rest after all, or lie where they will stay, are not looked at again until something happens to
    them. What only lacks room below is.
    """
    done_with: list[VersionRecord] = []
    begun = False
    resting = state.resting[node]
    for version in resting.values():
        placed = version.placed
        if version.version not in state.placed or placed is None or not _may_move(state, version):
            done_with.append(version)
            continue
        goal, may_wait = _goal(state, version, placed)
        if goal is not None:
            _begin(state, version, placed, goal)
            begun = True
        if not may_wait or begun:
            done_with.append(version)
        if begun:
            break
    for version in done_with:
        del resting[version.version]
    if not resting:
        del state.resting[node]
    return begun


def _goal(state: State, version: VersionRecord, placed: Placed) -> tuple[DeviceRecord | object | None, bool]:
    """Where a file should move to, if there is room; and whether there is anything below that could have room."""
    assert version.file is not None
    devices = placed.node.devices
    current, home = devices.index(placed.device), home_of(version.file, devices)
    home_layer = None if home is None else devices.index(home)
    lowest = len(devices) - 1 if placed.temp or home_layer is None else home_layer
    below = devices[current + 1 : lowest + 1] if placed.temp or home_layer is not None else ()
    if any(claim(state, device) for device in below):
        return None, True
    return target(placed.size, devices, current, home_layer, temp=placed.temp), lowest > current


def _may_move(state: State, version: VersionRecord) -> bool:
    """Whether a file rests on its layer: it bears its name, nobody reads it, and no newer version will replace it."""
    placed = version.placed
    assert placed is not None and version.file is not None
    rests = version.published and not version.uses and not version.held and placed.moving is None
    return rests and not placed.error and next(reversed(state.files[version.file])) == version.version


def _begin(state: State, version: VersionRecord, placed: Placed, goal: DeviceRecord | object) -> None:
    assert version.scratch is not None and version.file is not None
    placed.moving = goal
    placed.node.moves += 1
    state.moving[version.version] = version
    layer = ""
    if isinstance(goal, DeviceRecord):
        goal.store(placed.size)
        if placed.temp or home_of(version.file, placed.node.devices) is not goal:
            layer = goal.name
    linked = version.published and not version.unnamed
    state.out.append(Move(version.version, version.scratch, layer, version.file, placed.temp, linked))


def moved(state: State, event: Moved) -> None:
    """A file is complete in its new place, or could not be moved."""
    del state.moving[event.version]
    version = state.versions[event.version]
    placed = version.placed
    assert placed is not None and version.scratch is not None
    goal, placed.moving = placed.moving, None
    placed.node.moves -= 1
    state.io_changed = True
    if event.error or event.astray:
        placed.error = event.error
        if isinstance(goal, DeviceRecord):
            goal.remove(placed.size)
        if event.astray and not placed.dropped:
            _keep_astray(state, version, placed)
    elif event.path == version.file:
        _arrived_home(state, version, placed, goal)
    else:
        assert isinstance(goal, DeviceRecord)
        placed.old.append((version.scratch, placed.device))
        placed.device = goal
        version.scratch = event.path
        version.outcome = FileRef(event.path, placed.size)
    if placed.dropped or (state.draining and placed.temp):
        _drop(state, version, named=not event.astray)
    elif placed.wanted_home and not event.error and event.path != version.file:
        placed.wanted_home = False
        _begin(state, version, placed, HOME)
    elif state.draining:
        drop_old_copies(state, version)  # whoever read them is gone
    drop_if_unused(state, version)
    if event.path == version.file:
        for older in _made(state, event.path):
            # One that could not be given its name comes home all the same: then the one before it is history.
            history = state.draining or not (older.uses or older.held)
            if older.version < version.version and older.placed is not None and history:
                _drop_from_layer(state, older)
    if state.draining:
        _drain_next(state, placed.node)
        if not state.moving:  # what came in between may have made others ready to go
            _drain_all(state)


def _drop(state: State, version: VersionRecord, *, named: bool) -> None:
    """A file is of no more use, nor is its name, which a move may just have given to it again."""
    assert version.file is not None
    if named:
        state.out.append(Discard(version.file))
        leave_home(state, version.file)
    leave_layer(state, version)


def _arrived_home(state: State, version: VersionRecord, placed: Placed, goal: DeviceRecord | object) -> None:
    """Its name is a file again; the copy on the layer goes when nobody reads it any more."""
    assert version.scratch is not None and version.file is not None
    if isinstance(goal, DeviceRecord):
        state.at_home[version.file] = (goal, placed.size)
    placed.old.append((version.scratch, placed.device))
    version.scratch = None
    version.outcome = FileRef(version.file, placed.size)
    state.placed.pop(version.version)


def _keep_astray(state: State, version: VersionRecord, placed: Placed) -> None:
    """What bears its name now is the program's. The copy stays, and its room is taken: it may have another name."""
    assert version.scratch is not None and version.file is not None
    state.astray[version.scratch] = Astray(version.file, placed.device, placed.size, placed.temp)
    version.scratch = None
    version.outcome = FileRef(version.file, placed.size)
    state.placed.pop(version.version)


# --- what the program asks for --------------------------------------------------------------------------------------


def want_home(state: State, event: HomeWanted) -> None:
    """The program is about to change a file itself, so it must be under its name in truth."""
    for version in _made(state, event.name)[-1:]:
        placed = version.placed
        if placed is not None and version.scratch is not None:
            placed.error = ""
            if placed.moving is None:
                _begin(state, version, placed, HOME)
            else:
                placed.wanted_home = True


def drop_file(state: State, event: FileDropped) -> None:
    """The program deletes a file: what it takes on layers is free."""
    leave_home(state, event.name)
    for number in list(state.files.get(event.name, ())):
        version = state.versions[number]
        if version.placed is None:
            continue
        if version.placed.moving is None:
            leave_layer(state, version)
            drop_if_unused(state, version)
        else:
            version.placed.dropped = True
    state.io_changed = True


def drain(state: State, event: Draining) -> None:
    """The run is over: everything permanent goes home, everything else goes away."""
    state.draining = True
    for name in list(state.files):
        _settle_name(state, name)
    for name in sorted(state.temps):
        leave_home(state, name)
        state.out.append(Discard(name))
    state.temps.clear()
    for version in state.placed.values():
        assert version.placed is not None
        state.homeward.setdefault(version.placed.node, deque()).append(version)
    _drain_all(state)


def _settle_name(state: State, name: str) -> None:
    """Of a file's versions, the newest that exists keeps the name; nobody reads or replaces it any more."""
    made = _made(state, name)
    if made:
        note_named(state, made[-1])
    for version in made:
        if version.placed is not None:
            version.placed.error = ""
            # Until the newest is home, the name may still mean an older one.
            if version.temp or (version is not made[-1] and made[-1].placed is None):
                _drop_from_layer(state, version)
        elif version.scratch is not None:
            if version is not made[-1] or version.published or version.temp:
                state.out.append(Discard(version.scratch))
            elif version.version not in state.publishing:
                state.publishing.add(version.version)
                synced = type(version.outcome) is FileRef and version.outcome.synced
                state.out.append(Publish(version.version, version.scratch, name, synced=synced))


def _made(state: State, name: str) -> list[VersionRecord]:
    """The versions of a file that exist on their own, oldest first."""
    chain = [state.versions[number] for number in state.files.get(name, ())]
    return [version for version in chain if type(version.outcome) is FileRef and not version.borrowed]


def _drop_from_layer(state: State, version: VersionRecord) -> None:
    assert version.placed is not None
    if version.placed.moving is not None:
        version.placed.dropped = not version.temp
        return
    leave_layer(state, version)
    drop_if_unused(state, version)


def _drain_all(state: State) -> None:
    for node in dict.fromkeys(version.placed.node for version in state.placed.values() if version.placed is not None):
        _drain_next(state, node)


def _drain_next(state: State, node: NodeRecord) -> None:
    """Send the next file of a node home, if none is on its way."""
    if node.moves:
        return
    queue = state.homeward.get(node)
    while queue:
        if _go_home(state, queue.popleft()):
            return
    for version in state.placed.values():  # what a move has brought to another layer meanwhile
        if version.placed is not None and version.placed.node is node and _go_home(state, version):
            return


def _go_home(state: State, version: VersionRecord) -> bool:
    """Send a file home unless it need not go; whether it does. Who had to read it, or to replace it, will not."""
    placed = version.placed
    if version.version not in state.placed or placed is None or version.file is None:
        return False
    waits = placed.moving is None and not placed.error and version.scratch is not None and not placed.temp
    if not waits or _made(state, version.file)[-1] is not version:
        return False
    _begin(state, version, placed, HOME)
    return True
