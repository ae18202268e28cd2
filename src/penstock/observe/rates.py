"""How fast something grew of late, from a few samples of its count."""

from __future__ import annotations

from collections import deque

__all__ = ["RATE_SPAN", "Samples", "recent_rate"]

#: seconds over which a shown rate is taken
RATE_SPAN = 5.0

#: ``(t, count)`` of recent snapshots, oldest first
Samples = deque[tuple[float, int]]


def recent_rate(samples: Samples, start: float, now: float, count: int, span: float = RATE_SPAN) -> float:
    """Add a sample and take the rate since the oldest one of the last ``span`` seconds; at ``start`` there was none."""
    if not samples:
        samples.append((start, 0))
    while len(samples) > 1 and samples[1][0] <= now - span:
        samples.popleft()
    if now > samples[-1][0]:
        samples.append((now, count))
    then, before = samples[0]
    return (count - before) / (now - then) if now > then else 0.0
