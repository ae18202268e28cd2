"""How a device's aggregate bandwidth depends on the number of concurrent streams.

A curve is a list of points ``(streams, bytes per second)``, in between along straight lines and level beyond both ends.
Emulated devices enforce one on real files; whoever plans or simulates asks the same function.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from penstock.errors import ConfigError

__all__ = ["Curve", "check_curve", "interpolate"]

Curve = Sequence[tuple[int, float]]


def check_curve(curve: Curve) -> None:
    """Raise ``ConfigError`` unless ``curve`` has points, in order of streams, with bandwidths above zero."""
    if not curve:
        raise ConfigError("a bandwidth curve needs at least one point (streams, bytes per second)")
    for streams, bandwidth in curve:
        if not streams >= 1:
            raise ConfigError(f"bandwidth curve: a point for {streams} streams; the least is 1")
        if not (bandwidth > 0 and math.isfinite(bandwidth)):
            raise ConfigError(f"bandwidth curve: {bandwidth} bytes/s at {streams} streams; it must be above zero")
    for (before, _), (after, _) in pairwise(curve):
        if after <= before:
            raise ConfigError(f"bandwidth curve: {after} streams after {before}; the points must be in rising order")


def interpolate(curve: Curve, streams: float) -> float:
    """The aggregate bytes per second that ``streams`` concurrent streams get from a device with this ``curve``."""
    check_curve(curve)
    right = bisect_left(curve, streams, key=lambda point: point[0])
    if right == 0:
        return float(curve[0][1])
    if right == len(curve):
        return float(curve[-1][1])
    (before, low), (after, high) = curve[right - 1], curve[right]
    way = (streams - before) / (after - before)
    return low * (1 - way) + high * way
