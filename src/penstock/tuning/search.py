"""How many attempts at a time get most from a device: a search that begins low, climbs, and never quite ends.

    ramp ──(no gain, or the top)──▶ search around the best ──(steps of one tried)──▶ hold
                                        ▲                                             │
                                        └──(it delivers otherwise than it did, or a probe gained)

It is told what each limit delivered and says which to try next; when a measurement is good enough is not decided here.

Why like this. More attempts can be had at once, fewer only as attempts end: so it climbs from below, in steps of a
quarter, as congestion control does, and a collapse costs a few attempts instead of all. Between two limits that were
tried it halves the step, down to single attempts (a pattern search, which needs no model of the device). What is best
is kept as a rate with its error, and nothing counts as a gain that noise explains: the error of both measurements, and
the spread between those that were made at the best limit. While it holds, it probes both neighbours again when what
that will cost is a small part of what was delivered since: a neighbour that was much worse is seldom tried again.
Bandits with all limits as arms would spend the attempts of most programs on arms; a gradient of single measurements
follows noise; epochs that stop the device to measure cost more than what they find.
"""

from __future__ import annotations

import math
from enum import Enum, auto

from penstock.tuning.point import CHANGED, LEAST_ERROR, Point
from penstock.tuning.probes import Probes

__all__ = ["PASSING", "TOLERANCE", "Phase", "Search", "rung_above"]

#: gains below this are none
TOLERANCE = 0.02
#: weight of the newest measurement in the spread
_NEWEST_SPREAD = 0.15
#: error of what was measured in passing, once it is relied on: it may have been luck
PASSING = 0.1
#: the device has changed if the last two measurements differ from those before by more than noise explains, and this
_EACH_CHANGED = 0.08
#: noise differs by less than this from one measurement to the next
_JUMP = 0.4


class Phase(Enum):
    """What it is about."""

    RAMP = auto()
    SEARCH = auto()
    HOLD = auto()


def rung_above(limit: int, start: int, most: int, error: float) -> int:
    """Where to climb next from a limit that was measured with such an error."""
    if limit < start:
        return min(start, limit + max(1, limit // 4))
    # Where measurements are noisy, only a larger step can be told from none.
    return min(most, limit + max(1, int(limit * max(0.25, min(1.0, 4 * error)))))


class Search:
    """Steers ``limit`` between ``least`` and ``most``.

    ``start`` is where an I/O-unaware program would be: up to there it climbs as long as nothing is lost by it, beyond
    only as long as something is gained. ``begin_at`` and ``points``: what is known from before.
    """

    def __init__(
        self,
        least: int,
        most: int,
        start: int,
        *,
        begin_at: int | None = None,
        points: dict[int, Point] | None = None,
    ) -> None:
        self.least = least
        self.most = max(least, most)
        self.start = min(max(start, least), self.most)
        #: what each limit delivered when it was last tried
        self.points: dict[int, Point] = dict(points or {})
        self.phase = Phase.RAMP if begin_at is None else Phase.HOLD
        self.best = self.limit = self._within(least if begin_at is None else begin_at)
        #: at ``best``; None until it was measured in this run
        self.reference: Point | None = None
        #: how often it has come to rest, and how often the device was found changed
        self.settled = 0
        self.changes = 0
        self._direction = 1
        self._step = 1
        self._tried: set[int] = set()
        # While it holds.
        self._variance: float | None = None
        self._recent: list[float] = []
        self._usual = 0.0
        self._probes = Probes()

    @property
    def probing(self) -> bool:
        """Whether it tries another limit than the best while it holds."""
        return self.phase is Phase.HOLD and self.limit != self.best

    @property
    def resting(self) -> bool:
        """Whether it is at what it found best."""
        return self.phase is Phase.HOLD and self.limit == self.best

    @property
    def spread(self) -> float:
        """Standard deviation between measurements at one limit, as a part of them."""
        return 0.0 if self._variance is None else math.sqrt(self._variance)

    def judge(self, rate: float, error: float, nbytes: float, seconds: float) -> None:
        """``limit`` delivered ``rate`` bytes per second, and ``nbytes`` while that was measured.

        ``seconds`` is what an attempt takes. Sets the limit to try next.
        """
        error = max(math.hypot(error, self.spread), LEAST_ERROR)
        point = self._note(rate, error)
        if self.phase is Phase.RAMP:
            self._climb(rate, error)
        elif self.phase is Phase.SEARCH:
            self._compare(point)
        elif self.limit == self.best:
            self._watch(rate, error, nbytes)
        else:
            self._probed(point, seconds)
        if self.phase is Phase.HOLD and not self._probes.known and self.reference is not None:
            self._probes.plan_all(self.best, self.reference.rate, self.points, seconds)

    def look_around(self, rate: float, error: float) -> None:
        """The best delivers this now, and nothing is known of others."""
        self.reference = Point(rate, error)
        self.points = {self.best: Point(rate, error)}
        self._recent.clear()
        self._begin_search(self.best // 3, set())

    def skip(self) -> None:
        """Nothing can be told at this limit: while it climbs, try where others begin."""
        if self.phase is Phase.RAMP and self.limit < self.start:
            self.limit = self.best = self.start

    def forget(self) -> None:
        """What was measured was measured wrongly."""
        self.points.clear()
        self.reference = None
        self._recent.clear()
        if self.phase is not Phase.RAMP:
            self.phase = Phase.HOLD
            self.limit = self.best
        else:
            self.best = self.limit

    def bound(self, least: int, most: int) -> None:
        """Other limits are allowed from now on."""
        if (least, most) != (self.least, self.most):
            self.least, self.most = least, max(least, most)
            self.start = self._within(self.start)
            if self._within(self.best) != self.best:
                self.best = self._within(self.best)
                self.reference = None
            self.limit = self._within(self.limit)

    def _note(self, rate: float, error: float) -> Point:
        point = self.points.get(self.limit)
        if point is None or self.phase is Phase.RAMP:
            point = self.points[self.limit] = Point(rate, error)
        else:
            point.add(rate, error)
        return point

    # --- from below ------------------------------------------------------------------------------------------------

    def _climb(self, rate: float, error: float) -> None:
        gain = self._gain(rate)
        noise = self._noise(error)
        if gain is not None and gain <= noise and not (self.limit <= self.start and gain >= -noise):
            self._begin_search(self.limit - self.best, {limit for limit in self.points if limit != self.best})
            return
        self._accept(rate, error)
        if self.limit >= self.most:
            self._begin_search(1, set(self.points) - {self.best})
        else:
            self.limit = rung_above(self.limit, self.start, self.most, error)

    # --- around the best -------------------------------------------------------------------------------------------

    def _begin_search(self, step: int, tried: set[int]) -> None:
        self.phase = Phase.SEARCH
        self._step = max(1, abs(step))
        self._tried = tried
        self._direction = 1
        self._try_next()

    def _compare(self, point: Point) -> None:
        if self._is_gain(point):
            self._move_here(point)
        else:
            self._tried.add(self.limit)
        self._try_next()

    def _move_here(self, point: Point) -> None:
        """It gained: go on in that direction, faster."""
        limit = self.limit
        way = limit - self.best
        self._direction = 1 if way > 0 else -1
        self._tried = {self.best}
        self._step = max(1, min(2 * abs(way), limit // 3 if way > 0 else limit // 2))
        self._accept(point.rate, point.error)

    def _try_next(self) -> None:
        while True:
            for direction in (self._direction, -self._direction):
                limit = self._within(self.best + direction * self._step)
                if limit != self.best and limit not in self._tried and not self._is_beyond(limit):
                    self.limit = limit
                    return
            if self._step <= 1:
                break
            self._step //= 2
        self.phase = Phase.HOLD
        self.limit = self.best
        self.settled += 1
        if self.reference is not None:
            self.reference.error = max(self.reference.error, PASSING)
        self._recent.clear()
        self._probes.begin()

    def _is_beyond(self, limit: int) -> bool:
        """Whether one nearer to the best, on the same side, was no better."""
        low, high = sorted((self.best, limit))
        return any(low < tried < high for tried in self._tried)

    # --- at rest ---------------------------------------------------------------------------------------------------

    def _watch(self, rate: float, error: float, nbytes: float) -> None:
        recent = self._recent
        if self.reference is None:
            self.reference = Point(rate, error)
        else:
            self.reference.add(rate, error)
        if recent:
            self._note_spread(rate / recent[-1] - 1)
            if abs(rate / self._usual - 1) < _JUMP:
                self._usual += (rate - self._usual) * max(0.1, 1 / (len(recent) + 1))
        else:
            self._usual = rate
        recent.append(rate)
        del recent[:-8]
        if self._is_changed():
            self.changes += 1
            self.look_around((recent[-1] + recent[-2]) / 2, error)
            return
        self._probes.earned += nbytes
        self._probe_if_due()

    def _note_spread(self, difference: float) -> None:
        """Two measurements at the best limit, one after the other, differ by this; a jump is no noise."""
        square = min(abs(difference), _JUMP) ** 2 / 2
        before = self._variance
        self._variance = square if before is None else before + _NEWEST_SPREAD * (square - before)

    def _probe_if_due(self) -> None:
        if len(self._recent) > 1 and (better := self._seems_better()) is not None:
            self.limit = better
            return
        limit = self._probes.due(self.best, self._within)
        if limit is not None:
            self.limit = limit

    def _seems_better(self) -> int | None:
        """A limit that delivered more when it was tried than the best, as is known by now, does."""
        others = [limit for limit in self.points if limit != self.best and self.least <= limit <= self.most]
        best = max(others, key=lambda limit: self.points[limit].rate, default=None)
        return best if best is not None and self._is_gain(self.points[best]) else None

    def _is_changed(self) -> bool:
        """Whether the device delivers otherwise than it did, beyond what noise explains."""
        if len(self._recent) < 3:
            return False
        one, other = (rate / self._usual - 1 for rate in self._recent[-2:])
        return abs(one + other) / 2 > max(CHANGED, 2.5 * self.spread) and min(abs(one), abs(other)) > max(
            _EACH_CHANGED, 1.2 * self.spread
        )

    def _probed(self, point: Point, seconds: float) -> None:
        direction = 1 if self.limit > self.best else -1
        if self._is_gain(point):
            self._recent.clear()
            self.phase = Phase.SEARCH
            self._move_here(point)
            self._step = max(1, self.best // 4)
            self._try_next()
            return
        self.limit = self.best
        if self.reference is not None:
            self._probes.failed(direction, self.reference.rate, point.rate, seconds)

    # --- comparing -------------------------------------------------------------------------------------------------

    def _gain(self, rate: float) -> float | None:
        """Over the best, as a part of it."""
        return None if self.reference is None else rate / self.reference.rate - 1

    def _noise(self, error: float) -> float:
        """What a difference must exceed to be one."""
        reference = 0.0 if self.reference is None else self.reference.error
        return TOLERANCE + math.hypot(error, reference)

    def _is_gain(self, point: Point) -> bool:
        gain = self._gain(point.rate)
        return gain is None or gain > self._noise(point.error)

    def _accept(self, rate: float, error: float) -> None:
        self.best = self.limit
        self.reference = Point(rate, error)

    def _within(self, limit: int) -> int:
        return max(self.least, min(self.most, limit))
