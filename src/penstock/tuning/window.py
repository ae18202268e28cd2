"""What a device delivered while as many attempts ran as were asked for.

Two measures, of which the controller uses the one that it can trust:

- the *flow*: readings of the bytes that attempts have transferred so far, a few in the time of one attempt. It knows
  within a fraction of an attempt, but only where bytes flow evenly. A task that writes into the kernel's cache and then
  syncs, or that computes first, shows bursts and pauses instead.
- what *ended*: the bytes of finished files, and how long each took. While n attempts share a device, it delivers n
  times what one of them gets (Little's law), whatever their sizes and wherever in their lives the bytes moved.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from penstock.tuning.mixture import Mixture

__all__ = ["Ends", "Flow", "Window"]

#: an attempt counts if as many ran beside it, on the average, as were asked for: to this part, or this number
_NEAR, _NEAREST = 0.1, 0.3
#: readings closer than this tell nothing
_INSTANT = 1e-6
#: where several functions run, one that has not ended is waited for so many times as long as it usually takes…
_PATIENCE = 1.2
#: …unless all that is missing takes less than this part of the time
_NEGLIGIBLE = 0.1
#: one that has never ended is waited for so many times as long as others take
_PATIENCE_WITH_NEW = 50


class Flow(NamedTuple):
    """By readings."""

    #: bytes per second
    rate: float
    #: standard deviation between readings, as a part of the rate
    spread: float
    #: times between two readings
    intervals: int
    #: attempts, on the average
    concurrency: float

    @property
    def error(self) -> float:
        """Of the rate, as a part of it."""
        return self.spread / math.sqrt(self.intervals)


class Ends(NamedTuple):
    """By what ended."""

    #: bytes per second of all that run
    rate: float
    #: standard deviation between attempts, as a part of the rate
    spread: float
    attempts: int

    @property
    def error(self) -> float:
        """Of the rate, as a part of it."""
        return self.spread / math.sqrt(self.attempts)


class _Sum:
    """Of the attempts of one function that counted."""

    __slots__ = ("attempts", "nbytes", "seconds")

    def __init__(self) -> None:
        self.attempts = 0
        self.nbytes = self.seconds = 0.0


class Window:
    """One measurement at one limit."""

    __slots__ = ("_functions", "_rates", "_readings", "_squares", "_sum", "limit", "opened")

    def __init__(self, limit: int, now: float) -> None:
        self.limit = limit
        self.opened = now
        #: time, bytes up to then, attempts times seconds up to then
        self._readings: list[tuple[float, float, float]] = []
        self._rates: list[float] = []
        self._functions: dict[str, _Sum] = {}
        self._sum = self._squares = 0.0

    def read(self, now: float, delivered: float, load: float) -> None:
        """Attempts have transferred ``delivered`` bytes and run for ``load`` seconds, all together, ever."""
        if self._readings:
            before, bytes_before, _ = self._readings[-1]
            if now - before < _INSTANT:
                return
            self._rates.append((delivered - bytes_before) / (now - before))
        self._readings.append((now, delivered, load))

    def ended(self, function: str, nbytes: float, weight: float, seconds: float, concurrency: float) -> None:
        """An attempt transferred its bytes, of that weight, in so many seconds, with so many running on the average."""
        if seconds > 0 and abs(concurrency - self.limit) <= max(_NEAREST, _NEAR * self.limit):
            if function not in self._functions:
                self._functions[function] = _Sum()
            mine = self._functions[function]
            mine.attempts += 1
            mine.nbytes += nbytes
            mine.seconds += seconds
            each = weight * nbytes / seconds
            self._sum += each
            self._squares += each * each

    @property
    def bytes_ended(self) -> float:
        """Of the attempts that counted."""
        return sum(one.nbytes for one in self._functions.values())

    def flow(self) -> Flow | None:
        """What readings say; None before the fourth."""
        intervals = len(self._rates)
        if intervals < 3:
            return None
        (began, bytes_before, load_before), (now, delivered, load) = self._readings[0], self._readings[-1]
        seconds = now - began
        rate = (delivered - bytes_before) / seconds
        if rate <= 0:
            return Flow(0.0, 1.0, intervals, (load - load_before) / seconds)
        deviation = math.sqrt(sum((one - rate) ** 2 for one in self._rates) / (intervals - 1))
        return Flow(rate, deviation / rate, intervals, (load - load_before) / seconds)

    def ends(self, mixture: Mixture, now: float) -> Ends | None:
        """What ended attempts say; None before the second, or while others have to be waited for."""
        count = sum(one.attempts for one in self._functions.values())
        if count < 2:
            return None
        mean = self._sum / count
        if mean <= 0:
            return None
        rate = self._mixed_rate(mixture, now) if mixture.is_mixed else self._rate_of_one()
        if rate is None:
            return None
        variance = max(0.0, self._squares / count - mean * mean) * count / (count - 1)
        return Ends(self.limit * rate, math.sqrt(variance) / mean, count)

    def _rate_of_one(self) -> float:
        [one] = self._functions.values()
        return one.nbytes / one.seconds

    def _mixed_rate(self, mixture: Mixture, now: float) -> float | None:
        """Each function counts by how many of it have ended so far: of long attempts few end in one window."""
        waited = now - self.opened
        worth = seconds = missing = 0.0
        for function in {**mixture.running, **self._functions}:
            usual = mixture.usual(function)
            if usual is None:
                if waited < _PATIENCE_WITH_NEW * self._seconds_of_one():
                    return None
                continue
            share, nbytes, its_seconds = usual
            mine = self._functions.get(function)
            if mine is not None:
                nbytes, its_seconds = mine.nbytes / mine.attempts, mine.seconds / mine.attempts
            elif waited < _PATIENCE * its_seconds:
                missing += share * its_seconds
            else:
                its_seconds = max(its_seconds, waited)
            worth += share * nbytes * mixture.weight(function)
            seconds += share * its_seconds
        return worth / seconds if missing <= _NEGLIGIBLE * seconds else None

    def _seconds_of_one(self) -> float:
        """What attempts took that counted, on the average."""
        sums = self._functions.values()
        return sum(one.seconds for one in sums) / sum(one.attempts for one in sums)
