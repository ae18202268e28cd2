"""The plot for the terminal: where marks stand, what the axes say, and that it keeps to its width."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.observe.plot import Series, plot
from penstock.units import format_rate


def rows(*series: Series, **options: object) -> list[str]:
    return plot(series, **options).plain.split("\n")  # type: ignore[arg-type]


RISING = Series("write", [(1, 100e6), (2, 200e6), (4, 400e6)], "cyan")


def test_a_rising_curve_rises() -> None:
    lines = rows(RISING, width=60, height=9, x_scale=math.log2, y_format=format_rate)
    places = [(row, line.index("●")) for row, line in enumerate(lines[:9]) if "●" in line]
    assert [row for row, _ in places] == sorted(row for row, _ in places)
    assert [column for _, column in places] == sorted((column for _, column in places), reverse=True)
    assert len(places) == 3


def test_the_axes_say_what_they_measure() -> None:
    lines = rows(RISING, width=60, height=9, x_label="streams", x_scale=math.log2, y_format=format_rate)
    assert [line.split("┤")[0].strip() for line in lines if "┤" in line] == [
        "400 MB/s",
        "300 MB/s",
        "200 MB/s",
        "100 MB/s",
        "0 B/s",
    ]
    floor, labels = lines[9:11]
    assert labels.split() == ["1", "2", "4"]
    assert [floor[labels.index(label)] for label in "124"] == ["┬"] * 3
    assert lines[11].strip() == "streams"
    assert lines[12].strip() == "● write"


def test_points_stand_at_their_heights_and_above_their_ticks() -> None:
    lines = rows(Series("a", [(0, 0), (5, 50), (10, 100)], "red"), width=50, height=11)
    ticks = [at for at, sign in enumerate(lines[11]) if sign == "┬"]
    marks = {line.index("●"): row for row, line in enumerate(lines[:11]) if "●" in line}
    assert marks == dict(zip(ticks, (10, 5, 0), strict=True))


def test_on_a_logarithmic_axis_doublings_are_equally_far_apart() -> None:
    floor = rows(RISING, width=60, x_scale=math.log2)[12]
    first, second, third = (at for at, sign in enumerate(floor) if sign == "┬")
    assert abs((second - first) - (third - second)) <= 1
    floor = rows(RISING, width=60)[12]
    first, second, third = (at for at, sign in enumerate(floor) if sign == "┬")
    assert abs(2 * (second - first) - (third - second)) <= 2


def test_curves_have_marks_and_styles_of_their_own() -> None:
    other = Series("read", [(1, 300e6), (2, 250e6), (4, 400e6)], "yellow")
    text = plot([RISING, other], width=60)
    assert text.plain.count("●") == 2 + 1 and text.plain.count("○") == 2 + 1  # the legend has one of each
    assert text.plain.count("◉") == 1  # where they meet
    assert {"cyan", "yellow"} <= {str(span.style) for span in text.spans}


def test_ascii_alone_where_nothing_else_can_be_shown() -> None:
    text = plot([RISING, Series("read", [(1, 1e6), (4, 2e6)], "")], y_format=format_rate, ascii_only=True).plain
    assert text.isascii()
    assert text.count("*") == 3 + 1 and text.count("o") == 2 + 1


@pytest.mark.parametrize("points", [[(1, 5.0)], [(1, 0.0), (2, 0.0)], [(3, 1e-9), (4, 1e15)]])
def test_odd_curves_are_drawn_too(points: list[tuple[float, float]]) -> None:
    lines = rows(Series("odd", points, ""), width=40, height=5)
    assert sum(line.count("●") for line in lines[:5]) == len(points)


def test_labels_that_would_touch_are_left_out() -> None:
    labels = rows(Series("many", [(n, n) for n in range(1, 101)], ""), width=40)[-2]
    numbers = [int(label) for label in labels.split()]
    assert 3 < len(numbers) < 30 and numbers == sorted(numbers)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 4096), st.floats(0, 1e13)), min_size=1, max_size=12, unique_by=lambda point: point[0]
    ),
    st.integers(30, 120),
)
def test_it_keeps_to_its_width_and_height(points: list[tuple[float, float]], width: int) -> None:
    lines = rows(
        Series("any", sorted(points), ""), width=width, height=8, x_scale=math.log2, y_format=format_rate, x_label="x"
    )
    assert len(lines) == 8 + 4
    assert max(map(len, lines)) <= width
