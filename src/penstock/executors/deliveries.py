"""Attempts that have begun to deliver, and whose process ended before it could say that it was done.

    worker: all is made ── Delivering ──▶ states become current, files take their names ── Done ──▶
    its end in between  ──▶ NodeExecutor: done, with those files that still have to take their names
                            not done, if the store does not have the states

Between two processes, one of which may be ended at any moment, only what one has heard from the other can settle who
was first. An attempt whose ``Delivering`` was heard counts, in whatever way its process ended; what it has made is
complete. One that was not heard of has given no file its name, and no object a state.

A store may refuse a state, so that an attempt with states counts once the store has them. If one is ended before,
nothing of it is to be seen, since its files come after.
"""

from __future__ import annotations

import os

from msgspec.structs import replace

from penstock.errors import PenstockError
from penstock.executors.wire import Delivering, Done
from penstock.model.data import FileRef

__all__ = ["completed", "counts"]


def counts(begun: Delivering) -> bool:
    """Whether an attempt whose process is gone has delivered: its states are in the store."""
    if not begun.states:
        return True
    from penstock.persistent.where import current_store

    try:
        return current_store().has_states(begun.states)
    except PenstockError:
        return False  # nobody can tell; a further attempt of the same task may replace a state that is there


def completed(begun: Delivering) -> tuple[Done, tuple[str, ...]]:
    """What an attempt delivers whose process is gone, and the private folders that are of no more use.

    A file that has not taken its name is delivered where it is, as one that waits for its name.
    """
    waiting = {target: path for path, number, target in begun.moves if _is_there(path, number)}
    outputs = [
        replace(output, path=waiting[output.path]) if type(output) is FileRef and output.path in waiting else output
        for output in begun.outputs
    ]
    left = tuple(os.path.dirname(path) for path, _, target in begun.moves if target not in waiting)
    return Done(begun.task, begun.attempt, outputs, begun.seconds), left


def _is_there(path: str, number: int) -> bool:
    """Whether a file is where it was; a directory may have changed places with the one that it replaces."""
    try:
        return os.lstat(path).st_ino == number
    except OSError:
        return False
