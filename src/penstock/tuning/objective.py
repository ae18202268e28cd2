"""Which constraint to use for the tasks that wait: the one that is estimated to finish them soonest.

T(n, c) = whole groups of as many as run together under c, each lasting t_c, and a time for those left over. Called
with what ``epochs`` registered whenever tasks of the function arrive, so the answer changes with the queue.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from penstock.tuning.epochs import epoch_size
from penstock.tuning.registry import Measure

__all__ = ["TIE", "Choice", "Estimate", "choose", "covering", "estimate", "expected"]

#: estimates that differ by less than this part of the best are equal: measured times never are
TIE = 0.02


class Choice(Struct, frozen=True):
    """The constraint to use."""

    #: bytes per second
    constraint: float
    #: tasks that then run at a time, on all nodes
    concurrency: int
    #: estimated time for all tasks
    seconds: float
    measure: Measure


class Estimate(Struct, frozen=True):
    """How long the waiting tasks would take under one constraint, and how that comes about."""

    measure: Measure
    #: tasks at a time, on all nodes
    concurrency: int
    #: whole groups of that many
    groups: int
    #: tasks left over, and the time granted to them
    rest: int
    rest_seconds: float
    seconds: float


def choose(
    measures: Sequence[Measure],
    tasks: int,
    nodes: int,
    bandwidth: float,
    executors: int,
    *,
    most: float = math.inf,
    tie: float = TIE,
) -> Choice:
    """The constraint for ``tasks`` waiting tasks on ``nodes`` equal nodes, up to ``most``; of equally good ones the
    highest.
    """
    if not measures:
        raise ValueError("no epoch was registered: there is nothing to choose from")
    estimates = [estimate(measure, measures, tasks, nodes, bandwidth, executors) for measure in measures]
    limit = min(one.seconds for one in estimates) * (1 + tie)
    best = max((one for one in estimates if one.seconds <= limit), key=lambda one: one.measure.constraint)
    constraint = best.measure.constraint
    if best.measure.partial:
        # What was measured must be what runs: no more at a time than the epoch had, as far as the user's bounds allow.
        constraint = max(constraint, min(bandwidth / best.measure.concurrency, most))
    return Choice(constraint, best.concurrency, best.seconds, best.measure)


def estimate(
    measure: Measure, measures: Sequence[Measure], tasks: int, nodes: int, bandwidth: float, executors: int
) -> Estimate:
    """T(n, c) for the constraint of ``measure``."""
    # Nobody knows how long a task takes among more than a partial epoch had.
    per_node = measure.concurrency if measure.partial else epoch_size(measure.constraint, bandwidth, executors)
    together = per_node * nodes
    groups, rest = divmod(tasks, together)
    rest_seconds = 0.0
    if rest:
        covers = covering(measures, rest / nodes)
        rest_seconds = (covers or measure).seconds
    return Estimate(measure, together, groups, rest, rest_seconds, groups * measure.seconds + rest_seconds)


def covering(measures: Sequence[Measure], concurrency: float) -> Measure | None:
    """The measure at the smallest concurrency that is not below ``concurrency``; of equals the highest constraint."""
    enough = (measure for measure in measures if measure.concurrency >= concurrency)
    return min(enough, key=lambda measure: (measure.concurrency, -measure.constraint), default=None)


def expected(measures: Sequence[Measure], concurrency: int) -> float:
    """How long a task takes among ``concurrency`` of its kind on a node, as far as is known."""
    covers = covering(measures, concurrency)
    return (covers or max(measures, key=lambda measure: (measure.concurrency, measure.constraint))).seconds
