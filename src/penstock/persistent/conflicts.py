"""Who may replace which state of an object, so that nothing is lost of what others have stored meanwhile.

Whoever stores a new state says from which it was made. A state also names its author, a task over all its attempts: an
attempt that was killed may have stored its state already, and the next one begins with the state before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.errors import StorageError
from penstock.persistent.manifest import Entry, Manifest

if TYPE_CHECKING:
    from penstock.persistent.stores import Staged, Store, Wanted

__all__ = ["may_replace", "meant", "refuse_others"]

_TASK_NEXT = "Give the task retries=1: it reads the new state then. Within one program, use one name for one object."
_PROGRAM_NEXT = "Keep a copy.copy() of it if you need it; mark_unmodified() and then get_by_id() give the new state."


def may_replace(staged: Staged, old: Manifest | None) -> bool:
    """Whether nobody has changed an object since the state was read that a staged one was made from."""
    if staged.base is None:
        return True
    if old is None:
        return False
    if old.current.token == staged.base:
        return True
    # An attempt that was killed may have got as far as this.
    author = staged.entry.author
    return bool(author) and old.current.author == author and old.current.base == staged.base


def refuse_others(staged: Sequence[Staged], olds: Sequence[Manifest | None]) -> None:
    """Raise the error for the first staged state that may not take the place of the current one."""
    for one, old in zip(staged, olds, strict=True):
        if not may_replace(one, old):
            what = "deleted" if old is None else "changed"
            who = "this task" if one.entry.author else "the program"
            raise StorageError(
                f"object {one.identifier!r} was {what} by somebody else since {who} read it: what {who} made of "
                f"it is not stored, since {'it is gone' if old is None else 'their change would be lost'}. "
                + (_TASK_NEXT if one.entry.author else _PROGRAM_NEXT)
            )


def meant(manifest: Manifest, wanted: Wanted, store: Store) -> Entry:
    """The state that a reader wants."""
    if not wanted.author:
        return manifest.entry(wanted.token)
    found = manifest.to_update(wanted.author)
    if found is None:
        raise StorageError(
            f"object {wanted.identifier!r} was changed by an earlier attempt of this task that did not end, and "
            f"the state before it is gone from {store}: the task cannot begin anew"
        )
    return found
