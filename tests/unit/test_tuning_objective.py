"""Which constraint is chosen for how many tasks."""

from __future__ import annotations

import pytest

from penstock.tuning.objective import choose, estimate, expected
from penstock.tuning.registry import Measure

MB = 1e6
DEVICE = (100 * MB, 100)
TEN = Measure(10 * MB, 10.0, 10, 10)
FIVE = Measure(20 * MB, 6.0, 5, 5)
TWO = Measure(50 * MB, 3.0, 2, 2)
ALL = (TEN, FIVE, TWO)


def seconds(measure: Measure, tasks: int, nodes: int = 1) -> float:
    return estimate(measure, ALL, tasks, nodes, *DEVICE).seconds


def test_whole_groups_take_the_registered_time_each() -> None:
    assert seconds(TEN, 30) == 30.0
    assert seconds(FIVE, 30) == 36.0
    assert choose(ALL, 30, 1, *DEVICE).constraint == 10 * MB


@pytest.mark.parametrize(
    ("tasks", "expectation"),
    [(21, 20 + 3.0), (22, 20 + 3.0), (23, 20 + 6.0), (25, 20 + 6.0), (26, 20 + 10.0), (29, 20 + 10.0)],
)
def test_what_is_left_over_takes_the_time_of_the_next_concurrency_that_covers_it(
    tasks: int, expectation: float
) -> None:
    assert seconds(TEN, tasks) == expectation


def test_what_nothing_covers_takes_the_time_of_its_own_constraint() -> None:
    lone = Measure(10 * MB, 10.0, 4, 4)  # on a device that now admits ten
    assert estimate(lone, (lone,), 16, 1, *DEVICE).seconds == 20.0


def test_nodes_multiply_what_runs_together() -> None:
    assert seconds(TEN, 30, nodes=3) == 10.0
    one = estimate(TEN, ALL, 36, 3, *DEVICE)
    assert (one.concurrency, one.groups, one.rest, one.rest_seconds) == (30, 1, 6, 3.0)  # two on each node
    assert choose(ALL, 30, 3, *DEVICE).concurrency == 30


def test_a_short_queue_prefers_little_congestion() -> None:
    assert choose(ALL, 2, 1, *DEVICE).constraint == 50 * MB
    assert choose(ALL, 1000, 1, *DEVICE).constraint == 10 * MB


@pytest.mark.parametrize(("slower", "chosen"), [(1.0, 20), (1.019, 20), (1.021, 10)])
def test_ties_within_two_percent_go_to_the_higher_constraint(slower: float, chosen: int) -> None:
    measures = (TEN, Measure(20 * MB, 5.0 * slower, 5, 5))
    assert choose(measures, 100, 1, *DEVICE).constraint == chosen * MB


def test_a_tie_is_counted_from_the_best_and_does_not_run_away() -> None:
    measures = (TEN, Measure(20 * MB, 5.0 * 1.015, 5, 5), Measure(50 * MB, 2.0 * 1.03, 2, 2))
    assert choose(measures, 100, 1, *DEVICE).constraint == 20 * MB
    assert choose(measures, 100, 1, *DEVICE, tie=0.05).constraint == 50 * MB
    assert choose(measures, 100, 1, *DEVICE, tie=0.0).constraint == 10 * MB


def test_a_partial_measure_counts_for_what_it_saw() -> None:
    partial = Measure(10 * MB, 2.0, 2, 2, partial=True)
    one = estimate(partial, (partial,), 10, 1, *DEVICE)
    assert (one.concurrency, one.groups, one.seconds) == (2, 5, 10.0)


def test_executors_cap_what_runs_together() -> None:
    assert estimate(TEN, ALL, 30, 1, 100 * MB, 3).concurrency == 3


def test_no_time_and_no_tasks_are_no_trouble() -> None:
    instant = (Measure(10 * MB, 0.0, 10, 10), Measure(20 * MB, 0.0, 5, 5))
    assert choose(instant, 100, 1, *DEVICE).constraint == 20 * MB
    assert choose(ALL, 0, 1, *DEVICE).seconds == 0.0


def test_nothing_to_choose_from_is_an_error() -> None:
    with pytest.raises(ValueError, match="nothing to choose"):
        choose((), 1, 1, *DEVICE)


@pytest.mark.parametrize(("concurrency", "time"), [(1, 3.0), (2, 3.0), (3, 6.0), (5, 6.0), (10, 10.0), (11, 10.0)])
def test_expected_times(concurrency: int, time: float) -> None:
    assert expected(ALL, concurrency) == time


def test_of_measures_at_the_same_concurrency_the_higher_constraint_counts() -> None:
    measures = (Measure(10 * MB, 1.0, 1, 1, partial=True), Measure(20 * MB, 2.0, 1, 1, partial=True))
    assert expected(measures, 1) == expected(measures, 7) == 2.0
