"""Sizes, rates and durations: what is accepted, what is refused, and that print and parse agree."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ConfigError
from penstock.units import (
    format_count,
    format_duration,
    format_rate,
    format_size,
    parse_duration,
    parse_rate,
    parse_size,
)

# Three significant digits are printed, so what is read back is within half of the last one.
PRINTED = 0.0051


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512", 512 * 10**6),
        (512, 512 * 10**6),
        (0.5, 500_000),
        ("0", 0),
        ("7B", 7),
        ("40MB", 40 * 10**6),
        ("40mb", 40 * 10**6),
        (" 1.5 GB ", 1_500_000_000),
        ("2GiB", 2 * 2**30),
        ("2gib", 2 * 2**30),
        ("4G", 4 * 10**9),
        ("4Gi", 4 * 2**30),
        (".5kB", 500),
        ("1e3 B", 1000),
        ("1PB", 10**15),
        ("9007199254740993B", 2**53 + 1),
    ],
)
def test_sizes_that_are_accepted(text: str | float, size: int) -> None:
    assert parse_size(text) == size


def test_a_number_alone_counts_the_default_unit() -> None:
    assert parse_size("3", default_unit="GiB") == 3 * 2**30
    assert parse_size(3, default_unit="B") == 3
    assert parse_size("3MB", default_unit="GiB") == 3 * 10**6


@pytest.mark.parametrize(
    ("text", "rate"), [("40MB/s", 40e6), ("12 GB/s", 12e9), ("1.5GiB / s", 1.5 * 2**30), ("450", 450e6), (450, 450e6)]
)
def test_rates_that_are_accepted(text: str | float, rate: float) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("90", 90),
        (" 1.5 ", 1.5),
        (2, 2),
        ("2m", 120),
        ("2min", 120),
        ("1h30m", 5400),
        ("1h 30m 5s", 5405),
        ("250ms", 0.25),
        ("1s500ms", 1.5),
        ("40us", 40e-6),
        ("40 µs", 40e-6),
        ("1d", 86400),
        ("1e3s", 1000),
    ],
)
def test_durations_that_are_accepted(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


NOT_A_QUANTITY = [
    "",
    " ",
    "MB",
    "-1",
    "-1MB",
    "1 2MB",
    "1,5GB",
    "1.5.2GB",
    "nan",
    "inf",
    "1e999",
    "9" * 5000,
    "40MB/s/s",
    "٣MB",
]


@pytest.mark.parametrize("text", [*NOT_A_QUANTITY, "4XB", "4MBB", "40MB/s", "90s"])
def test_a_bad_size_is_named_in_the_error_next_to_a_good_one(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_size(text)
    assert repr(text) in str(caught.value)
    assert "1.5 GB" in str(caught.value)


@pytest.mark.parametrize("text", [*NOT_A_QUANTITY, "40MB", "40/s", "40MB/h", "40MB/", "/s", "4XB/s"])
def test_a_bad_rate_is_named_in_the_error_next_to_a_good_one(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_rate(text)
    assert repr(text) in str(caught.value)
    assert "40MB/s" in str(caught.value)


@pytest.mark.parametrize("text", [*NOT_A_QUANTITY, "30m1h", "1h2h", "1min1m", "5 weeks", "1h30", "h", "2MB"])
def test_a_bad_duration_is_named_in_the_error_next_to_a_good_one(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_duration(text)
    assert repr(text) in str(caught.value)
    assert "1h30m" in str(caught.value)


@pytest.mark.parametrize("parse", [parse_size, parse_rate, parse_duration])
@pytest.mark.parametrize("value", [-1, math.nan, math.inf, True, None, [1]])
def test_numbers_that_measure_nothing_are_refused(parse: object, value: object) -> None:
    with pytest.raises(ConfigError):
        parse(value)  # type: ignore[operator]


@pytest.mark.parametrize("parse", [parse_size, lambda text: parse_rate(text + "/s")])
def test_a_spelling_that_means_bits_is_refused_with_the_right_one(parse: object) -> None:
    with pytest.raises(ConfigError, match="write MB for bytes"):
        parse("40Mb")  # type: ignore[operator]


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (1536, "1.54 kB"),
        (40e6, "40 MB"),
        (999_499, "999 kB"),
        (999_600, "1 MB"),
        (1_500_000_000, "1.5 GB"),
        (123_456_789_012, "123 GB"),
        (5e21, "5000 EB"),
        (-2e6, "-2 MB"),
    ],
)
def test_sizes_as_they_are_printed(size: float, text: str) -> None:
    assert format_size(size) == text
    assert format_rate(size) == f"{text}/s"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ns"),
        (35e-6, "35 µs"),
        (0.25, "250 ms"),
        (0.9996, "1 s"),
        (12.345, "12.3 s"),
        (59.97, "1m 00s"),
        (125, "2m 05s"),
        (3599.7, "1h 00m"),
        (5400, "1h 30m"),
        (86_399, "1d 00h"),
        (180_000, "2d 02h"),
        (-90, "-1m 30s"),
    ],
)
def test_durations_as_they_are_printed(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0"), (7, "7"), (0.534, "0.53"), (42.25, "42.2"), (893_123, "893,123"), (20312.7, "20,313")]
)
def test_counts_as_they_are_printed(count: float, text: str) -> None:
    assert format_count(count) == text


@given(st.integers(0, 10**21))
def test_a_printed_size_reads_back_as_the_same_size(size: int) -> None:
    assert parse_size(format_size(size)) == pytest.approx(size, rel=PRINTED)


@given(st.integers(0, 10**18), st.sampled_from(["B", "kB", "MB", "GB", "KiB", "MiB", "GiB", "tb", "pib"]))
def test_whole_numbers_of_any_unit_are_exact(number: int, unit: str) -> None:
    assert parse_size(f"{number}{unit}") == number * parse_size(f"1{unit}")


@given(st.floats(1, 1e18))
def test_a_printed_rate_reads_back_as_the_same_rate(rate: float) -> None:
    assert parse_rate(format_rate(rate)) == pytest.approx(rate, rel=PRINTED)


@given(st.floats(1e-9, 1e8))
def test_a_printed_duration_reads_back_as_the_same_duration(seconds: float) -> None:
    # The second of two parts is rounded: half a unit of it, relative to the whole, at worst half an hour in a day.
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, rel=0.021)


@given(st.text(max_size=12))
def test_any_text_is_either_read_or_refused(text: str) -> None:
    for parse in (parse_size, parse_rate, parse_duration):
        try:
            value = parse(text)
        except ConfigError:
            continue
        assert value >= 0
        assert math.isfinite(value)
