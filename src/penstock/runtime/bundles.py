"""Several values as one, without copying what is large: what a task finds in the slot of a whole stream."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

from penstock.model.data import Piece, Value

__all__ = ["bundle"]


def bundle(values: Sequence[Value]) -> Value:
    """A value that is the list of these; it refers to the same segments."""
    parts: list[bytes | Piece] = []
    for value in values:
        parts += (value.data, *value.buffers)
    shape = [len(value.buffers) for value in values]
    # Only how many there are matters when this is pickled; the bytes are put in the places of the buffers.
    places = [pickle.PickleBuffer(bytearray()) for _ in parts]
    states = tuple(dict.fromkeys(state for value in values for state in value.states))
    return Value(pickle.dumps(_Bundle(shape, places), 5, buffer_callback=lambda _: None), tuple(parts), states)


class _Bundle:
    def __init__(self, shape: list[int], parts: list[Any]) -> None:
        self._shape = shape
        self._parts = parts

    def __reduce__(self) -> tuple[Any, ...]:
        return _unbundle, (self._shape, self._parts)


def _unbundle(shape: list[int], parts: list[Any]) -> list[Any]:
    values = []
    position = 0
    for buffers in shape:
        first = position + 1
        position = first + buffers
        values.append(pickle.loads(parts[first - 1], buffers=parts[first:position]))
    return values
