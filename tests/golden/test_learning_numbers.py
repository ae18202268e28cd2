"""The numbers that the published experiments give or imply: an SSD of 450 MB/s, 225 I/O executors, powers of two."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.tuning.epochs import Learner, first_constraint
from penstock.tuning.objective import choose
from penstock.tuning.registry import Measure
from penstock.tuning.spec import parse

MB = 1e6
SSD = 450 * MB
EXECUTORS = 225
SIZES = [225, 112, 56, 28, 14, 7, 3, 1]
POWERS = [2, 4, 8, 16, 32, 64, 128, 256]

Device = Callable[[int], float]


def fair_share(concurrency: int) -> float:
    """Seconds for 290 MB on a device that many writers share without loss."""
    return concurrency * 290 * MB / SSD


def congested(concurrency: int) -> float:
    """The same on a device that few writers do not fill, and that many hinder: its throughput peaks at 56."""
    filled = concurrency / (concurrency + 10)
    hindered = 1 + (concurrency / 200) ** 2
    return fair_share(concurrency) / filled * hindered


def paying_until(last: int) -> Device:
    """Seconds at a concurrency where each halving pays a little more than it must, down to ``last``."""
    return lambda concurrency: 100.0 * concurrency**1.1 if concurrency >= last else 1e6


def learn(text: str, device: Device = fair_share, executors: int = EXECUTORS) -> Learner:
    """Run every epoch full, all its tasks together."""
    learner = Learner(parse(text), SSD, executors)
    while not learner.done:
        together = learner.size
        for _ in range(together):
            learner.started()
        assert learner.room == 0
        closings = [learner.succeeded(device(together)) for _ in range(together)]
        assert closings == [False] * (together - 1) + [True]
    return learner


def constraints(learner: Learner) -> list[float]:
    return [epoch.constraint / MB for epoch in learner.epochs]


def tasks(learner: Learner) -> list[int]:
    return [epoch.tasks for epoch in learner.epochs]


def test_a_full_bounded_search_has_eight_epochs_and_uses_446_tasks() -> None:
    learner = learn("auto(2,256,2)")
    assert constraints(learner) == POWERS
    assert tasks(learner) == [measure.concurrency for measure in learner.measures] == SIZES
    assert sum(tasks(learner)) == 446
    assert learner.measures == learner.epochs


def test_an_unbounded_search_of_five_epochs_uses_435_tasks() -> None:
    learner = learn("auto", paying_until(28))
    assert constraints(learner) == POWERS[:5]
    assert sum(tasks(learner)) == 435
    assert learner.measures == learner.epochs[:4]


def test_an_unbounded_search_of_four_epochs_uses_421_tasks() -> None:
    learner = learn("auto", paying_until(56))
    assert constraints(learner) == POWERS[:4]
    assert sum(tasks(learner)) == 421


@pytest.mark.parametrize(("executors", "first"), [(225, 2), (112, 4), (56, 8)])
def test_an_unbounded_search_begins_with_the_share_of_an_executor(executors: int, first: int) -> None:
    assert first_constraint(parse("auto"), SSD, executors) == first * MB
    learner = Learner(parse("auto"), SSD, executors)
    assert (learner.constraint, learner.size) == (first * MB, executors)


@pytest.mark.parametrize(
    ("text", "tried", "used"),
    [
        ("auto(4,16,2)", [4, 8, 16], 196),
        ("auto(4,256,4)", [4, 16, 64, 256], 112 + 28 + 7 + 1),
        ("auto(2,256,4)", [2, 8, 32, 128], 225 + 56 + 14 + 3),
        ("auto(10,50,4)", [10, 40], 45 + 11),
    ],
)
def test_bounded_searches_try_these_values(text: str, tried: list[int], used: int) -> None:
    learner = learn(text)
    assert constraints(learner) == tried
    assert sum(tasks(learner)) == used


def test_hmmer_stops_after_the_fourth_epoch_keeps_three_and_chooses_eight() -> None:
    learner = learn("auto", congested)
    assert constraints(learner) == [2, 4, 8, 16]
    assert [measure.constraint / MB for measure in learner.measures] == [2, 4, 8]
    assert choose(learner.measures, 2304, 1, SSD, EXECUTORS).constraint == 8 * MB
    assert choose(learner.measures, 2304, 12, SSD, EXECUTORS).constraint == 8 * MB


def test_hmmer_bounded_chooses_eight_too_and_one_writer_at_a_time_is_far_worse() -> None:
    learner = learn("auto(2,256,2)", congested)
    assert choose(learner.measures, 2304, 1, SSD, EXECUTORS).constraint == 8 * MB
    throughput = {measure.constraint / MB: measure.concurrency / measure.seconds for measure in learner.measures}
    assert max(throughput, key=lambda constraint: throughput[constraint]) == 8
    assert throughput[256] < throughput[8] / 5


def test_a_large_delta_steps_over_the_best_value() -> None:
    learner = learn("auto(4,256,4)", congested)
    chosen = choose(learner.measures, 2304, 1, SSD, EXECUTORS)
    finer = choose(learn("auto(4,16,2)", congested).measures, 2304, 1, SSD, EXECUTORS)
    assert chosen.constraint != finer.constraint == 8 * MB
    assert chosen.seconds > finer.seconds


@pytest.mark.parametrize("text", ["auto", "auto(2,256,2)"])
def test_on_a_perfect_device_all_values_tie_and_the_highest_is_chosen(text: str) -> None:
    learner = learn(text)
    assert constraints(learner) == POWERS
    assert len(learner.measures) == 8
    for waiting in (446, 500, 2304):
        assert choose(learner.measures, waiting, 1, SSD, EXECUTORS).constraint == 256 * MB


def test_twenty_tasks_ten_at_a_time_are_two_groups() -> None:
    measures = [Measure(45 * MB, 3.0, 10, 10)]
    assert choose(measures, 20, 1, SSD, EXECUTORS).seconds == 6.0
