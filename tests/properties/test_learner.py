"""Whatever starts, succeeds and fails in whatever order, the learning phase keeps its promises and ends."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.resources import Auto
from penstock.tuning.epochs import Learner, epoch_size
from penstock.tuning.registry import Measure

MB = 1e6

rates = st.floats(0.05, 500).map(lambda rate: rate * MB)
bounds = st.tuples(rates, rates).map(sorted)
autos = st.just(Auto()) | st.builds(lambda pair, delta: Auto(pair[0], pair[1], delta), bounds, st.floats(1.3, 8))
learners = st.builds(
    Learner,
    autos,
    rates,
    st.integers(1, 12),
    ceiling=st.none() | rates,
    tolerance=st.sampled_from([0.0, 0.1]),
)
times = st.floats(0, 100)
steps = st.lists(st.sampled_from(["start", "start", "succeed", "succeed", "fail", "close"]), max_size=150)


def take(learner: Learner, step: str, seconds: float) -> None:
    """Take a step if it is a legal one."""
    if step == "start" and learner.room:
        learner.started()
    elif step == "succeed" and learner.running:
        before = len(learner.epochs)
        assert learner.succeeded(seconds) == (len(learner.epochs) > before)
    elif step == "fail" and learner.running:
        learner.failed()
    elif step == "close":
        before = len(learner.epochs)
        assert learner.close_early() == (len(learner.epochs) > before)


def check(learner: Learner, size_of: dict[float, int]) -> None:
    assert learner.room >= 0
    assert learner.running >= 0
    assert learner.room + learner.running <= learner.size
    assert learner.size >= 1
    tried = [epoch.constraint for epoch in learner.epochs]
    assert all(low < high for low, high in pairwise(tried))
    registered = len(learner.measures)
    assert learner.measures == learner.epochs[:registered]
    assert len(learner.epochs) - registered in ((0, 1) if learner.done else (0,))
    for epoch in learner.epochs:
        size = size_of[epoch.constraint]
        if epoch.partial:
            assert 1 <= epoch.tasks <= size
            assert 1 <= epoch.concurrency <= size
        else:
            assert epoch.tasks == epoch.concurrency == size


@settings(max_examples=150, deadline=None)
@given(learners, steps, st.data())
def test_any_history_keeps_the_promises_and_ends(learner: Learner, history: list[str], data: st.DataObject) -> None:
    size_of: dict[float, int] = {}
    for step in history:
        size_of[learner.constraint] = learner.size
        take(learner, step, data.draw(times) if step == "succeed" else 0.0)
        check(learner, size_of)
    # From wherever that led, tasks that go on succeeding bring it to an end.
    for _ in range(4000):
        if learner.done:
            break
        size_of[learner.constraint] = learner.size
        take(learner, "start" if learner.room else "succeed", 1.0)
    check(learner, size_of)
    assert learner.done
    assert learner.room == 0
    assert learner.measures


@settings(max_examples=100, deadline=None)
@given(autos, rates, st.integers(1, 300), st.none() | rates)
def test_values_stay_within_device_ceiling_and_range(
    auto: Auto, bandwidth: float, executors: int, ceiling: float | None
) -> None:
    learner = Learner(auto, bandwidth, executors, ceiling=ceiling)
    while not learner.done:
        size = learner.size
        assert size == epoch_size(learner.constraint, bandwidth, executors) <= executors
        # It fits in the device, and one more would not, or had no executor.
        assert size * learner.constraint <= bandwidth * (1 + 1e-8)
        assert size == executors or (size + 1) * learner.constraint > bandwidth * (1 - 1e-8)
        for _ in range(size):
            learner.started()
        for _ in range(size):
            learner.succeeded(float(size))
    highest = bandwidth if ceiling is None else min(bandwidth, ceiling)
    assert all(epoch.constraint <= highest for epoch in learner.epochs)
    if auto.bounded:
        assert all(epoch.constraint <= auto.most for epoch in learner.epochs)
        assert learner.measures == learner.epochs


@settings(max_examples=100, deadline=None)
@given(st.lists(times, min_size=1, max_size=12), st.lists(st.integers(0, 11), max_size=12))
def test_the_mean_is_of_the_successes_alone(seconds: list[float], failures: list[int]) -> None:
    count = len(seconds)
    learner = Learner(Auto(1 * MB, 1 * MB, 2.0), 100 * MB, count)
    for position, time in enumerate(seconds):
        for _ in range(failures.count(position)):
            learner.started()
            learner.failed()
        learner.started()
        learner.succeeded(time)
    (epoch,) = learner.measures
    assert isinstance(epoch, Measure)
    assert abs(epoch.seconds - sum(seconds) / count) <= 1e-9 * (1 + sum(seconds))
