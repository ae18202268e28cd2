"""A signal that ends the program, while a run is already being ended: files go home, and the program ends after that.

A handler runs wherever the main thread is. Raised there, the first exception to come would be taken for the second,
with which the user says that files may stay where they are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from threading import get_ident, main_thread

__all__ = ["nothing_cut_short", "put_off"]

#: how many runs the main thread is ending, one within the other
_depth = 0
_waiting: Callable[[], None] | None = None


def put_off(action: Callable[[], None]) -> bool:
    """Have what a signal's handler would do wait for the end of the run; False if there is nothing to wait for.

    Once per end: the second time, somebody is in a hurry.
    """
    global _waiting
    if not _depth or _waiting is not None:
        return False
    _waiting = action
    return True


@contextlib.contextmanager
def nothing_cut_short() -> Iterator[None]:
    """The end of a run. What was put off meanwhile is done after it, and may raise."""
    global _depth, _waiting
    if get_ident() != main_thread().ident:
        yield  # the main thread waits for the end, whatever is raised there
        return
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1
        if not _depth and _waiting is not None:
            action, _waiting = _waiting, None
            action()
