"""The learning phase, epoch by epoch."""

from __future__ import annotations

import pytest

from penstock.errors import InternalError
from penstock.model.resources import Auto
from penstock.tuning.epochs import Learner, epoch_size
from penstock.tuning.registry import Measure

MB = 1e6
BOUNDED = Auto(10 * MB, 40 * MB, 2.0)


def fill(learner: Learner, seconds: float) -> Measure:
    """Run the present epoch full."""
    size = learner.size
    for _ in range(size):
        learner.started()
    assert [learner.succeeded(seconds) for _ in range(size)][-1]
    return learner.epochs[-1]


def some(learner: Learner, count: int, seconds: float) -> None:
    """Run a part of the present epoch, all at once."""
    for _ in range(count):
        learner.started()
    for _ in range(count):
        assert not learner.succeeded(seconds)


def test_room_counts_what_runs_and_what_succeeded() -> None:
    learner = Learner(BOUNDED, 40 * MB, 16)
    assert (learner.constraint, learner.size, learner.running, learner.room) == (10 * MB, 4, 0, 4)
    learner.started()
    learner.started()
    assert (learner.running, learner.room) == (2, 2)
    assert not learner.succeeded(1.0)
    assert (learner.running, learner.room) == (1, 2)
    learner.failed()
    assert (learner.running, learner.room) == (0, 3)


def test_a_failed_attempt_is_replaced_and_its_time_does_not_count() -> None:
    learner = Learner(BOUNDED, 40 * MB, 2)
    learner.started()
    learner.started()
    learner.failed()
    assert not learner.succeeded(1.0)
    learner.started()
    assert learner.succeeded(3.0)
    assert learner.measures == (Measure(10 * MB, 2.0, 2, 2),)


def test_more_than_the_epoch_holds_may_not_start() -> None:
    learner = Learner(BOUNDED, 40 * MB, 1)
    learner.started()
    with pytest.raises(InternalError, match="no room"):
        learner.started()


def test_what_did_not_start_cannot_end() -> None:
    learner = Learner(BOUNDED, 40 * MB, 1)
    with pytest.raises(InternalError):
        learner.succeeded(1.0)
    with pytest.raises(InternalError):
        learner.failed()


def test_nothing_starts_after_the_last_epoch() -> None:
    learner = Learner(Auto(10 * MB, 10 * MB, 2.0), 40 * MB, 16)
    fill(learner, 1.0)
    assert learner.done and learner.room == 0
    with pytest.raises(InternalError):
        learner.started()
    assert not learner.close_early()


def test_executors_cap_an_epoch() -> None:
    assert Learner(BOUNDED, 40 * MB, 3).size == 3
    assert epoch_size(1e-320, 40 * MB, 3) == 3


def test_quotients_that_are_whole_in_decimal_are_whole() -> None:
    counts = range(1, 1000)
    assert any(450e6 / (450e6 / count) < count for count in counts)  # what would go wrong
    assert [epoch_size(450e6 / count, 450e6, 10_000) for count in counts] == list(counts)


def test_a_range_whose_end_is_reached_by_fractions_includes_it() -> None:
    learner = Learner(Auto(1 * MB, 1.331 * MB, 1.1), 2 * MB, 16)
    while not learner.done:
        fill(learner, 1.0)
    tried = [measure.constraint / MB for measure in learner.measures]
    assert tried == pytest.approx([1, 1.1, 1.21, 1.331])
    assert tried[-1] <= 1.331


def test_a_delta_smaller_than_rounding_ends() -> None:
    learner = Learner(Auto(1 * MB, 1 * MB, 1 + 1e-12), 2 * MB, 16)
    fill(learner, 1.0)
    assert learner.done


def test_a_range_beyond_the_device_ends_there() -> None:
    learner = Learner(Auto(10 * MB, 1000 * MB, 3.0), 100 * MB, 16)
    while not learner.done:
        fill(learner, 1.0)
    assert [measure.constraint / MB for measure in learner.measures] == [10, 30, 90]


def test_a_range_that_begins_beyond_the_device_is_one_epoch_of_one_task_on_all_of_it() -> None:
    learner = Learner(Auto(200 * MB, 1000 * MB, 2.0), 100 * MB, 16)
    assert fill(learner, 1.0) == Measure(100 * MB, 1.0, 1, 1)
    assert learner.done


@pytest.mark.parametrize("auto", [Auto(), Auto(2 * MB, 256 * MB, 2.0)])
def test_a_ceiling_bounds_what_is_tried(auto: Auto) -> None:
    learner = Learner(auto, 450 * MB, 225, ceiling=10 * MB)
    while not learner.done:
        fill(learner, float(learner.size))
    assert [measure.constraint / MB for measure in learner.measures] == [2, 4, 8]
    learner = Learner(auto, 450 * MB, 225, ceiling=1 * MB)
    assert fill(learner, 1.0).constraint == 1 * MB
    assert learner.done


def test_more_executors_than_megabytes_begin_with_a_fraction() -> None:
    learner = Learner(Auto(), 450 * MB, 500)
    assert learner.constraint == 0.9 * MB
    assert learner.size == 500
    fill(learner, 500.0)
    assert (learner.constraint, learner.size) == (1.8 * MB, 250)


def test_an_unbounded_search_goes_on_at_exactly_half_and_stops_above_it() -> None:
    learner = Learner(Auto(), 160 * MB, 16)
    assert fill(learner, 8.0) == Measure(10 * MB, 8.0, 16, 16)
    fill(learner, 4.0)
    assert not learner.done
    fill(learner, 2.001)
    assert learner.done
    assert [epoch.concurrency for epoch in learner.epochs] == [16, 8, 4]
    assert learner.measures == learner.epochs[:2]


def test_a_tolerance_forgives_a_little() -> None:
    learner = Learner(Auto(), 160 * MB, 16, tolerance=0.1)
    fill(learner, 8.0)
    fill(learner, 4.39)
    assert not learner.done
    fill(learner, 2.42)
    assert learner.done


def test_an_unbounded_search_stops_at_the_device() -> None:
    learner = Learner(Auto(), 160 * MB, 16)
    while not learner.done:
        fill(learner, 0.0)
    assert [measure.constraint / MB for measure in learner.measures] == [10, 20, 40, 80, 160]
    assert learner.measures == learner.epochs


@pytest.mark.parametrize(("second", "goes_on"), [(8.0, True), (8.1, False), (15.0, False)])
def test_half_the_time_is_asked_of_more_than_half_the_tasks_too(second: float, goes_on: bool) -> None:
    """31 MB/s and 16 executors: 16 tasks at 1 MB/s, then 15 at 2 MB/s. As published, half is asked for all the same."""
    learner = Learner(Auto(), 31 * MB, 16)
    fill(learner, 16.0)
    assert learner.size == 15
    fill(learner, second)
    assert learner.done is not goes_on


def test_an_epoch_without_a_success_does_not_close_early() -> None:
    learner = Learner(Auto(), 160 * MB, 16)
    assert not learner.close_early()
    learner.started()
    assert not learner.close_early()
    learner.failed()
    assert not learner.close_early()
    assert learner.epochs == ()


def test_an_epoch_does_not_close_early_while_a_task_runs() -> None:
    learner = Learner(Auto(), 160 * MB, 16)
    learner.started()
    learner.started()
    learner.succeeded(1.0)
    assert not learner.close_early()
    learner.succeeded(2.0)
    assert learner.close_early()
    assert learner.measures == (Measure(10 * MB, 1.5, 2, 2, partial=True),)


def test_a_partial_epoch_counts_the_tasks_that_ran_together() -> None:
    learner = Learner(Auto(), 160 * MB, 16)
    some(learner, 3, 1.0)
    some(learner, 2, 1.0)
    assert learner.close_early()
    assert learner.measures[0].concurrency == 3
    assert learner.measures[0].tasks == 5


@pytest.mark.parametrize(("seconds", "goes_on"), [(1.0, True), (1.001, False)])
def test_a_partial_epoch_is_held_to_the_tasks_it_really_had(seconds: float, goes_on: bool) -> None:
    learner = Learner(Auto(), 160 * MB, 16)
    fill(learner, 8.0)
    some(learner, 2, seconds)  # an eighth of the tasks before
    assert learner.close_early()
    assert learner.epochs[-1].partial
    assert learner.done is not goes_on
    assert len(learner.measures) == (2 if goes_on else 1)


def test_an_epoch_with_more_tasks_than_a_partial_one_before_may_take_longer() -> None:
    learner = Learner(Auto(), 160 * MB, 16)
    some(learner, 2, 1.0)
    assert learner.close_early()
    fill(learner, 4.0)
    assert len(learner.measures) == 2 and not learner.done


def test_bounded_epochs_are_registered_whatever_they_show() -> None:
    learner = Learner(BOUNDED, 40 * MB, 16)
    for seconds in (1.0, 50.0, 7.0):
        fill(learner, seconds)
    assert learner.done
    assert [measure.seconds for measure in learner.measures] == [1.0, 50.0, 7.0]


@pytest.mark.parametrize(
    ("bandwidth", "executors", "ceiling"),
    [(0.0, 1, None), (float("inf"), 1, None), (float("nan"), 1, None), (1.0, 0, None), (1.0, 1, 0.0)],
)
def test_circumstances_that_make_no_sense_are_refused(bandwidth: float, executors: int, ceiling: float | None) -> None:
    with pytest.raises(ValueError, match="cannot learn"):
        Learner(Auto(), bandwidth, executors, ceiling=ceiling)
