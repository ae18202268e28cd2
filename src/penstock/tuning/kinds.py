"""Kinds of access: what is learned belongs to a device and to how it is used, not to a function.

Reads and writes, and files of another order of size, get other rates from the same device. What one function has found
out holds for another that does the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from penstock.model.resources import StorageLayer
from penstock.tuning.registry import Delivery
from penstock.units import format_size

__all__ = ["kind", "nearest"]


def kind(size: float, *, writes: bool) -> str:
    """The kind of access by which files of this size, on the average, are written or read."""
    return f"{'writes' if writes else 'reads'} of {_order(size)}"


def _order(size: float) -> str:
    if size < 1:
        return "unknown size"
    low = 10 ** math.floor(math.log10(size))
    return f"{format_size(low)} to {format_size(10 * low)}"


def nearest(
    known: Mapping[tuple[str, str], Delivery], layer: StorageLayer, executors: int, *, writes: bool, size: float
) -> Delivery | None:
    """What is known of a layer for such an access; where the size is not declared, what most attempts have found."""
    verb = "writes" if writes else "reads"
    there = [
        one
        for (_, name), one in known.items()
        if name == layer.name
        and (one.bandwidth, one.executors) == (layer.bandwidth, executors)
        and one.function.startswith(verb)
    ]
    wanted = kind(size, writes=writes)
    fitting = [one for one in there if one.function == wanted] or there
    return max(fitting, key=lambda one: one.attempts, default=None)
