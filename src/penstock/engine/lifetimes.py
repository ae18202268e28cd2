"""How long versions, segments and private file copies live.

A version lives while the program holds it or an unfinished task reads it. A segment lives while the program, an
unfinished call or a live version uses it. A file's versions form a chain: a new version takes the file's name when
everybody who reads an older one is done, so a writer never waits for readers and no reader sees a file change.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from penstock.engine.placed_files import (
    drop_old_copies,
    follows_placed,
    is_replaced,
    leave_layer,
    note_named,
    note_rest,
    take_home,
)
from penstock.engine.segment_store import free
from penstock.engine.state import State, VersionRecord
from penstock.model.commands import Discard, DropState, Publish
from penstock.model.data import FileRef, SegmentId, Value, segments_of
from penstock.model.events import Published

__all__ = [
    "chain_file",
    "drop_if_unused",
    "file_published",
    "hold_segments",
    "hold_states",
    "release_content",
    "release_segments",
]


def hold_segments(state: State, segments: Iterable[SegmentId]) -> None:
    """Count one more holder of each segment."""
    for segment in segments:
        state.segments[segment] = state.segments.get(segment, 0) + 1


def release_segments(state: State, segments: Iterable[SegmentId]) -> None:
    """Count one holder less of each segment, and free those that have none."""
    for segment in segments:
        left = state.segments[segment] - 1
        if left:
            state.segments[segment] = left
        else:
            del state.segments[segment]
            free(state, segment)


def hold_states(state: State, states: Iterable[str]) -> None:
    """Count one more version that refers to each of these states of persistent objects."""
    for one in states:
        state.object_states[one] = state.object_states.get(one, 0) + 1


def _release_states(state: State, states: Iterable[str]) -> None:
    for one in states:
        left = state.object_states[one] - 1
        if left:
            state.object_states[one] = left
        else:
            del state.object_states[one]
            state.out.append(DropState(one))


def release_content(state: State, content: Value) -> None:
    """A version has this content no longer."""
    if content.buffers or type(content.data) is not bytes:
        release_segments(state, segments_of(content))
    if content.states:
        _release_states(state, content.states)


def chain_file(state: State, version: VersionRecord, file: str) -> None:
    """Make a version the newest of a file."""
    version.file = file
    state.files.setdefault(file, OrderedDict())[version.version] = None


def drop_if_unused(state: State, version: VersionRecord) -> None:
    """Forget a version that nobody can read any more; called whenever a reason to keep it goes away."""
    if version.file is not None:
        _advance_file(state, version.file)
        note_rest(state, version)
    if version.uses or version.held or version.outcome is None or version.scratch is not None:
        return
    if version.file is not None and follows_placed(state, version):
        return  # what is still on a layer must not be taken for the newest
    _forget(state, version)


def file_published(state: State, event: Published) -> None:
    """A version bears its file's name; its private copy goes when nobody reads it any more."""
    state.publishing.discard(event.version)
    version = state.versions[event.version]
    version.published = True
    version.unnamed = event.path == version.scratch
    if not version.unnamed:
        note_named(state, version)
        take_home(state, version)
        if state.draining and version.placed is None and version.scratch is not None:
            state.out.append(Discard(version.scratch))
            version.scratch = None
            version.outcome = FileRef(event.path)
    if version.unnamed and version.placed is None:
        version.scratch = None  # it could not be named: the copy is all there is, and stays
    drop_if_unused(state, version)


def _forget(state: State, version: VersionRecord) -> None:
    if state.versions.pop(version.version, None) is None:
        return
    if type(version.outcome) is Value:
        release_content(state, version.outcome)
    if version.home is not None:
        version.home[0].remove(version.home[1])  # it never took its name
        state.io_changed = True
    file = version.file
    if file is not None:
        chain = state.files[file]
        del chain[version.version]
        if not chain:
            del state.files[file]
        else:
            note_rest(state, state.versions[next(reversed(chain))])  # it may be the newest now


def _advance_file(state: State, file: str) -> None:
    """Give the file's name to each version whose turn has come, up to one that is still to be made or still read.

    That the program holds an old version does not keep the next one waiting: a call that names the file gets the
    newest version, so nobody can begin to read an older one.
    """
    unread: list[VersionRecord] = []
    left_layer = False
    for number in state.files.get(file, ()):
        version = state.versions[number]
        if version.outcome is None:
            break
        scratch = version.scratch
        if scratch is not None and not version.published:
            if number not in state.publishing:
                state.publishing.add(number)
                state.out.append(Publish(number, scratch, file, link=version.placed is not None))
            break
        if version.uses:
            break
        if version.placed is not None:
            drop_old_copies(state, version)
            if version.placed.moving is not None:
                break  # it will take the file's name anew
            if scratch is not None:
                if not is_replaced(state, version):
                    continue  # it stays on its layer
                leave_layer(state, version)
            version.placed = None
            left_layer = True
        elif scratch is not None:
            state.out.append(Discard(scratch))
            version.scratch = None
            version.outcome = FileRef(file)
        if not version.held:
            unread.append(version)
    for version in unread:
        _forget(state, version)
    if left_layer:
        _forget_kept(state, file)


def _forget_kept(state: State, file: str) -> None:
    """Forget versions that nobody can read and that were kept only because an older one was on a layer."""
    for number in list(state.files.get(file, ())):
        version = state.versions[number]
        unused = not (version.uses or version.held or version.outcome is None or version.scratch is not None)
        if unused and not follows_placed(state, version):
            _forget(state, version)
