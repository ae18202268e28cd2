"""Virtual time: what is to happen, in order, and what time it is now.

Things due at the same time come in order of their priority, then in the order in which they were put down, so that a
simulation takes the same course every time.
"""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

from penstock.errors import InternalError

__all__ = ["Clock"]

T = TypeVar("T")


class Clock(Generic[T]):
    """Items by the time at which they are due."""

    __slots__ = ("_heap", "_serial", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, int, T]] = []
        self._serial = 0

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, time: float, item: T, priority: int = 0) -> None:
        """Put an item down for a time that has not passed; the smaller priority comes first."""
        if not time >= self.now:
            raise InternalError(f"something is to happen at {time}, but it is {self.now} already")
        self._serial += 1
        heapq.heappush(self._heap, (time, priority, self._serial, item))

    def next_time(self) -> float | None:
        """When the next item is due; None if there is none."""
        return self._heap[0][0] if self._heap else None

    def pop(self) -> T:
        """The next item; it is its time now."""
        self.now, _, _, item = heapq.heappop(self._heap)
        return item

    def advance(self, time: float) -> None:
        """Let time pass, but not beyond what is due next."""
        due = self.next_time()
        if time < self.now or (due is not None and time > due):
            raise InternalError(f"the clock cannot go from {self.now} to {time}: the next item is due at {due}")
        self.now = time
