"""What a rank is doing, for its keeper to see: how many calls of MPI it has made, and which of them it waits in.

Ranks that wait for one that has returned will for ever, and MPI has no way to ask. So the communicators of a task
count: in a small file that rank and keeper both map, because some calls let no other thread of the rank run that could
answer. For the same reason its stack, wanted for the message, is written by a signal's handler.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import itertools
import mmap
import os
import signal
import time
import traceback
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from penstock.executors.mpi_lookalike import lookalike

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

__all__ = ["Progress", "Watched", "counting", "progress_file", "stack_of"]

#: methods of communicators that wait for other ranks
_PLAIN = (
    *("barrier", "bcast", "gather", "scatter", "allgather", "alltoall", "reduce", "allreduce", "scan", "exscan"),
    *("recv", "send", "ssend", "sendrecv", "probe", "mprobe"),
)
_BUFFERS = (
    *("gatherv", "scatterv", "allgatherv", "alltoallv", "alltoallw", "reduce_scatter", "reduce_scatter_block"),
    *("sendrecv_replace", "rsend", "bsend"),
)
_WAITING = (*_PLAIN, *(name.capitalize() for name in (*_PLAIN, *_BUFFERS)))
#: methods that make other communicators
_MAKING = ("Dup", "Clone", "dup", "Split", "Split_type", "Create", "Create_group")

#: bytes of the file: the calls made, and the number of the method that is being called, from 1; then room for a stack
_COUNTERS = 16
#: seldom used by programs
_SIGNAL = signal.SIGRTMIN + 9
#: seconds of a processor's time that a rank has spent in a call before it can be said to wait in vain
_TURN = 0.3
_TICKS = os.sysconf("SC_CLK_TCK")
#: seconds in which a signal must have brought a stack
_PATIENCE = 1.0
#: packages whose frames come before the task's body
_OURS = ("penstock.executors.", "penstock.data.")


def progress_file(folder: str, world: int, rank: int) -> str:
    """What a rank and its keeper both map."""
    return os.path.join(folder, f"world{world}-{rank}")


class Progress:
    """In the rank: where it counts."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.write(self._descriptor, bytes(_COUNTERS))
        self.counters = memoryview(mmap.mmap(self._descriptor, _COUNTERS)).cast("q")
        faulthandler.register(_SIGNAL, file=self._descriptor, all_threads=False)

    def close(self) -> None:
        """Be seen no more; a rank never does this."""
        faulthandler.unregister(_SIGNAL)
        os.close(self._descriptor)


class Watched:
    """In the keeper: what it sees of one rank."""

    def __init__(self, path: str, pid: int) -> None:
        self._path = path
        self._pid = pid
        self._last = (0, 0)
        self._since = 0.0
        #: seconds of a processor that it had used by then
        self._used = 0.0

    def waits(self) -> tuple[str, float]:
        """The method in which the rank has waited since the last look or longer, and for how long; else nothing.

        Libraries look for messages without a rest. A rank that is stopped, or that gets no processor on a machine with
        much else to do, has not looked: it has waited for no time.
        """
        try:
            with open(self._path, "rb") as file:
                calls, method = memoryview(file.read(_COUNTERS)).cast("q")
        except (OSError, ValueError, TypeError):
            return "", 0.0
        if (calls, method) != self._last:
            self._last, self._since = (calls, method), time.monotonic()
            self._used = self._at_work()[1]
        if not method:
            return "", 0.0
        state, used = self._at_work()
        has_looked = state == "S" or used - self._used >= _TURN
        return _WAITING[method - 1], time.monotonic() - self._since if has_looked else 0.0

    def _at_work(self) -> tuple[str, float]:
        """Its state, as the kernel calls it, and the seconds of a processor that it has used."""
        with contextlib.suppress(OSError), open(f"/proc/{self._pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
            return fields[0].decode(), (int(fields[11]) + int(fields[12])) / _TICKS
        return "", 0.0

    def stack(self) -> str:
        """The lines at which its main thread stands, as far as they are the task's."""
        until = time.monotonic() + _PATIENCE
        with contextlib.suppress(OSError):
            os.kill(self._pid, _SIGNAL)
            while time.monotonic() < until:
                time.sleep(0.01)
                with open(self._path, "rb") as file:
                    lines = file.read()[_COUNTERS:].decode(errors="replace").splitlines()
                if lines:
                    ours = (f"{os.sep}penstock{os.sep}executors{os.sep}", "<frozen runpy>")
                    return "\n".join(line for line in lines if not any(part in line for part in ours))
        return ""

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._path)


def counting(kind: type[Intracomm], progress: Progress, leave: Callable[[str], None]) -> type[Intracomm]:
    """A class of communicators that count the calls that wait, and say who aborts."""
    counters = progress.counters

    def counted(number: int, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            counters[0] += 1
            counters[1] = number
            try:
                return method(*args, **kwargs)
            finally:
                counters[1] = 0

        return call

    def of_our_kind(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            made = method(*args, **kwargs)
            return Counting(made) if type(made) is kind and made else made

        return call

    def abort(self: Any, errorcode: int = 0) -> Any:
        leave(f"it called Abort({errorcode})")
        return kind.Abort(self, errorcode)

    def end_of_all(comm: Any, error: int) -> None:
        from mpi4py import MPI

        leave(f"an error of MPI was fatal to it: {MPI.Get_error_string(error)}")
        kind.Abort(comm, error)

    #: error handlers of MPI that end all ranks, and ours for them; a program can make few, so none before it is wanted
    telling: list[tuple[Any, Any]] = []

    def set_errhandler(self: Any, errhandler: Any) -> None:
        from mpi4py import MPI

        # The library itself would end all ranks, and nobody could tell who began.
        if errhandler in (MPI.ERRORS_ARE_FATAL, MPI.ERRORS_ABORT):
            if all(fatal != errhandler for fatal, _ in telling):
                with contextlib.suppress(RuntimeError):  # the program has made all that can be
                    telling.append((MPI.Errhandler(errhandler), kind.Create_errhandler(end_of_all)))
            errhandler = next((ours for fatal, ours in telling if fatal == errhandler), errhandler)
        kind.Set_errhandler(self, errhandler)

    def get_errhandler(self: Any) -> Any:
        found = kind.Get_errhandler(self)
        return next((type(fatal)(fatal) for fatal, ours in telling if ours == found), found)

    methods: dict[str, Any] = {
        name: counted(number, getattr(kind, name)) for number, name in enumerate(_WAITING, 1) if hasattr(kind, name)
    }
    methods |= {name: of_our_kind(getattr(kind, name)) for name in _MAKING if hasattr(kind, name)}
    methods |= {"Abort": abort, "Set_errhandler": set_errhandler, "Get_errhandler": get_errhandler}
    Counting = lookalike(kind, methods)
    return Counting


def stack_of(frame: FrameType) -> str:
    """Where a frame of a task stands, from the task's body on."""
    frames = [*itertools.dropwhile(_is_ours, traceback.walk_stack(frame))]
    body = [*itertools.takewhile(lambda one: not _is_ours(one), frames)]
    lines = traceback.StackSummary.extract(reversed(body)).format()
    return "Stack (most recent call last):\n" + "".join(lines).rstrip()


def _is_ours(frame: tuple[FrameType, int]) -> bool:
    return str(frame[0].f_globals.get("__name__", "")).startswith(_OURS)
