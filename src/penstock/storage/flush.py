"""Where data that nobody reads any more may move to: the lowest layer with room, but never below its home.

A permanent file's home is where its name is. What is of use during the run only has no home, and sinks as deep as
there is room. Layers are given fastest first, each with the room it has left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

__all__ = ["HOME", "Roomy", "target"]


class Roomy(Protocol):
    """A layer, the bytes that it has left, and whether it is for temporary files only."""

    @property
    def temporary(self) -> bool: ...

    @property
    def free_capacity(self) -> float: ...


L = TypeVar("L", bound=Roomy)


class _Home:
    """Stands for the file's own name, where that lies on no layer."""

    def __repr__(self) -> str:
        return "HOME"


HOME = _Home()


def target(size: int, layers: Sequence[L], current: int, home: int | None, *, temp: bool) -> L | _Home | None:
    """Where a file of ``size`` bytes on layer number ``current`` should go; None if it should stay.

    ``home`` is the number of the layer that its name lies on, None if it lies on none.
    """
    if not temp and home is None:
        return HOME  # outside all layers: nothing is known of its room, and nothing lies deeper
    lowest = len(layers) - 1 if temp or home is None else home
    for index in range(lowest, current, -1):
        layer = layers[index]
        if layer.free_capacity >= size and (temp or index == home or not layer.temporary):
            return layer
    return None
