"""From learning to settled and back, as the engine sees it."""

from __future__ import annotations

import msgspec
import pytest

from penstock.model.resources import Auto
from penstock.tuning.drift import Drift, surprise
from penstock.tuning.registry import Learned, Measure
from penstock.tuning.tuner import Drifted, EpochClosed, Outgrown, Tuner

MB = 1e6
AUTO = Auto(10 * MB, 40 * MB, 2.0)
TIMES = {8: 16.0, 4: 6.0, 2: 4.0}


def tuner(known: Learned | None = None, auto: Auto = AUTO, **more: float) -> Tuner:
    return Tuner("app.checkpoint", "ssd", auto, 80 * MB, 16, known=known, **more)


def run_epoch(one: Tuner, seconds: float | None = None) -> EpochClosed:
    size = one.learner.size
    time = TIMES[size] if seconds is None else seconds
    for _ in range(size):
        one.started()
    notes = [one.finished(time, size, learning=True) for _ in range(size)]
    assert notes[:-1] == [None] * (size - 1)
    assert isinstance(notes[-1], EpochClosed)
    return notes[-1]


def settled() -> Tuner:
    one = tuner()
    while one.learning:
        run_epoch(one)
    return one


def test_learning_ends_in_a_choice() -> None:
    one = tuner()
    assert one.learning and one.learned() is None and one.choice is None
    assert one.constraint(100, 1) == 10 * MB
    assert run_epoch(one) == EpochClosed(Measure(10 * MB, 16.0, 8, 8), registered=True, learning_over=False)
    assert one.constraint(100, 1) == 20 * MB
    assert not run_epoch(one).learning_over
    assert run_epoch(one).learning_over
    assert not one.learning
    assert one.constraint(100, 1) == 20 * MB
    assert one.choice is not None and one.choice.seconds == 150.0
    assert one.constraint(2, 1) == 40 * MB
    assert one.constraint(100, 1) == 20 * MB and one.choice.constraint == 20 * MB


def test_the_epoch_that_does_not_pay_is_told_and_not_registered() -> None:
    one = tuner(auto=Auto())
    run_epoch(one, 10.0)
    note = run_epoch(one, 9.0)
    assert note == EpochClosed(Measure(10 * MB, 9.0, 8, 8), registered=False, learning_over=True)
    assert [measure.constraint for measure in one.measures] == [5 * MB]


def test_what_was_learned_serves_the_next_run() -> None:
    learned = settled().learned()
    assert learned is not None and len(learned.measures) == 3
    again = msgspec.json.decode(msgspec.json.encode(learned), type=Learned)
    assert again == learned
    one = tuner(again)
    assert not one.learning
    assert one.constraint(100, 1) == 20 * MB
    assert one.learned() == learned


@pytest.mark.parametrize(
    "changes",
    [
        {"auto": Auto()},
        {"bandwidth": 81 * MB},
        {"executors": 15},
        {"ceiling": 50 * MB},
        {"measures": ()},
        {"layer": "nvme"},
    ],
)
def test_what_was_learned_elsewhere_is_not_used(changes: dict[str, object]) -> None:
    learned = settled().learned()
    assert learned is not None
    assert tuner(msgspec.structs.replace(learned, **changes)).learning


def test_a_ceiling_reaches_the_search() -> None:
    one = tuner(ceiling=15 * MB)
    assert run_epoch(one).learning_over
    learned = one.learned()
    assert learned is not None and learned.ceiling == 15 * MB
    assert not tuner(learned, ceiling=15 * MB).learning


@pytest.mark.parametrize(("ceiling", "most"), [(15 * MB, 15 * MB), (80 * MB, 40 * MB)], ids=["ceiling", "bounds"])
def test_no_choice_is_above_the_bounds_even_if_tasks_came_one_by_one(ceiling: float, most: float) -> None:
    """What ran alone had all of the device, which is more than a task may reserve."""
    one = tuner(ceiling=ceiling)
    while one.learning:
        for _ in range(one.learner.size):
            one.started()
            one.finished(1.0, 1, learning=True)
    assert all(measure.partial for measure in one.measures if measure.concurrency == 1 and measure.tasks > 1)
    assert max(one.constraint(ready, 1) for ready in range(1, 100)) == most


def test_failures_leave_the_epoch_open() -> None:
    one = tuner()
    one.started()
    one.failed(learning=True)
    assert one.learner.running == 0
    assert isinstance(run_epoch(one), EpochClosed)


def test_an_epoch_may_close_early() -> None:
    one = tuner()
    assert one.close_early() is None
    one.started()
    one.finished(1.0, 1, learning=True)
    note = one.close_early()
    assert note == EpochClosed(Measure(10 * MB, 1.0, 1, 1, partial=True), registered=True, learning_over=False)
    assert settled().close_early() is None


def test_tasks_that_take_their_time_do_not_disturb() -> None:
    one = settled()
    for _ in range(200):
        for concurrency, seconds in TIMES.items():
            one.started()
            assert one.finished(seconds, concurrency, learning=False) is None
        one.failed(learning=False)
    assert not one.learning


@pytest.mark.parametrize("factor", [2.0, 0.3])
def test_drift_makes_it_learn_anew(factor: float) -> None:
    one = settled()
    one.constraint(100, 1)
    notes = []
    while one.learning is False and len(notes) < 100:
        notes.append(one.finished(TIMES[4] * factor, 4, learning=False) if factor > 1 else _faster(one, factor))
    assert isinstance(notes[-1], Drifted)
    assert (notes[-1].ratio > 1.5) if factor > 1 else (notes[-1].ratio < 0.5)
    assert 8 <= len(notes) < 40 and set(notes[:-1]) == {None}
    assert one.learning and one.learned() is None and one.choice is None
    assert one.learner.constraint == 10 * MB
    # What ran on from before says nothing of the new epoch.
    assert one.finished(100.0, 4, learning=False) is None
    one.failed(learning=False)
    assert one.learner.running == 0
    while one.learning:
        run_epoch(one, 1.0)
    assert [measure.seconds for measure in one.measures] == [1.0, 1.0, 1.0]


def _faster(one: Tuner, factor: float) -> object:
    return one.finished(TIMES[2] * factor, 2, learning=False)


def test_eight_samples_at_least_and_no_lone_straggler() -> None:
    measures = (Measure(10 * MB, 1.0, 8, 8),)
    drift = Drift(measures)
    assert [drift.add(1e9, 8) for _ in range(7)] == [False] * 7
    assert drift.add(1e9, 8)
    drift = Drift(measures)
    for _ in range(20):
        assert not any(drift.add(1.0, 8) for _ in range(15))
        assert not drift.add(1e9, 8)


@pytest.mark.parametrize(
    ("seconds", "concurrency", "ratio"),
    [
        (16.0, 8, 1.0),
        (32.0, 8, 2.0),
        (8.0, 8, 0.5),
        (6.0, 5, 1.0),  # between 4 and 8 at a time anything from 6 to 16 s is as it should be
        (10.0, 5, 1.0),
        (24.0, 5, 1.5),
        (3.0, 5, 0.5),
        (2.0, 1, 1.0),  # alone, a task may be twice as quick as one of two
        (1.0, 1, 0.5),
        (8.0, 1, 2.0),
        (32.0, 20, 2.0),  # more than was ever tried
    ],
)
def test_surprise_is_counted_from_what_was_measured_around(seconds: float, concurrency: int, ratio: float) -> None:
    measures = settled().measures
    assert surprise(measures, seconds, concurrency) == pytest.approx(ratio, rel=2e-3)


def test_tasks_without_duration_break_nothing() -> None:
    one = tuner(auto=Auto())
    while one.learning:
        run_epoch(one, 0.0)
    assert one.constraint(1000, 3) == 80 * MB
    for _ in range(100):
        assert one.finished(0.0, 4, learning=False) is None
        assert one.finished(1e-5, 0, learning=False) is None
    assert one.constraint(0, 0) == 80 * MB


def test_what_was_learned_on_single_tasks_is_learned_anew_when_many_wait() -> None:
    one = tuner()
    while one.learning:
        one.started()
        one.finished(1.0, 1, learning=True)
        one.close_early()
    assert one.constraint(100, 1) == 40 * MB  # as few at a time as the bounds allow, whatever waits
    assert one.arrived(13) is None
    assert one.arrived(14) == Outgrown(14)
    assert one.learning and one.arrived(1000) is None
    while one.learning:
        run_epoch(one)
    assert one.arrived(10**6) is None


def test_answers_do_not_pile_up() -> None:
    one = settled()
    for ready in range(10_000):
        one.constraint(ready, 1)
    assert len(one._answers) <= 4096
