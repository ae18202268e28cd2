"""Whether the main thread of a rank waits for other ranks, and since when.

MPI has no way to ask. But a call of MPI that waits lets other threads run, and the interpreter can say at which
instruction the main thread stands: if that calls one of the methods that wait, of an object of MPI, and has not moved
since the last look, the rank waits. Used when some ranks have returned: those that only wait for them will for ever.
"""

from __future__ import annotations

import dis
import sys
import threading
import time
import traceback
from types import CodeType, FrameType, ModuleType
from typing import Any

from penstock.executors.mpi_wire import Seen

__all__ = ["Waiting", "stack_of"]

_WAITING = frozenset(
    name
    for plain in (
        *("barrier", "bcast", "gather", "scatter", "allgather", "alltoall", "reduce", "allreduce", "scan", "exscan"),
        *("recv", "send", "ssend", "rsend", "sendrecv", "probe", "mprobe", "wait", "waitall", "waitany", "waitsome"),
        *("reduce_scatter", "gatherv", "scatterv", "allgatherv", "alltoallv", "alltoallw", "sendrecv_replace"),
        *("reduce_scatter_block", "neighbor_allgather", "neighbor_alltoall"),
    )
    for name in (plain, plain.capitalize())
)


#: packages whose frames come before the task's body
_OURS = ("penstock.executors.", "penstock.data.")


class Waiting:
    """Watches the main thread of this process."""

    def __init__(self) -> None:
        self._thread = threading.main_thread().ident
        self._last: tuple[int, int] | None = None
        self._since = 0.0

    def look(self) -> Seen:
        """The call of MPI in which the main thread waits, and for how long it has been seen there; else nothing."""
        frame = sys._current_frames().get(self._thread or 0)
        where = "" if frame is None else waits_in(frame)
        if frame is None or not where:
            self._last = None
            return Seen("", 0.0)
        here = (id(frame), frame.f_lasti)
        if here != self._last:
            self._last, self._since = here, time.monotonic()
        return Seen(where, time.monotonic() - self._since, stack_of(frame))


def stack_of(frame: FrameType) -> str:
    """Where a frame of a task stands, from the task's body on."""
    frames = [*traceback.walk_stack(frame)][::-1]
    ours = [index for index, (one, _) in enumerate(frames) if one.f_globals.get("__name__", "").startswith(_OURS)]
    lines = traceback.StackSummary.extract(iter(frames[max(ours, default=-1) + 1 :])).format()
    return "Stack (most recent call last):\n" + "".join(lines).rstrip()


def waits_in(frame: FrameType) -> str:
    """The waiting call of MPI at which a frame stands, with its line; empty if it stands elsewhere."""
    steps = _callee(frame.f_code, frame.f_lasti)
    if not steps or steps[-1] not in _WAITING:
        return ""
    if not _is_of_mpi(_owner(frame, steps[:-1])):
        return ""
    return f"{'.'.join(steps)}() at {frame.f_code.co_filename}:{frame.f_lineno}"


def _callee(code: CodeType, position: int) -> list[str]:
    """The dotted name that the call at an instruction calls; empty if it is no such call.

    The name begins where the expression of the call does, and is the longest that does so and ends before it.
    """
    instructions = list(dis.get_instructions(code))
    found = [one for one in instructions if one.offset == position and one.opname.startswith(("CALL", "PRECALL"))]
    if not found or found[0].positions is None:
        return []
    call = found[0].positions
    steps: list[str] = []
    for one in instructions:
        at = one.positions
        if one.offset >= position or at is None or (at.lineno, at.col_offset) != (call.lineno, call.col_offset):
            continue
        if one.opname.startswith("LOAD_"):
            inside = (at.end_lineno or 0, at.end_col_offset or 0) < (call.end_lineno or 0, call.end_col_offset or 0)
            if inside and isinstance(one.argval, str):
                steps = [*steps, one.argval] if one.opname in ("LOAD_ATTR", "LOAD_METHOD") else [one.argval]
    return steps


def _owner(frame: FrameType, steps: list[str]) -> Any:
    """The object that a dotted name means in a frame; only names of modules and of MPI are followed."""
    if not steps:
        return None
    first = steps[0]
    owner = frame.f_locals.get(first, frame.f_globals.get(first))
    for step in steps[1:]:
        if not isinstance(owner, ModuleType) and not _is_of_mpi(owner):
            return None
        owner = getattr(owner, step, None)
    return owner


def _is_of_mpi(obj: Any) -> bool:
    """Whether an object is of a class of MPI, or is one."""
    kind = obj if isinstance(obj, type) else type(obj)
    return any(base.__module__.startswith("mpi4py") for base in kind.__mro__)
