"""Objects that a worker was given and keeps, because the next tasks are likely to be given them too.

Off unless the user sets ``read_cache``: whoever gets a kept object gets the same one as the task before, so that a task
which changes an IN argument, against its declaration, is seen by those after it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from penstock.data.slots import current
from penstock.model.data import Piece, SegmentId, Value

__all__ = ["ReadCache"]


class ReadCache:
    """The objects last read, up to a number of bytes of their streams."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._kept: OrderedDict[tuple[SegmentId, int], tuple[Any, int]] = OrderedDict()
        self._size = 0

    def object(self, value: Value, load: Callable[[], Any]) -> Any:
        """The object of a value, made by ``load`` if it is not here.

        A value is known by the place of its stream, which is written once and never changes. Buffers beside the stream
        may be changed in place by a later task, and keep their place; but what has its bulk there is mapped, and takes
        no time to load anyway.
        """
        data = value.data
        if type(data) is not Piece or value.states or any(type(buffer) is Piece for buffer in value.buffers):
            return load()
        key = data.segment, data.offset
        known = self._kept.get(key)
        if known is not None:
            self._kept.move_to_end(key)
            return known[0]
        referred = len(current.loaded or ())
        obj = load()
        if data.size <= self._capacity and len(current.loaded or ()) == referred:  # stored objects belong to one task
            self._kept[key] = obj, data.size
            self._size += data.size
            while self._size > self._capacity:
                self._size -= self._kept.popitem(last=False)[1][1]
        return obj

    def clear(self) -> None:
        """Forget everything: a task failed, and may have left what it was given half changed."""
        self._kept.clear()
        self._size = 0
