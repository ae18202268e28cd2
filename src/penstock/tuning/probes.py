"""When the neighbours of the best limit are tried again: when that costs a small part of what was delivered since.

The worse a neighbour was, and the more often it was tried in vain, the less often it is tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.tuning.point import Point

__all__ = ["Probes"]

#: the part of what is delivered that the first probe in each direction may cost; it falls with each that was in vain
_BUDGET = 0.04
_MOST_PATIENT = 8
#: a probe costs this many times of an attempt: until it runs, and until the device is as before
_PROBE_TIMES = 2.0
#: what a neighbour that was never tried is taken to deliver of the best, and how good any neighbour may be taken for
_UNKNOWN, _CHEAPEST = 0.7, 0.98


class Probes:
    """In both directions from the best."""

    def __init__(self) -> None:
        #: bytes that were delivered at the best limits so far
        self.earned = 0.0
        #: when each direction is due is known
        self.known = False
        self._due = {1: 0.0, -1: 0.0}
        self._in_vain = {1: 0, -1: 0}

    def begin(self) -> None:
        """A best was found: nothing was tried in vain yet."""
        self._in_vain = {1: 0, -1: 0}
        self.known = False

    def plan_all(self, best: int, rate: float, points: Mapping[int, Point], seconds: float) -> None:
        """The best limit delivers that; an attempt takes so many seconds."""
        self.known = True
        for direction in (1, -1):
            sides = [limit for limit in points if (limit - best) * direction > 0]
            nearest = min(sides, key=lambda limit: abs(limit - best), default=None)
            self._plan(direction, rate, rate * _UNKNOWN if nearest is None else points[nearest].rate, seconds)

    def failed(self, direction: int, rate: float, there: float, seconds: float) -> None:
        """A neighbour delivered no more than the best."""
        self._in_vain[direction] += 1
        self._plan(direction, rate, there, seconds)

    def due(self, best: int, within: Callable[[int], int]) -> int | None:
        """The neighbour to try now, if any."""
        for direction in (1, -1):
            limit = within(best + direction * max(1, best // 6))
            if limit != best and self.known and self.earned >= self._due[direction]:
                return limit
        return None

    def _plan(self, direction: int, rate: float, there: float, seconds: float) -> None:
        lost = 1 - min(there / rate, _CHEAPEST)
        cost = lost * _PROBE_TIMES * seconds * rate
        patience = min(1 + self._in_vain[direction], _MOST_PATIENT)
        self._due[direction] = self.earned + cost / _BUDGET * patience
