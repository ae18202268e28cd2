"""The values of several processes as one: the list of their objects, made without touching what is in segments."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

from penstock.model.data import Piece, Value

__all__ = ["gathered"]


def gathered(values: Sequence[Value]) -> Value:
    """The value of a list that holds the object of each value.

    Streams and buffers of the values become buffers of the whole, in their order. So a large array that one process
    stored is part of the list without being copied, or even read.
    """
    counts = [len(value.buffers) for value in values]
    parts: list[bytes | Piece] = []
    for value in values:
        parts += [value.data, *value.buffers]
    states = tuple(dict.fromkeys(state for value in values for state in value.states))
    stream = pickle.dumps(_List(counts, len(parts)), 5, buffer_callback=lambda buffer: None)
    return Value(stream, tuple(parts), states)


class _List:
    """Pickles as a list to be made of buffers that come beside the stream."""

    def __init__(self, counts: list[int], parts: int) -> None:
        self._counts = counts
        self._parts = parts

    def __reduce__(self) -> tuple[Any, ...]:
        # Writable ones: whether readers may write is decided by what they are given in their places.
        return as_list, (self._counts, [pickle.PickleBuffer(bytearray()) for _ in range(self._parts)])


def as_list(counts: list[int], parts: list[Any]) -> list[Any]:
    """The objects, of which each is a stream followed by its buffers."""
    objects, rest = [], iter(parts)
    for count in counts:
        stream = next(rest)
        objects.append(pickle.loads(stream, buffers=[next(rest) for _ in range(count)]))
    return objects
