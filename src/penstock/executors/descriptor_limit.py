"""How many files a process may have open: as many as the system lets it, since arrays are files too."""

from __future__ import annotations

import contextlib

__all__ = ["allow_many_files"]


def allow_many_files() -> None:
    """Each large array that the program or a task holds costs a descriptor; workers inherit the limit."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
