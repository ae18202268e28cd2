"""A file that a task was to write and did not, where that is ignored: it is what it was before that task.

That may not be known yet, since a task that replaces a file does not wait for those that wrote it before. Then the
version follows the older one, and exists when that does.
"""

from __future__ import annotations

from penstock.engine.lifetimes import drop_if_unused
from penstock.engine.state import State, VersionRecord
from penstock.model.data import FileRef
from penstock.model.tasks import Failure

__all__ = ["as_before", "following"]


def as_before(state: State, version: VersionRecord) -> FileRef | None:
    """What a version of a file holds that nobody wrote; None if it has to follow an older one, and does now."""
    assert version.file is not None
    older = _before(state, version)
    if older is None:
        version.borrowed = True
        return FileRef(version.file)
    if older.outcome is None or older.version in state.publishing:
        state.unwritten[older.version] = version.version
        return None
    assert type(older.outcome) is FileRef
    if older.scratch is None or older.placed is not None or older.published:
        # The older version stays where it is, and what is under the name stays there while this one is read.
        version.borrowed = True
        is_named = older.published and not older.unnamed
        return FileRef(version.file, older.outcome.size) if is_named else older.outcome
    # It waits for its name, which it now takes as this version: those who read it as the older one are waited for.
    content = older.outcome
    version.scratch, older.scratch = older.scratch, None
    version.home, older.home = older.home, None
    version.temp = older.temp
    drop_if_unused(state, older)
    return content


def following(state: State, older: VersionRecord) -> VersionRecord | None:
    """The version that is as an older one, of which more is known now."""
    number = state.unwritten.pop(older.version, None)
    return None if number is None else state.versions[number]


def _before(state: State, version: VersionRecord) -> VersionRecord | None:
    """The next older version, made or still to be made; None if that has become what is under the name."""
    assert version.file is not None
    older: VersionRecord | None = None
    for number in state.files[version.file]:
        if number == version.version:
            break
        if type(state.versions[number].outcome) is not Failure:
            older = state.versions[number]
    return older
