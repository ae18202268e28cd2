"""What ``penstock probe`` measured, and what that says: rates by number of streams, with what repeats differed by.

A number that repeats do not agree on is no fact. So each point keeps all of its repeats and says whether they are to be
relied on, and nothing is concluded from a difference that the repeats of one number of streams show as well.
"""

from __future__ import annotations

import statistics

from msgspec import Struct

__all__ = ["Measurement", "Point"]

#: of the best: enough of it to count as reached, and so little that it counts as lost
_REACHED, _LOST = 0.95, 0.90
#: of the median: what repeats may differ by, from the least to the most, if it is to be relied on
_AGREED = 0.3
#: of all CPUs: what others may use of them before the machine counts as busy
_BUSY = 0.25


class Point(Struct, frozen=True):
    """Aggregate bandwidth of a number of concurrent streams, in bytes per second."""

    streams: int
    #: of each repeat, in the order in which they were made; there is one at least
    writes: tuple[float, ...]
    reads: tuple[float, ...]
    #: bytes written by all streams in one repeat
    size: int
    #: the clock ended a repeat before every stream had moved all of its bytes
    cut: bool = False

    @property
    def write(self) -> float:
        return statistics.median(self.writes)

    @property
    def read(self) -> float:
        return statistics.median(self.reads)

    @property
    def rounds(self) -> int:
        """How many times it was measured."""
        return len(self.writes)

    @property
    def unsure(self) -> bool:
        """Whether writing was measured only once, or its repeats differ too much to be relied on."""
        return len(self.writes) < 2 or max(self.writes) - min(self.writes) > _AGREED * self.write

    def is_clearly_slower(self, other: Point) -> bool:
        """Whether even the best repeat wrote slower than the worst of the other."""
        return max(self.writes) < min(other.writes)


class Measurement(Struct, frozen=True):
    """All points, and what they say."""

    directory: str
    points: tuple[Point, ...]
    #: why larger numbers of streams were left out; empty if none were
    stopped: str = ""
    #: what was under way and did not end before the time was up; empty if all did
    unfinished: str = ""
    #: share of all CPUs that other processes used meanwhile, from 0 to 1; None if that is not known
    others: float | None = None

    @property
    def best(self) -> Point:
        """The fastest at writing; of equals, the one with fewer streams."""
        return max(self.points, key=lambda point: (point.write, -point.streams))

    @property
    def knee(self) -> Point:
        """The fewest streams that write nearly as fast as the best."""
        return next(point for point in self.points if point.write >= _REACHED * self.best.write)

    @property
    def congestion(self) -> Point | None:
        """The fewest streams beyond the best with which writing is clearly slower again: in every repeat."""
        best = self.best
        beyond = (point for point in self.points if point.streams > best.streams and point.is_clearly_slower(best))
        return next((point for point in beyond if point.write < _LOST * best.write), None)

    @property
    def unsure(self) -> tuple[Point, ...]:
        return tuple(point for point in self.points if point.unsure)

    @property
    def busy(self) -> bool:
        """Whether others used so much of the machine that it, and not the device, may have been measured."""
        return self.others is not None and self.others > _BUSY
