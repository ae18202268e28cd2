"""How long versions, segments and private file copies live.

A version lives while the program holds it or an unfinished task reads it. A segment lives while the program, an
unfinished call or a live version uses it. What an update replaces lives until the update is there: should that fail,
the program can go on with it. A file's versions form a chain: a new version takes the file's name when
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
from penstock.engine.relief import note_gone
from penstock.engine.segment_store import free
from penstock.engine.state import State, VersionRecord
from penstock.model.commands import Discard, DropState, HoldStates, Publish
from penstock.model.data import SPOILED, FileRef, SegmentId, Value, VersionId, in_segments, segments_of
from penstock.model.events import Reverted
from penstock.model.tasks import Failure

__all__ = [
    "chain_file",
    "drop_if_unused",
    "hold_segments",
    "hold_states",
    "keep_replaced",
    "let_replaced_go",
    "note_published",
    "release_content",
    "release_segments",
    "revert",
    "shorten_way_back",
    "spoil_replaced",
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
        if not state.object_states:
            state.out.append(HoldStates())
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
    if (content.buffers or type(content.data) is not bytes) and in_segments(content):
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
    if version.version in state.kept:
        return
    if version.file is not None and follows_placed(state, version):
        return  # what is still on a layer must not be taken for the newest
    _forget(state, version)


def keep_replaced(state: State, replaces: Iterable[tuple[VersionId, VersionId]]) -> None:
    """Versions are to be made in the place of others, which are kept until then."""
    for version, before in replaces:
        state.replaced[version] = before
        if before:
            state.kept[before] = state.kept.get(before, 0) + 1


def let_replaced_go(state: State, version: VersionId) -> None:
    """Nobody will go back from a version to the one that it replaces."""
    before = state.replaced.pop(version, 0)
    if before > 0:
        left = state.kept[before] - 1
        if left:
            state.kept[before] = left
        else:
            del state.kept[before]
            drop_if_unused(state, state.versions[before])


def shorten_way_back(state: State, version: VersionRecord) -> None:
    """A version failed, perhaps because the one that it replaces did: then it replaces what that was to replace."""
    before = state.replaced.get(version.version, 0)
    if before <= 0 or type(version.outcome) is not Failure:
        return
    old = state.versions[before].outcome
    if type(old) is Failure and old.path[:1] == version.outcome.path[:1]:
        further = state.replaced.get(before)
        if further is not None and further > 0:
            state.kept[further] += 1
        let_replaced_go(state, version.version)
        if further is not None:
            state.replaced[version.version] = further


def spoil_replaced(state: State, version: VersionId) -> None:
    """An attempt was changing, in place, what a version was to replace: there is no way back to that."""
    before = state.replaced.get(version, 0)
    if before > 0 and segments_of(state.versions[before].outcome):  # anything else is never changed in place
        let_replaced_go(state, version)
        state.replaced[version] = SPOILED


def revert(state: State, event: Reverted) -> None:
    """The program goes back from a version that failed to the one before, or to what it has itself."""
    before = state.replaced[event.version]
    if before > 0:
        state.versions[before].held = True
    version = state.versions[event.version]
    version.held = False
    drop_if_unused(state, version)


def note_published(state: State, version: VersionRecord, path: str) -> None:
    """A version bears its file's name; its private copy goes when nobody reads it any more."""
    state.publishing.discard(version.version)
    version.published = True
    version.unnamed = path == version.scratch
    if not version.unnamed:
        note_named(state, version)
        take_home(state, version)
        if state.draining and version.placed is None and version.scratch is not None:
            state.out.append(Discard(version.scratch))
            version.scratch = None
            version.outcome = FileRef(path)
    if version.unnamed and version.placed is None:
        version.scratch = None  # it could not be named: the copy is all there is, and stays
    drop_if_unused(state, version)


def _forget(state: State, version: VersionRecord) -> None:
    if state.versions.pop(version.version, None) is None:
        return
    if state.origins.makers:
        state.origins.version_gone(version.version)
    if state.store is not None and state.store.passing:
        note_gone(state.store, version.version)
    if state.replaced:
        let_replaced_go(state, version.version)
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
                synced = type(version.outcome) is FileRef and version.outcome.synced
                state.out.append(Publish(number, scratch, file, version.placed is not None, synced))
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
