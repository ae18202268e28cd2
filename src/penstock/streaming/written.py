"""Which bytes of a file are written: disjoint ranges in order, none touching the next."""

from __future__ import annotations

from bisect import bisect_left

__all__ = ["Written"]


class Written:
    """A set of bytes as ranges ``[start, end)``."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __repr__(self) -> str:
        return f"Written({self.ranges})"

    @property
    def ranges(self) -> list[tuple[int, int]]:
        return list(zip(self._starts, self._ends, strict=True))

    @property
    def solid(self) -> int:
        """How many bytes from the front are written without a gap."""
        return self._ends[0] if self._starts and self._starts[0] == 0 else 0

    @property
    def high(self) -> int:
        """The end of the last written byte."""
        return self._ends[-1] if self._ends else 0

    def add(self, start: int, end: int) -> None:
        """Bytes of a write."""
        if start >= end:
            return
        low = bisect_left(self._ends, start)  # the first range that reaches the new one
        high = low
        while high < len(self._starts) and self._starts[high] <= end:
            start, end = min(start, self._starts[high]), max(end, self._ends[high])
            high += 1
        self._starts[low:high] = [start]
        self._ends[low:high] = [end]

    def update(self, other: Written) -> None:
        """All that another has."""
        for start, end in other.ranges:
            self.add(start, end)

    def cut(self, size: int) -> None:
        """Forget what lies at ``size`` and beyond: the file was truncated."""
        kept = [(start, min(end, size)) for start, end in self.ranges if start < size]
        self._starts, self._ends = [start for start, _ in kept], [end for _, end in kept]

    def covers(self, start: int, end: int) -> bool:
        """Whether all of a range is written; an empty one is when its place is reached from the front."""
        if start >= end:
            return end <= self.solid or any(begin <= start and end <= stop for begin, stop in self.ranges)
        place = bisect_left(self._ends, end)
        return place < len(self._starts) and self._starts[place] <= start
