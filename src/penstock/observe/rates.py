"""How fast something grew of late, from a few samples of its count."""

from __future__ import annotations

from collections import deque

__all__ = ["Samples", "recent_rate"]

#: seconds over which a rate is taken, at least and at most
_LEAST_SPAN, _MOST_SPAN = 5.0, 60.0

#: ``(t, count)`` of recent snapshots, oldest first
Samples = deque[tuple[float, int]]


def recent_rate(samples: Samples, start: float, now: float, count: int, task_seconds: float = 0.0) -> float:
    """Add a sample and take the rate of the last few seconds; at ``start`` the count was 0.

    What a task does counts when it ends. Tasks that start together end together, so the span is no shorter than a
    task takes: otherwise long ones would show as bursts with nothing in between.
    """
    span = min(_MOST_SPAN, max(_LEAST_SPAN, task_seconds))
    if not samples:
        samples.append((start, 0))
    while len(samples) > 1 and samples[1][0] <= now - _MOST_SPAN:
        samples.popleft()
    if now > samples[-1][0]:
        samples.append((now, count))
    then, before = next((sample for sample in reversed(samples) if sample[0] <= now - span), samples[0])
    return (count - before) / (now - then) if now > then else 0.0
