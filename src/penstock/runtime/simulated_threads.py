"""The threads of a program that is simulated: virtual time may pass when all of them wait.

A thread that waits for tasks says so here. One that does not may be computing, and about to call something, or be
asleep for reasons of its own; that is seen from whether the process computes.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from penstock.own_threads import OwnThread

__all__ = ["ProgramThreads"]

#: real seconds of a look at what the others do, and the share of them that counts as computing
_GLANCE = 0.001
_COMPUTING = 0.1
#: that many are enough: a thread that was let go needs some time to get its turn
_GLANCES = 4
#: looks after which time passes whatever others do; not seconds, in which this process may not have had its turn
_PATIENCE = 100

#: what it looked like: whether anything was called since, and whether anybody began or ended a wait
Sight = tuple[int, int]


class ProgramThreads:
    """Who waits, and until what."""

    def __init__(self, events: Callable[[], int]) -> None:
        """``events`` counts what the engine was told."""
        self._events = events
        self._waits: dict[int, Callable[[], bool]] = {}
        self._turns = 0

    @contextlib.contextmanager
    def waiting(self, reached: Callable[[], bool]) -> Iterator[None]:
        """Around a wait of the calling thread; it may be one of a callback, within another."""
        here = threading.get_ident()
        outer = self._waits.get(here)
        self._waits[here] = reached
        self._turns += 1
        try:
            yield
        finally:
            if outer is None:
                del self._waits[here]
            else:
                self._waits[here] = outer
            self._turns += 1

    def sight(self) -> Sight:
        """Changes whenever a thread does something that may matter."""
        return self._events(), self._turns

    def anyone_may_go_on(self) -> bool:
        """Whether what some thread waits for has happened."""
        return any(reached() for reached in list(self._waits.values()))

    def settle_down(self) -> Sight:
        """Let other threads go on until they wait too, or do nothing that could be seen; the sight at that time."""
        quiet, looks, sight = 0, 0, self.sight()
        while any(True for _ in self._others()):
            looks += 1
            quiet = quiet + 1 if self._is_quiet() and sight == self.sight() else 0
            sight = self.sight()
            if quiet >= _GLANCES or looks >= _PATIENCE:
                break
        return sight

    def _is_quiet(self) -> bool:
        """A look at what the others do: whether it is nothing."""
        computed = time.process_time()
        time.sleep(_GLANCE)
        computed = time.process_time() - computed
        return computed < _GLANCE * _COMPUTING and not self.anyone_may_go_on() and not self._anyone_is_runnable()

    def _others(self) -> Iterator[threading.Thread]:
        """Other threads of the program that do not wait, or need not any more."""
        here = threading.get_ident()
        for thread in threading.enumerate():
            if thread.ident != here and type(thread) is not OwnThread:
                reached = self._waits.get(thread.ident or 0)
                if reached is None or reached():
                    yield thread

    def _anyone_is_runnable(self) -> bool:
        """Whether another thread would compute if the machine let it; a busy machine may not for a while."""
        for thread in self._others():
            with contextlib.suppress(OSError), open(f"/proc/self/task/{thread.native_id}/stat", "rb") as file:
                if file.read().rpartition(b")")[2].split()[0] == b"R":
                    return True
        return False
