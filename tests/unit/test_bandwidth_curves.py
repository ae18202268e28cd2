"""Bandwidth as a function of concurrent streams: the lines between the points, and curves that are refused."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ConfigError
from penstock.storage.curves import check_curve, interpolate

CURVE = ((2, 100.0), (8, 400.0), (32, 100.0))


@pytest.mark.parametrize(
    ("streams", "bandwidth"),
    [(0, 100), (1, 100), (2, 100), (3, 150), (5, 250), (8, 400), (20, 250), (32, 100), (33, 100), (1000, 100)],
)
def test_lines_between_the_points_and_level_beyond_them(streams: int, bandwidth: float) -> None:
    assert interpolate(CURVE, streams) == pytest.approx(bandwidth)


def test_one_point_is_a_device_that_never_congests() -> None:
    assert interpolate([(1, 5)], 1) == interpolate([(1, 5)], 500) == 5.0


points = st.lists(st.tuples(st.integers(1, 300), st.floats(1.0, 1e10)), min_size=1, unique_by=lambda point: point[0])


@given(points, st.floats(0, 400))
def test_it_goes_through_its_points_and_stays_between_neighbours(
    unordered: list[tuple[int, float]], streams: float
) -> None:
    curve = sorted(unordered)
    assert all(interpolate(curve, at) == pytest.approx(bandwidth) for at, bandwidth in curve)
    left = max((point for point in curve if point[0] <= streams), default=curve[0])
    right = min((point for point in curve if point[0] >= streams), default=curve[-1])
    low, high = sorted((left[1], right[1]))
    assert low * (1 - 1e-9) <= interpolate(curve, streams) <= high * (1 + 1e-9)


@pytest.mark.parametrize(
    ("curve", "complaint"),
    [
        ((), "at least one point"),
        (((2, 5.0), (1, 5.0)), "1 streams after 2"),
        (((2, 5.0), (2, 6.0)), "2 streams after 2"),
        (((0, 5.0),), "for 0 streams"),
        (((-3, 5.0), (2, 5.0)), "for -3 streams"),
        (((1, 0.0),), "0.0 bytes/s at 1 streams"),
        (((1, 5.0), (2, -1.0)), "-1.0 bytes/s at 2 streams"),
        (((1, math.nan),), "nan bytes/s"),
        (((1, math.inf),), "inf bytes/s"),
    ],
)
def test_a_curve_that_makes_no_sense_is_refused(curve: tuple[tuple[int, float], ...], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        check_curve(curve)
    with pytest.raises(ConfigError, match=complaint):
        interpolate(curve, 1)
