"""The learning phase: one constraint after the other is tried on real tasks, and their mean time is noted.

    started ─▶ running ─▶ succeeded ──(size reached)──▶ epoch closed ─▶ next constraint, or done
                      └─▶ failed: another instance takes the place

An epoch is bounded by its number of tasks, never by time. Bounded constraints (``auto(min, max, delta)``) try every
value; unbounded ones double until a doubling no longer pays. The machine only counts: which tasks run, and where, is
the engine's business.
"""

from __future__ import annotations

import math

from penstock.errors import InternalError
from penstock.model.resources import Auto
from penstock.tuning.registry import Measure

__all__ = ["Learner", "epoch_size", "first_constraint", "highest_constraint"]

_MB = 1e6
_GROWTH = 2.0
# A quotient that is whole in decimal may land just below it in binary, and a mean of equal times just above them.
#: an epoch is full if at least this part of its tasks ran together: the first may end while the last is launched
_TOGETHER = 0.6
_SLACK = 1 + 1e-9


def epoch_size(constraint: float, bandwidth: float, executors: int) -> int:
    """How many tasks a device of one node admits at a time if each reserves ``constraint``; at least one."""
    fitting = bandwidth / constraint * _SLACK
    return executors if fitting >= executors else max(1, math.floor(fitting))


def first_constraint(auto: Auto, bandwidth: float, executors: int) -> float:
    """The value that the first epoch tries: the lowest one."""
    if auto.bounded:
        return auto.least
    share = bandwidth / executors
    whole = math.floor(share / _MB * _SLACK) * _MB
    return whole or share  # a device slower than one MB/s per executor is shared in fractions


def highest_constraint(auto: Auto, bandwidth: float, ceiling: float | None) -> float:
    """The highest value that may be tried or chosen."""
    highest = bandwidth if ceiling is None else min(bandwidth, ceiling)
    return min(highest, auto.most) if auto.bounded else highest


class Learner:
    """The learning phase of one function on one layer.

    ``ceiling`` bounds the values that are tried; ``tolerance`` is how much longer than required (0.1: 10 %) the mean
    time may be for an unbounded search to go on.
    """

    def __init__(
        self,
        auto: Auto,
        bandwidth: float,
        executors: int,
        *,
        ceiling: float | None = None,
        tolerance: float = 0.0,
    ) -> None:
        if not 0 < bandwidth < math.inf or executors < 1 or (ceiling is not None and not ceiling > 0):
            raise ValueError(f"cannot learn with {bandwidth=}, {executors=}, {ceiling=}")
        self._auto = auto
        self._bandwidth = bandwidth
        self._executors = executors
        self._tolerance = tolerance
        self._last = highest_constraint(auto, bandwidth, ceiling)
        self._registered: list[Measure] = []
        self._closed: list[Measure] = []
        self._done = False
        self._running = self._successes = self._peak = 0
        self._first = self._last_end = 0.0
        self._seconds = 0.0
        # A first value beyond the device is brought down to it: one epoch must run, or nothing would ever be known.
        self._open(min(first_constraint(auto, bandwidth, executors), self._last))

    @property
    def constraint(self) -> float:
        """Bytes per second that each task of the present epoch reserves."""
        return self._constraint

    @property
    def size(self) -> int:
        """Successful tasks that make the present epoch full."""
        return self._size

    @property
    def running(self) -> int:
        return self._running

    @property
    def room(self) -> int:
        """Instances that may still start in the present epoch."""
        return 0 if self._done else self._size - self._running - self._successes

    @property
    def done(self) -> bool:
        return self._done

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The registered epochs, by rising constraint."""
        return tuple(self._registered)

    @property
    def epochs(self) -> tuple[Measure, ...]:
        """All closed epochs: the registered ones, and the one that ended an unbounded search."""
        return tuple(self._closed)

    def started(self) -> None:
        """An instance was launched under ``constraint``."""
        if self.room < 1:
            raise InternalError(f"an epoch of {self._size} tasks has no room for another ({self!r})")
        self._running += 1
        self._peak = max(self._peak, self._running)

    def succeeded(self, seconds: float, now: float | None = None) -> bool:
        """An instance ended well after ``seconds``, at ``now``; True if it closed the epoch."""
        self._ended()
        self._successes += 1
        self._seconds += max(0.0, seconds)
        if now is not None:
            self._first = min(self._first, now - max(0.0, seconds))
            self._last_end = max(self._last_end, now)
        if self._successes < self._size:
            return False
        # Tasks that came one after the other say nothing of what the device does with as many at a time.
        together = self._together()
        full = together >= _TOGETHER * self._size
        self._close(self._size if full else together, partial=not full)
        return True

    def _together(self) -> int:
        """How many instances really ran at a time: as many as were sent, or on the average if that was fewer."""
        span = self._last_end - self._first
        if not 0 < span < math.inf:
            return self._peak
        return max(1, min(self._peak, round(self._seconds / span)))

    def failed(self) -> None:
        """An attempt ended without success: its time says nothing, and another instance takes its place."""
        self._ended()

    def close_early(self) -> bool:
        """No more instances can come: close on what there is. True if that closed the epoch."""
        if self._done or self._running or not self._successes:
            return False
        self._close(self._together(), partial=True)
        return True

    def _open(self, constraint: float) -> None:
        self._constraint = constraint
        self._size = epoch_size(constraint, self._bandwidth, self._executors)
        self._running = 0
        self._successes = 0
        self._peak = 0
        self._seconds = 0.0
        # When the first instance began and the last one ended.
        self._first, self._last_end = math.inf, -math.inf

    def _ended(self) -> None:
        if not self._running:
            raise InternalError(f"a task ended that the epoch does not know ({self!r})")
        self._running -= 1

    def _close(self, concurrency: int, *, partial: bool) -> None:
        mean = self._seconds / self._successes
        epoch = Measure(self._constraint, mean, concurrency, self._successes, partial)
        pays = self._auto.bounded or not self._registered or self._gained(self._registered[-1], epoch)
        self._closed.append(epoch)
        if pays:
            self._registered.append(epoch)
        following = self._following()
        if pays and following is not None:
            self._open(following)
        else:
            self._done = True

    def _following(self) -> float | None:
        grown = self._constraint * (self._auto.delta if self._auto.bounded else _GROWTH)
        if grown > self._last * _SLACK:
            return None
        grown = min(grown, self._last)
        return grown if grown > self._constraint else None  # a delta as small as the slack gets nowhere

    def _gained(self, before: Measure, epoch: Measure) -> bool:
        """Whether an unbounded search goes on: with twice the constraint, the time must fall at least to half.

        Half is asked for whatever the numbers of tasks, as published. Partial epochs are ours, and their concurrency
        has nothing to do with the constraint: only proportion to what really ran tells congestion from there having
        been fewer tasks.
        """
        partial = before.partial or epoch.partial
        fall = epoch.concurrency / before.concurrency if partial else 1 / _GROWTH
        return epoch.seconds <= before.seconds * fall * (1 + self._tolerance) * _SLACK

    def __repr__(self) -> str:
        state = "done" if self._done else f"{self._running} running, {self._successes} of {self._size} succeeded"
        return f"<Learner epoch {len(self._closed) + (not self._done)} at {self._constraint:g} B/s: {state}>"
