"""The lock around the engine. Ctrl-C in the thread that holds it waits until it is let go.

Between what the engine decides and what is done about it there is no good moment to be interrupted: a task would be
counted as launched and never sent. So while the main thread has the lock, the interrupt is only noted; it is raised
when the lock is released, when all that was begun is done. A program that catches it can go on. A second Ctrl-C is
not held back. Where tasks run in the program's own thread, the same holds from the moment an attempt is taken up until
the engine has heard how it ended, except while the body runs: that is the program's own code.

A finaliser may run anywhere, also in a thread that holds the lock, and so may the handler of a signal in the main
thread. One that calls a task there is refused: the engine is in the middle of something else, and to wait for it would
be to wait for oneself.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from threading import get_ident
from types import FrameType, TracebackType

from penstock.errors import PenstockError

__all__ = ["CallingLock", "EngineLock"]

_MAIN = threading.main_thread().ident
#: locks of the runtimes under way
_watched: list[EngineLock] = []


class EngineLock:
    """Used with ``with``; ``raw`` is the lock itself, for conditions whose waiters want to be interrupted."""

    __slots__ = ("_depth", "_interrupted", "_is_mine", "raw")

    def __init__(self) -> None:
        self.raw = threading.RLock()  # which knows who has it
        self._is_mine: Callable[[], bool] = self.raw._is_owned  # type: ignore[attr-defined]
        #: how many times over the main thread is at something that must not be interrupted
        self._depth = 0
        self._interrupted = False

    def refuse_finaliser(self) -> None:
        """Raise if this thread has the lock: then what asks for it is a finaliser, or the handler of a signal."""
        if self._is_mine():
            raise PenstockError(
                "a finaliser (__del__, or a callback of weakref) or a signal handler called a task, or waited for one, "
                "in the middle of Penstock's own work in this thread, where that cannot be done. Have it leave a note, "
                "in a queue.SimpleQueue for instance, and let the program call the task."
            )

    def __enter__(self) -> None:
        if self._is_mine():
            self.refuse_finaliser()
        # Noted before the lock is taken: an exception in between would leave it locked for ever.
        if get_ident() == _MAIN:
            self._depth += 1
        self.raw.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.raw.release()
        if self._depth and get_ident() == _MAIN:
            self._depth -= 1  # as in _set_depth, without a call: this happens several times per task
            if self._interrupted:
                self._set_depth(self._depth)

    @contextlib.contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Hold interrupts back without the lock."""
        if get_ident() != _MAIN:
            yield
            return
        self._depth += 1
        try:
            yield
        finally:
            self._set_depth(self._depth - 1)

    @contextlib.contextmanager
    def let_through(self) -> Iterator[None]:
        """Within ``undisturbed``: what may be interrupted all the same."""
        if get_ident() != _MAIN:
            yield
            return
        depth = self._depth
        try:
            self._set_depth(0)
            yield
        finally:
            self._depth = depth

    def _set_depth(self, depth: int) -> None:
        self._depth = depth
        if not depth and self._interrupted:
            self._interrupted = False
            raise KeyboardInterrupt

    def watch_interrupts(self) -> None:
        """Be asked about Ctrl-C from now on, unless the program deals with it in a way of its own."""
        if get_ident() != _MAIN:
            return
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _on_interrupt)
        _watched.append(self)

    def leave_interrupts(self) -> None:
        """Leave Ctrl-C to Python again, if no other runtime is under way."""
        if self in _watched:
            _watched.remove(self)
        # Only the main thread may change what happens; ours does as Python's does when nothing is watched.
        if not _watched and get_ident() == _MAIN and signal.getsignal(signal.SIGINT) is _on_interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def put_off(self) -> bool:
        """Whether an interrupt has to wait, and will be raised when the lock is released."""
        if not self._depth or self._interrupted:
            return False
        self._interrupted = True
        return True


class CallingLock:
    """Held by a thread while it enters a call. Pickling runs code of the program's, which may call tasks as well."""

    __slots__ = ("_engine", "_raw")

    def __init__(self, engine: EngineLock) -> None:
        self._engine = engine
        self._raw = threading.RLock()

    def __enter__(self) -> None:
        # Before it is waited for: who has it may be waiting for the lock that a finaliser here has interrupted.
        self._engine.refuse_finaliser()
        self._raw.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._raw.release()


def _on_interrupt(number: int, frame: FrameType | None) -> None:
    if not any(lock.put_off() for lock in _watched):
        signal.default_int_handler(number, frame)
