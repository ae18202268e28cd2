"""What a task finds outside of its arguments: the state of the program's process when the task was called.

Noted at the call, it travels with it and is taken on by whichever process carries it out (executors/outside.py).
"""

from __future__ import annotations

from msgspec import Struct

__all__ = ["Outside"]


class Outside(Struct, frozen=True, array_like=True, tag="x"):
    """Paths and variables are bytes: they need not be valid text."""

    #: the working directory; empty if it had been removed
    cwd: bytes
    #: variables of the environment that are not as at the start of the run; None for one that was removed
    environ: dict[bytes, bytes | None]
    #: None as long as the program has not set one
    umask: int | None
    #: where modules are imported from
    path: tuple[bytes, ...]
    #: how deep calls may go
    recursion_limit: int
    #: of loggers for which it is not the usual one; the name of the first of all is empty
    log_levels: dict[str, int]
