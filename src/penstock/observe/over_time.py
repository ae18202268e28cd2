"""How much was going on over a run, in equal spans of time: fit to be drawn, however long the log."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["OverTime", "Profile"]


class OverTime(Struct):
    """What was running and waiting over the run: means over equal spans of time."""

    #: length of one span, in seconds
    step: float
    #: tasks that compute, and I/O tasks
    computing: list[float]
    transferring: list[float]
    #: computing units in use
    units: list[float]
    #: ready tasks without a place
    waiting: list[float]


class Profile:
    """Sums over equal spans of time of what was constant for a while."""

    def __init__(self, length: float, spans: int) -> None:
        self._step = length / spans if length > 0 else 1.0
        self._sums = [[0.0] * 4 for _ in range(spans)]

    def add(self, start: float, end: float, values: tuple[int, int, int, int]) -> None:
        """These many computed, transferred, units in use, tasks waiting, from ``start`` to ``end``."""
        step, last = self._step, len(self._sums) - 1
        index = min(last, int(start / step))
        while start < end:
            until = end if index >= last else min(end, (index + 1) * step)
            sums = self._sums[index]
            for column, value in enumerate(values):
                if value:
                    sums[column] += value * (until - start)
            start = until
            index = min(last, index + 1)

    def means(self) -> OverTime:
        """The mean of each span."""
        columns = [[sums[column] / self._step for sums in self._sums] for column in range(4)]
        return OverTime(self._step, *columns)
