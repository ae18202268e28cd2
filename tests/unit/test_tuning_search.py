"""The search for how many attempts at a time get most from a device, on devices that answer at once."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from benchmarks.steering.scenarios import CURVES
from hypothesis import given
from hypothesis import strategies as st

from penstock.storage.curves import interpolate
from penstock.tuning.point import Point
from penstock.tuning.search import Phase, Search

MOST = 16
SECONDS = 0.2


def ask(search: Search, rate: Callable[[int], float], times: int, error: float = 0.0) -> None:
    """Let a device answer so many times."""
    for _ in range(times):
        delivered = rate(search.limit)
        search.judge(delivered, error, delivered * SECONDS, SECONDS)


def unimodal(peak: int, rise: float, fall: float) -> Callable[[int], float]:
    """Best at ``peak``; each attempt fewer or more costs a part of the rest."""
    return lambda n: 100.0 * (rise ** (peak - n) if n < peak else fall ** (n - peak))


@pytest.mark.parametrize("name", CURVES)
def test_the_best_is_found_or_something_as_good(name: str) -> None:
    search = Search(1, MOST, 4)

    def rate(streams: int) -> float:
        return interpolate(CURVES[name], streams)

    ask(search, rate, 25)
    assert rate(search.best) >= 0.96 * max(map(rate, range(1, MOST + 1)))


@given(st.integers(1, MOST), st.floats(0.5, 0.97), st.floats(0.5, 0.97), st.integers(1, MOST))
def test_any_peak_is_found(peak: int, rise: float, fall: float, start: int) -> None:
    rate = unimodal(peak, rise, fall)
    search = Search(1, MOST, start)
    ask(search, rate, 40)
    assert rate(search.best) >= 0.93 * rate(peak)


@given(st.integers(0, 2**32), st.integers(1, MOST))
def test_noise_does_not_lead_it_far_astray(seed: int, peak: int) -> None:
    chance = random.Random(seed)
    rate = unimodal(peak, 0.8, 0.8)
    search = Search(1, MOST, 4)
    ask(search, lambda n: rate(n) * chance.uniform(0.9, 1.1), 120, error=0.06)
    assert abs(search.best - peak) <= 3


@given(st.integers(1, 6), st.integers(6, 20), st.lists(st.floats(1.0, 1e9), min_size=5, max_size=60))
def test_it_keeps_within_its_bounds_whatever_it_is_told(least: int, most: int, rates: list[float]) -> None:
    search = Search(least, most, 4)
    for rate in rates:
        assert least <= search.limit <= most
        search.judge(rate, 0.01, rate, SECONDS)
    search.bound(least, least)
    assert search.limit == search.best == least


def test_it_climbs_from_below() -> None:
    """A device that collapses beyond six is asked for seven or eight once, not for sixteen."""
    search = Search(1, MOST, 4)
    tried = []
    for _ in range(12):
        tried.append(search.limit)
        ask(search, lambda n: 10.0 * n if n <= 6 else 12.0, 1)
    assert tried[:6] == [1, 2, 3, 4, 5, 6]
    assert max(tried) <= 8


def test_at_rest_it_probes_seldom() -> None:
    search = Search(1, MOST, 4)
    rate = unimodal(8, 0.8, 0.8)
    ask(search, rate, 30)
    probes = 0
    for _ in range(400):
        probes += search.probing
        ask(search, rate, 1)
    assert search.phase is Phase.HOLD and search.best == 8
    assert 2 <= probes <= 20


def test_a_device_that_changes_is_followed() -> None:
    search = Search(1, MOST, 4)
    ask(search, unimodal(10, 0.85, 0.8), 30)
    assert search.best == 10
    later = unimodal(3, 0.8, 0.85)
    ask(search, later, 30)
    assert search.best == 3


def test_a_device_that_only_becomes_slower_keeps_its_best() -> None:
    search = Search(1, MOST, 4)
    rate = unimodal(8, 0.8, 0.8)
    ask(search, rate, 30)
    ask(search, lambda n: rate(n) / 2, 30)
    assert search.changes == 1
    assert search.best == 8


def test_what_is_known_is_where_it_begins() -> None:
    points = {7: Point(90.0, 0.01), 8: Point(100.0, 0.01), 9: Point(90.0, 0.01)}
    search = Search(1, MOST, 4, begin_at=8, points=points)
    assert (search.limit, search.phase) == (8, Phase.HOLD)
    ask(search, unimodal(8, 0.9, 0.9), 5)
    assert search.limit == 8


def test_where_nothing_can_be_told_it_goes_to_where_others_begin() -> None:
    search = Search(1, MOST, 4)
    search.skip()
    assert search.limit == 4
