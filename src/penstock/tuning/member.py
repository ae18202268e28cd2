"""One device's part in a group of like ones: its controller takes it for a search, and the group keeps its limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.tuning.point import Point
from penstock.tuning.search import Phase, Search

if TYPE_CHECKING:
    from penstock.tuning.group import Group

__all__ = ["Member"]


class Member:
    """One device's part in a group; its controller takes it for a search."""

    def __init__(self, group: Group, limit: int) -> None:
        self._group = group
        self.limit = limit
        #: what it learns by since it has left the group
        self.alone: Search | None = None
        #: it delivers what the others do
        self.proven = False
        #: its rates by those of the others
        self.scale = 1.0
        #: limits of which it has reported
        self.tried: set[int] = set()
        #: its last rate at the best limit
        self.last: float | None = None
        #: how often in a row it was unlike the others, and judgements of the group when that began
        self.strikes = self.struck = 0
        #: judgements of the group when it was last measured, at any limit and at the best, and when it got its limit
        self.judged = self.watched = self.given = 0

    # --- what a controller asks, and tells -------------------------------------------------------------------------

    @property
    def group(self) -> Group:
        return self._group

    @property
    def phase(self) -> Phase:
        return self._group.phase

    @property
    def resting(self) -> bool:
        return self.phase is Phase.HOLD and self.limit == self.best

    @property
    def start(self) -> int:
        return self._group.start

    @property
    def best(self) -> int:
        return self._group.best

    @property
    def reference(self) -> Point | None:
        return self._group.reference

    @property
    def points(self) -> dict[int, Point]:
        return self._group.points

    @property
    def settled(self) -> int:
        return self._group.settled

    @property
    def changes(self) -> int:
        return self._group.changes

    @property
    def spread(self) -> float:
        return self._group.spread

    def judge(self, rate: float, error: float, nbytes: float, seconds: float) -> None:
        self._group.judge(self, rate, error, nbytes, seconds)

    def skip(self) -> None:
        self._group.skip()

    def forget(self) -> None:
        self._group.forget(self)

    def bound(self, least: int, most: int) -> None:
        self._group.bound(least, most)
