"""What a run has to say to the person who started it, besides what tasks print: on standard error.

That may be closed (a service, ``2>&-``) or lead to somebody who has left. Neither is a reason for a run to fail.
"""

from __future__ import annotations

import contextlib
import sys

__all__ = ["flush_streams", "say", "sees_a_person"]


def say(text: str) -> None:
    """Write a text on standard error, if there is one and it can be written to."""
    stream = sys.stderr
    if stream is not None:
        with contextlib.suppress(OSError, ValueError):
            stream.write(text)
            stream.flush()


def sees_a_person() -> bool:
    """Whether standard error is a terminal."""
    try:
        return sys.stderr is not None and sys.stderr.isatty()
    except ValueError:
        return False  # it is closed


def flush_streams() -> None:
    """Have out what was printed so far."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
