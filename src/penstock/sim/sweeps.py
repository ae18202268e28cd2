"""The same simulation over a grid of settings: all combinations, in order, several at a time if there is an executor.

    points = sweep(simulate, {"nodes": [10, 50, 100], "scheduler": ["fifo", "locality"]})
    best = min(points, key=lambda point: point.outcome.makespan)

``simulate`` is called with one value of each setting, by name.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, Generic, TypeVar

from msgspec import Struct

from penstock.errors import ConfigError

__all__ = ["Point", "combinations", "sweep"]

T = TypeVar("T")


class Point(Struct, Generic[T], frozen=True):
    """One combination of settings, and what came of it."""

    settings: dict[str, Any]
    outcome: T


def combinations(grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """All combinations of the values; the last setting changes fastest."""
    for name, values in grid.items():
        if isinstance(values, str) or not values:
            raise ConfigError(f"sweep over {name}: {values!r} is no list of values")
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def sweep(
    simulate: Callable[..., T],
    grid: Mapping[str, Sequence[Any]],
    *,
    executor: Executor | None = None,
    done: Callable[[dict[str, Any], T], None] | None = None,
) -> list[Point[T]]:
    """Simulate every combination. ``done`` is called as each ends, in any order; the points are in that of the grid."""
    chosen = combinations(grid)
    if executor is None:
        points = []
        for settings in chosen:
            points.append(Point(settings, simulate(**settings)))
            if done is not None:
                done(settings, points[-1].outcome)
        return points
    futures = [executor.submit(simulate, **settings) for settings in chosen]
    try:
        for settings, future in zip(chosen, futures, strict=True):
            future.add_done_callback(partial(_tell, done, settings))
        return [Point(settings, future.result()) for settings, future in zip(chosen, futures, strict=True)]
    finally:
        for future in futures:
            future.cancel()  # after a failure, those that have not begun


def _tell(done: Callable[[dict[str, Any], T], None] | None, settings: dict[str, Any], future: Future[T]) -> None:
    if done is not None and not future.cancelled() and future.exception() is None:
        done(settings, future.result())
