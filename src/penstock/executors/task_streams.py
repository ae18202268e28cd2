"""Standard streams as tasks find them in a worker or a rank: text leaves in whole lines, and nothing comes in.

What a task leaves without an end of line is sent at its end, and the line ended: else it would stay here until another
task prints, and stand in one line with that. What others write past the streams (a child process, ``os.write``) is not
seen here: a worker then sends a mark after it, at which the relay ends the line if there is one. A debugger cannot ask
anybody here, and says so.
"""

from __future__ import annotations

import _posixsubprocess
import contextlib
import ctypes
import functools
import io
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

__all__ = ["END_OF_TASK", "TaskStream", "end_lines", "has_terminal", "open_streams", "watch_others"]

#: in the output of a worker: what comes next is of another task
END_OF_TASK = b"\x1b_penstock:end-of-task\x1b\\"

_LINE_BUFFERED = 1


class _Bytes(io.BufferedWriter):
    """The bytes of a stream on their way out; knows whether the last line is unfinished."""

    in_line = False

    def write(self, data: Any) -> int:
        """Write bytes."""
        end = bytes(memoryview(data)[-1:])
        if end:
            self.in_line = end != b"\n"
        return super().write(data)


class TaskStream(io.TextIOWrapper):
    """A stream that knows whether anything waits in it. What ends a line leaves at once."""

    #: text or bytes may wait, or an unfinished line be all that was sent
    waits = False

    def __init__(self, descriptor: int) -> None:
        self._bytes = _Bytes(io.FileIO(descriptor, "w", closefd=False))
        super().__init__(self._bytes, "utf-8", "backslashreplace", line_buffering=True)

    def write(self, text: str) -> int:
        """Write text."""
        if text[-1:] != "\n":
            self.waits = True
        return super().write(text)

    @property
    def buffer(self) -> Any:
        """For bytes; whoever asks for it may leave some there."""
        self.waits = True
        return self._bytes

    def end_line(self) -> None:
        """Send what waits, and end its line. A stream that was closed or filled by the task is not our concern."""
        self.waits = False
        with contextlib.suppress(Exception):
            self.flush()
            if self._bytes.in_line:
                self._bytes.write(b"\n")
                self._bytes.flush()


def open_streams() -> None:
    """Put new streams in the place of this process's own, and a debugger that explains itself."""
    _streams[:] = sys.stdout, sys.stderr = TaskStream(1), TaskStream(2)
    if "PYTHONBREAKPOINT" not in os.environ:
        sys.breakpointhook = _no_debugger
    # C libraries would keep lines until their buffer is full, since this is no terminal.
    with contextlib.suppress(Exception):
        libc = ctypes.CDLL(None)
        libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, _LINE_BUFFERED, 0)


_streams: list[Any] = []


class _Others:
    """Whether anybody but the streams may have written where they stand, since the last task ended."""

    wrote = False

    def __init__(self) -> None:
        self._pipes = {descriptor: _identity(descriptor) for descriptor in (1, 2)}
        for name in ("system", "posix_spawn", "posix_spawnp"):
            self._note(os, name, "posix")
        self._note(os, "write", "posix", only=(1, 2))
        os.register_at_fork(after_in_parent=self.note)
        self._note(_posixsubprocess, "fork_exec")
        if "subprocess" in sys.modules:
            self._note(sys.modules["subprocess"], "_fork_exec")

    def note(self) -> None:
        self.wrote = True

    def _note(self, module: Any, name: str, pickled_as: str | None = None, *, only: tuple[int, ...] = ()) -> None:
        """Have the calls of a function noted; ``only`` those with such a descriptor."""
        wrapped = self._noting(getattr(module, name), only)
        setattr(module, name, wrapped)
        if pickled_as is not None:
            setattr(sys.modules[pickled_as], name, wrapped)

    def _noting(self, original: Callable[..., Any], only: tuple[int, ...]) -> Callable[..., Any]:
        @functools.wraps(original)
        def noting(*args: Any, **kwargs: Any) -> Any:
            if not only or (args and args[0] in only):
                self.wrote = True
            return original(*args, **kwargs)

        return noting

    def mark(self) -> None:
        """Tell the relay that the task is over, unless the task has put a file in the place of a stream."""
        for descriptor, pipe in self._pipes.items():
            with contextlib.suppress(OSError):
                if _identity(descriptor) == pipe:
                    os.write(descriptor, END_OF_TASK)
        self.wrote = False


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


_others: _Others | None = None


def watch_others() -> None:
    """From now on, note when others than the streams may write to them; for processes whose output a relay reads."""
    global _others
    if _others is None:
        _others = _Others()


def end_lines() -> None:
    """A task is over: send what it has left in the streams, and forget others that it has put in their place."""
    if not _streams:
        return
    output, errors = _streams
    if output.waits:
        output.end_line()
    if errors.waits:
        errors.end_line()
    if _others is not None and _others.wrote:
        _others.mark()
    sys.stdout, sys.stderr = output, errors


def has_terminal() -> bool:
    """Whether somebody could answer a task of this process."""
    return not _streams


def _no_debugger(*args: Any, **kwargs: Any) -> NoReturn:
    raise RuntimeError(
        "breakpoint() in a task that runs in a worker process, which has no terminal; run the program with "
        "PENSTOCK_MODE=inline, or call the plain function: task.__wrapped__(...)"
    )
