"""Waiting for what happens in its own time: in another process, in the background, in the kernel."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["PATIENCE", "Leap", "becomes", "eventually"]

#: seconds that a machine with much else to do may take
PATIENCE = 60.0

#: the fixture ``leap``: so many seconds pass at once for the engine
Leap = Callable[[float], None]


def becomes(condition: Callable[[], object], patience: float = PATIENCE) -> bool:
    """Whether something comes true. What was true once is not asked again: it may be over by then."""
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def eventually(condition: Callable[[], object], patience: float = PATIENCE) -> None:
    """Wait for something that must come true."""
    __tracebackhide__ = True
    assert becomes(condition, patience), "it did not happen"
