"""Files on storage layers: a finished file stays on the layer where it was written, and its name is a link to it.

It takes room there until it is moved (flushing.py), replaced by a newer version, or deleted. Room is given back when
the copy is truly gone, not when its removal is asked for.
"""

from __future__ import annotations

from collections import OrderedDict

from penstock.engine.devices import DeviceRecord
from penstock.engine.nodes import NodeRecord
from penstock.engine.state import IOTaskRecord, Placed, State, VersionRecord
from penstock.model.commands import Discard
from penstock.model.data import FileRef
from penstock.model.events import Discarded
from penstock.model.tasks import Output
from penstock.storage.redirect import home_of

__all__ = [
    "discard_copy",
    "discarded",
    "drop_old_copies",
    "follows_placed",
    "is_redirected",
    "is_replaced",
    "leave_home",
    "leave_layer",
    "note_named",
    "note_rest",
    "note_written",
    "take_home",
]


def note_written(
    state: State, task: IOTaskRecord, version: VersionRecord, output: Output, content: FileRef, device: DeviceRecord
) -> None:
    """A layered task has written a file: count it where it is, and remember it if that is not its home."""
    name = output.file
    assert name is not None and task.lane is not None
    if is_redirected(output, task.lane.node, device):
        _place(state, version, task.lane.node, device, content.size, temp=output.temp)
        return
    if home_of(name, task.lane.node.devices) is not device:
        return
    device.store(content.size)
    version.home = (device, content.size)
    if content.path == name:
        take_home(state, version)


def note_named(state: State, version: VersionRecord) -> None:
    """A version bears its file's name: whether that goes with the run depends on the version."""
    assert version.file is not None
    if version.temp:
        state.temps.add(version.file)
    else:
        state.temps.discard(version.file)


def is_redirected(output: Output, node: NodeRecord, device: DeviceRecord) -> bool:
    """Whether a task that uses a device writes a file there instead of beside its name."""
    if output.file is None or output.directory:  # a directory is always written beside its name
        return False
    if device.layer.temporary and not output.temp:
        return False  # it may be gone tomorrow, and with it a file that was synced; whatever was decided before
    return output.temp or home_of(output.file, node.devices) is not device


def take_home(state: State, version: VersionRecord) -> None:
    """A version has taken its file's name from whatever bore it before."""
    assert version.file is not None
    leave_home(state, version.file)
    if version.home is not None:
        state.at_home[version.file] = version.home
        version.home = None


def leave_home(state: State, name: str) -> None:
    """What was under a file's name, on a layer, is there no more."""
    replaced = state.at_home.pop(name, None)
    if replaced is not None:
        replaced[0].remove(replaced[1])
        state.io_changed = True


def _place(
    state: State, version: VersionRecord, node: NodeRecord, device: DeviceRecord, size: int, *, temp: bool
) -> None:
    version.placed = Placed(node, device, size, temp=temp)
    device.store(size)
    state.placed[version.version] = version


def note_rest(state: State, version: VersionRecord) -> None:
    """A reason to leave a file where it is has gone: if it is on a layer, it may move now."""
    if version.placed is not None:
        state.resting.setdefault(version.placed.node, OrderedDict())[version.version] = version
        state.io_changed = True


def is_replaced(state: State, version: VersionRecord) -> bool:
    """Whether a newer version bears the file's name."""
    assert version.file is not None
    chain = list(state.files[version.file])
    for number in chain[chain.index(version.version) + 1 :]:
        newer = state.versions[number]
        if type(newer.outcome) is not FileRef or newer.borrowed or newer.unnamed:
            continue
        if newer.scratch is None or newer.published:
            return True
    return False


def follows_placed(state: State, version: VersionRecord) -> bool:
    """Whether an older version of the file is still on a layer."""
    for number in state.files.get(version.file or "", ()):
        if number == version.version:
            return False
        older = state.versions[number]
        if older.placed is not None and older.scratch is not None:
            return True
    return False


def discard_copy(state: State, path: str, device: DeviceRecord, size: int) -> None:
    """Have a copy removed; its room is free when that has happened."""
    state.discarding[path] = (device, size)
    state.out.append(Discard(path, tell=True))


def discarded(state: State, event: Discarded) -> None:
    """A copy is gone."""
    device, size = state.discarding.pop(event.path)
    device.remove(size)
    state.io_changed = True
    state.crowded_since = None


def drop_old_copies(state: State, version: VersionRecord) -> None:
    """Nobody reads the copies that a file was moved away from any more."""
    placed = version.placed
    assert placed is not None
    for path, device in placed.old:
        discard_copy(state, path, device, placed.size)
    placed.old = []


def leave_layer(state: State, version: VersionRecord) -> None:
    """The file's copy on its layer is of no more use."""
    placed = version.placed
    assert placed is not None and version.file is not None and placed.moving is None
    drop_old_copies(state, version)
    if version.scratch is not None:
        assert placed.device is not None
        discard_copy(state, version.scratch, placed.device, placed.size)
    version.scratch = None
    version.placed = None
    version.outcome = FileRef(version.file)
    state.placed.pop(version.version, None)
