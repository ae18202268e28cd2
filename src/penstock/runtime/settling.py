"""How those who wait for versions are told, on real and on virtual time: the base of both drivers.

A version is settled under the driver's lock. Who has to be told of it, and may run the user's code, is called after
the lock is released.
"""

from __future__ import annotations

import threading
from collections import deque
from itertools import chain
from typing import Any, Protocol

from penstock.data.serializer import NONE
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


class Settling:
    """Futures that wait, versions that were let go, and failures that nobody has looked at."""

    def __init__(self) -> None:
        self.lock = EngineLock()
        self._changed = threading.Condition(self.lock.raw)
        #: futures of versions that do not exist yet
        self.waiters: dict[VersionId, Waiter] = {}
        #: threads that wait for versions of objects of the program, besides the futures of these, if they have any
        self.onlookers: dict[VersionId, list[Waiter]] = {}
        #: versions and segments let go by finalisers, which may run anywhere and so only leave a note
        self.released: deque[VersionId] = deque()
        self.released_segments: deque[SegmentId] = deque()
        #: failures that nobody has looked at, by the task they began in
        self.unobserved: dict[str, Failure] = {}
        self._announcements: deque[Waiter] = deque()
        self._announcing: set[int] = set()

    def take_released(self) -> tuple[VersionId, ...]:
        """The versions that finalisers have let go since the last time; under the lock."""
        released = self.released
        return tuple([released.popleft() for _ in range(len(released))])

    def _overtake(self, version: VersionId) -> None:
        """The program lets a version go: threads that wait for it would never be told, and look for a newer one."""
        for waiter in self.onlookers.pop(version, ()):
            if waiter.settle(NONE):
                self._announcements.append(waiter)

    def _settle(self, command: commands.Settle) -> events.Event | None:
        """A version exists, or never will; gives what the engine is to be told in answer."""
        waiter = self.waiters.pop(command.version, None)
        outcome = command.outcome
        if waiter is not None and waiter.settle(outcome):
            self._announcements.append(waiter)
        if self.onlookers:
            for waiter in self.onlookers.pop(command.version, ()):
                if waiter.settle(outcome):
                    self._announcements.append(waiter)
        if type(outcome) is Failure:
            # Who knows of a failure knows what it means to the tasks called so far, but not to one that is called then.
            is_news = outcome.kind is not FailureKind.DEPENDENCY or outcome.called_after
            if is_news and outcome.kind is not FailureKind.CANCELLED and outcome.path:
                self.unobserved.setdefault(outcome.path[0], outcome)
        elif type(outcome) is FileRef:
            # A file that bears its final name needs no version: the next task finds it on disk.
            return events.Released((command.version,))
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
            waiters = [*self.waiters.values(), *chain.from_iterable(self.onlookers.values())]
            self.waiters, self.onlookers = {}, {}
            for waiter in waiters:
                waiter.settle(failure)
            self._changed.notify_all()
        for waiter in waiters:
            waiter.announce()
        self._announce()  # of what was settled before, whoever broke down may not have come to that
