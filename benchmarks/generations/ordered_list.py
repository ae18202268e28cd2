"""A sorted list that stays fast when it is long: chunks of bounded length, each found and edited by bisection.

It stands for the balanced tree of the published schedulers: insertion and removal cost about the logarithm of the
length, and it is read from its beginning.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

__all__ = ["Key", "OrderedList"]

#: (-priority, -score, serial): the smallest is served first
Key = tuple[int, float, int]

_CHUNK = 512


class OrderedList:
    """Keys in order, each of them once."""

    __slots__ = ("_chunks", "_lasts")

    def __init__(self) -> None:
        self._chunks: list[list[Key]] = []
        #: the last key of each chunk
        self._lasts: list[Key] = []

    def __iter__(self) -> Iterator[Key]:
        for chunk in self._chunks:
            yield from chunk

    def add(self, key: Key) -> None:
        chunks, lasts = self._chunks, self._lasts
        if not chunks:
            chunks.append([key])
            lasts.append(key)
            return
        at = bisect_left(lasts, key)
        if at == len(chunks):  # after all others
            at -= 1
            chunks[at].append(key)
        else:
            insort(chunks[at], key)
        chunk = chunks[at]
        if len(chunk) > _CHUNK:
            half = len(chunk) // 2
            chunks[at : at + 1] = [chunk[:half], chunk[half:]]
            lasts[at : at + 1] = [chunk[half - 1], chunk[-1]]
        else:
            lasts[at] = chunk[-1]

    def remove(self, key: Key) -> None:
        """Take out a key that is in the list."""
        at = bisect_left(self._lasts, key)
        chunk = self._chunks[at]
        del chunk[bisect_left(chunk, key)]
        if chunk:
            self._lasts[at] = chunk[-1]
        else:
            del self._chunks[at], self._lasts[at]
