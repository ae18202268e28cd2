"""Numbers by a key that changes, smallest first: a heap whose outdated entries go when they come to the front."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

__all__ = ["LowestFirst"]

#: outdated entries that a heap may hold beyond the number of its live ones
_DEAD_ALLOWED = 32


class LowestFirst:
    """Numbers, each with its key; the first has the smallest key, and of those the smallest number."""

    __slots__ = ("_heap", "keys")

    def __init__(self) -> None:
        #: by number
        self.keys: dict[int, float] = {}
        #: (key, number); an entry counts if it agrees with ``keys``, and equal entries do no harm
        self._heap: list[tuple[float, int]] = []

    def put(self, number: int, key: float) -> None:
        """Give a number its key, whether or not it had one."""
        keys, heap = self.keys, self._heap
        if keys.get(number) == key:
            return
        keys[number] = key
        heappush(heap, (key, number))
        if len(heap) > 2 * len(keys) + _DEAD_ALLOWED:
            heap[:] = [(key, number) for number, key in keys.items()]
            heapify(heap)

    def drop(self, number: int) -> None:
        """Do without a number, if it is there."""
        self.keys.pop(number, None)

    def first(self) -> tuple[float, int] | None:
        """The smallest key, and whose it is."""
        keys, heap = self.keys, self._heap
        while heap:
            key, number = heap[0]
            if keys.get(number) == key:
                return heap[0]
            heappop(heap)
        return None
