"""The ways to declare the tasks that write, from not I/O-aware to a learned constraint.

A way is a word: `unaware`, `unconstrained`, a static constraint in MB/s (`8`), `auto`, or `auto(min,max,delta)`.
"""

from collections.abc import Callable
from typing import Any

from benchmarks.storage.device import BOUNDED, EXECUTORS, EXECUTORS_WITHOUT_CONSTRAINTS, SWEEP

UNAWARE = "unaware"
UNCONSTRAINED = "unconstrained"
AUTO = "auto"
STATIC = tuple(str(value) for value in SWEEP)
AUTOS = (AUTO, BOUNDED)
ALL = (UNAWARE, UNCONSTRAINED, *STATIC, *AUTOS)


def declare_writer(way: str, body: Callable[..., None]) -> Any:
    """A task of `body`, whose parameter `path` is the file it writes."""
    from penstock import FILE_OUT, constraint, io, task

    writer = task(path=FILE_OUT)(body)
    if way == UNAWARE:
        return writer
    if way == UNCONSTRAINED:
        return io(writer)
    return constraint(storage_bw=way if way in AUTOS else float(way))(io(writer))


def executors(way: str) -> int:
    return EXECUTORS_WITHOUT_CONSTRAINTS if way == UNCONSTRAINED else EXECUTORS
