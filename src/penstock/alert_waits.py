"""Waits without a limit in which Ctrl-C, and any handler of the program's, is late at worst and never lost.

Python calls handlers in the main thread, between two steps of it. A signal that comes after the last look and before
the thread blocks, or that another thread takes, does not wake it: the handler would be called when the wait is over,
which may be never. So nobody waits for longer than a second at a time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

__all__ = ["LOOK", "until", "until_ended", "until_set"]

#: seconds after which we look, at the latest; what that costs is not to be seen in a profile
LOOK = 1.0


def until(condition: threading.Condition, reached: Callable[[], object], timeout: float | None = None) -> bool:
    """``condition.wait_for``; the caller holds its lock."""
    latest = None if timeout is None else time.monotonic() + timeout
    while not reached():
        left = LOOK if latest is None else min(LOOK, latest - time.monotonic())
        if left <= 0:
            return False
        condition.wait(left)
    return True


def until_set(event: threading.Event, timeout: float | None = None) -> bool:
    """``event.wait``."""
    latest = None if timeout is None else time.monotonic() + timeout
    while not event.is_set():
        left = LOOK if latest is None else min(LOOK, latest - time.monotonic())
        if left <= 0:
            return False
        event.wait(left)
    return True


def until_ended(thread: threading.Thread) -> None:
    """``thread.join``."""
    thread.join(LOOK)
    while thread.is_alive():
        thread.join(LOOK)
