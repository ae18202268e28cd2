"""Windows and the controller on virtual time: what counts as a measurement, and what is asked for."""

from __future__ import annotations

import pytest

from penstock.tuning.controller import Controller, Judged, Settled
from penstock.tuning.mixture import Mixture
from penstock.tuning.search import Phase, Search
from penstock.tuning.window import Window

MB = 1e6


def test_a_window_gives_the_rate_of_even_readings() -> None:
    window = Window(4, 0.0)
    for step in range(6):
        window.read(step * 0.1, step * 2 * MB, step * 0.4)
    flow = window.flow()
    assert flow is not None
    assert flow.rate == pytest.approx(20 * MB)
    assert flow.spread == pytest.approx(0.0)
    assert flow.concurrency == pytest.approx(4.0)


def test_three_intervals_are_needed() -> None:
    window = Window(1, 0.0)
    for step in range(3):
        window.read(step * 0.1, step * MB, step * 0.1)
    assert window.flow() is None


def test_what_ended_tells_the_rate_whatever_the_sizes() -> None:
    """Four share a device of 40 MB/s: each gets 10, a small file as a large one."""
    window = Window(4, 0.0)
    for size in (1 * MB, 50 * MB, 7 * MB):
        window.ended("write", size, 1.0, size / (10 * MB), 4.0)
    ends = window.ends(Mixture(), 1.0)
    assert ends is not None
    assert ends.rate == pytest.approx(40 * MB)
    assert ends.spread == pytest.approx(0.0, abs=1e-6)


def test_an_attempt_among_fewer_does_not_count() -> None:
    window = Window(4, 0.0)
    window.ended("write", MB, 1.0, 0.1, 2.0)
    window.ended("write", MB, 1.0, 0.1, 4.0)
    assert window.ends(Mixture(), 1.0) is None


def test_nothing_is_asked_for_while_too_few_run() -> None:
    controller = Controller(Search(1, 16, 4, begin_at=4))
    controller.runs(3, 0.0)
    assert controller.reading_at is None
    controller.runs(4, 0.1)
    assert controller.reading_at == 0.1


def flow(controller: Controller, rate: float, now: float, readings: int) -> float:
    """So many even readings, each when it is asked for."""
    for _ in range(readings):
        if controller.reading_at is None:
            break
        now = max(now, controller.reading_at)
        controller.read(rate * now, now)
    return now


def test_an_even_flow_is_enough_within_fractions_of_an_attempt() -> None:
    controller = Controller(Search(1, 16, 4))
    controller.runs(1, 0.0)
    now = flow(controller, 10 * MB, 0.0, 5)
    assert controller.limit == 2
    assert now < 0.1
    assert isinstance(controller.news[0], Judged)


def test_bursts_are_no_flow() -> None:
    """A task that computes first shows nothing, and then the ends of tasks are what counts."""
    controller = Controller(Search(1, 16, 4))
    controller.runs(1, 0.0)
    flow(controller, 0.0, 0.0, 10)
    assert not controller.steady
    assert controller.limit == 4
    controller.runs(4, 1.0)
    assert controller.reading_at is None


def test_readings_that_ended_files_contradict_are_not_believed() -> None:
    """The kernel takes what is written into its cache: readings show ten times what the device does."""
    controller = Controller(Search(1, 16, 4, begin_at=4))
    controller.runs(4, 0.0)
    flow(controller, 400 * MB, 0.0, 3)
    for _ in range(4):
        controller.ended("write", 2 * MB, 0.2, 4.0, 0.2)
    flow(controller, 400 * MB, 0.2, 3)
    assert not controller.steady


def test_who_cannot_read_goes_by_what_ends() -> None:
    controller = Controller(Search(1, 16, 4, begin_at=4))
    controller.cannot_read()
    controller.runs(4, 0.0)
    assert controller.reading_at is None
    for _ in range(8):
        controller.ended("write", 2 * MB, 0.2, 4.0, 0.3)
    assert any(isinstance(news, Judged) and news.rate == pytest.approx(40 * MB) for news in controller.news)


def test_it_says_when_it_has_settled() -> None:
    controller = Controller(Search(1, 2, 1))
    controller.cannot_read()
    now = 0.0
    for _ in range(20):
        limit = controller.limit
        controller.runs(limit, now)
        now += 0.1
        for _ in range(limit):
            controller.ended("write", MB, 0.1 * limit, float(limit), now)
    assert controller.search.phase is Phase.HOLD
    [settled] = [news for news in controller.news if isinstance(news, Settled)][:1]
    assert settled.limit in (1, 2)


def test_attempts_of_less_than_a_moment_are_judged_by_many() -> None:
    """A single one of them that had to wait for a processor would tell of a device a tenth as fast."""
    controller = Controller(Search(1, 16, 4, begin_at=1))
    controller.cannot_read()
    controller.runs(1, 0.0)
    for number in range(1, 500):
        controller.ended("write", 1e4, 1e-3 if number % 50 == 0 else 1e-4, 1.0, number * 1e-4)
    assert not controller.news
    for number in range(500, 600):
        controller.ended("write", 1e4, 1e-4, 1.0, number * 1e-4)
    [judged] = controller.news
    assert isinstance(judged, Judged)
    assert judged.rate == pytest.approx(1e4 / 1.18e-4, rel=0.05)


def test_what_flows_while_processes_start_does_not_count() -> None:
    controller = Controller(Search(1, 16, 4))
    controller.runs(1, 0.0)
    for step in range(30):
        controller.read(0.0, step * 0.01, starting=True)
    assert controller.steady
    assert not controller.news
    for step in range(30, 40):
        controller.read(10 * MB * max(0, step - 33) * 0.01, step * 0.01)
    judged = controller.news[0]
    assert isinstance(judged, Judged)
    assert (judged.limit, judged.rate) == (1, pytest.approx(10 * MB))
