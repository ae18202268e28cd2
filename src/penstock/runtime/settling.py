"""How those who wait for versions are told, on real and on virtual time: the base of both drivers.

A version is settled under the driver's lock. Who has to be told of it, and may run the user's code, is called after
the lock is released.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Protocol

from penstock.model import commands, events
from penstock.model.data import FileRef, SegmentId, VersionId
from penstock.model.tasks import Failure, FailureKind
from penstock.runtime.engine_lock import EngineLock

__all__ = ["Settling", "Waiter"]


class Waiter(Protocol):
    """What waits for a version: a future."""

    def settle(self, outcome: Any) -> bool:
        """Take the outcome, under the lock; True if somebody must be told afterwards."""
        ...

    def announce(self) -> None:
        """Tell those who wait; called without the lock."""
        ...


class _Several:
    """Those who wait for one version: threads that want an object of the program, and the future that stands for it."""

    def __init__(self, waiters: list[Waiter]) -> None:
        self.waiters = waiters
        self._told: list[Waiter] = []

    def settle(self, outcome: Any) -> bool:
        self._told = [waiter for waiter in self.waiters if waiter.settle(outcome)]
        return bool(self._told)

    def announce(self) -> None:
        for waiter in self._told:
            waiter.announce()


class Settling:
    """Futures that wait, versions that were let go, and failures that nobody has looked at."""

    def __init__(self) -> None:
        self.lock = EngineLock()
        self._changed = threading.Condition(self.lock.raw)
        #: futures of versions that do not exist yet
        self.waiters: dict[VersionId, Waiter] = {}
        #: versions and segments let go by finalisers, which may run anywhere and so only leave a note
        self.released: deque[VersionId] = deque()
        self.released_segments: deque[SegmentId] = deque()
        #: failures that nobody has looked at, by the task they began in
        self.unobserved: dict[str, Failure] = {}
        self._announcements: deque[Waiter] = deque()
        self._announcing: set[int] = set()

    def add_waiter(self, version: VersionId, waiter: Waiter) -> None:
        """Have it told of a version that others may wait for already; under the lock."""
        other = self.waiters.get(version)
        if other is None:
            self.waiters[version] = waiter
        elif isinstance(other, _Several):
            other.waiters.append(waiter)
        else:
            self.waiters[version] = _Several([other, waiter])

    def remove_waiter(self, version: VersionId, waiter: Waiter) -> None:
        """Have it no longer told of a version; under the lock."""
        known = self.waiters.get(version)
        if isinstance(known, _Several):
            known.waiters = [other for other in known.waiters if other is not waiter]
        elif known is waiter:
            del self.waiters[version]

    def _settle(self, command: commands.Settle) -> events.Event | None:
        """A version exists, or never will; gives what the engine is to be told in answer."""
        waiter = self.waiters.pop(command.version, None)
        outcome = command.outcome
        if waiter is not None and waiter.settle(outcome):
            self._announcements.append(waiter)
        if type(outcome) is Failure:
            if outcome.kind not in (FailureKind.DEPENDENCY, FailureKind.CANCELLED) and outcome.path:
                self.unobserved[outcome.path[0]] = outcome
        elif type(outcome) is FileRef:
            # A file that bears its final name needs no version: the next task finds it on disk.
            return events.Released(command.version)
        return None

    def announce_soon(self, waiter: Waiter) -> None:
        """Somebody waits for more than an outcome: tell them when the lock is let go."""
        self._announcements.append(waiter)

    def _announce(self) -> None:
        """Tell those who wait; what a callback brings about is told by the loop that called it, not deeper."""
        thread = threading.get_ident()
        if thread in self._announcing:
            return
        self._announcing.add(thread)
        try:
            while self._announcements:
                self._announcements.popleft().announce()
        except IndexError:
            pass  # another thread took the last one
        finally:
            self._announcing.discard(thread)

    def _give_up(self, failure: Failure) -> None:
        """Tell everybody who waits that nothing more will come."""
        with self.lock:
            waiters, self.waiters = self.waiters, {}
            for waiter in waiters.values():
                waiter.settle(failure)
            self._changed.notify_all()
        for waiter in waiters.values():
            waiter.announce()
