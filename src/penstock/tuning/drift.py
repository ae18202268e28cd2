"""Whether tasks still take the time that was learned; if not, ``tuner`` forgets it and learns anew.

A task seldom runs at exactly a concurrency that was measured. Its time is surprising only outside of what the two
measured concurrencies around its own allow, and the surprise is averaged, so that stragglers prove nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.tuning.objective import expected
from penstock.tuning.registry import Measure

__all__ = ["Drift", "surprise"]

_WEIGHT = 1 / 16
_LEAST_SAMPLES = 8
_SLOWER, _FASTER = 1.5, 0.5
# One straggler, however late, moves the average by no more than (3 - 1) / 16.
_MOST_SURPRISE = 3.0
# Of times below this the runtime's own jitter is the larger part. It also keeps tasks without duration harmless.
_JITTER = 1e-3


class Drift:
    """Follows the ratio of measured to expected times, newer ones counting more."""

    def __init__(self, measures: Sequence[Measure]) -> None:
        self._measures = measures
        self._samples = 0
        self.ratio = 1.0

    def add(self, seconds: float, concurrency: int) -> bool:
        """Note a task that took ``seconds`` among ``concurrency`` on its node; True if what was learned is outdated."""
        ratio = min(surprise(self._measures, seconds, concurrency), _MOST_SURPRISE)
        self.ratio += (ratio - self.ratio) * _WEIGHT
        self._samples += 1
        return self._samples >= _LEAST_SAMPLES and not _FASTER <= self.ratio <= _SLOWER


def surprise(measures: Sequence[Measure], seconds: float, concurrency: int) -> float:
    """Measured by expected time: above 1 if slower than allowed, below 1 if faster, else 1."""
    longest, shortest = expected(measures, concurrency), _shortest(measures, concurrency)
    if seconds > longest:
        return (seconds + _JITTER) / (longest + _JITTER)
    if seconds < shortest:
        return (seconds + _JITTER) / (shortest + _JITTER)
    return 1.0


def _shortest(measures: Sequence[Measure], concurrency: int) -> float:
    """The time at the next lower measured concurrency; below all of them, that of a device shared perfectly."""
    lower = [measure for measure in measures if measure.concurrency <= concurrency]
    if lower:
        return max(lower, key=lambda measure: (measure.concurrency, -measure.seconds)).seconds
    least = min(measures, key=lambda measure: (measure.concurrency, measure.seconds))
    return least.seconds * concurrency / least.concurrency
