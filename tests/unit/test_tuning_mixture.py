"""Several functions on one device: what is measured tells how many are best, not which of them happened to run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.tuning.mixture import Mixture
from penstock.tuning.window import Window

MB = 1e6


def write(mixture: Mixture, running: int, times: int = 1, rate: float = 40 * MB) -> None:
    """Files of 2 MB, of attempts that share the device."""
    for _ in range(times):
        mixture.ended("write", 2 * MB, 2 * MB * running / rate, running)


def compute_and_write(mixture: Mixture, running: int, times: int = 1, factor: float = 4.0) -> None:
    """They take so many times as long for their bytes, however many run."""
    for _ in range(times):
        mixture.ended("compute", 1 * MB, factor * MB * running / (40 * MB), running)


def test_one_function_has_the_weight_one() -> None:
    mixture = Mixture()
    write(mixture, 4, 10)
    assert mixture.weight("write") == 1.0
    assert not mixture.is_mixed
    assert not mixture.is_uneven
    assert mixture.bytes_of_worth == 1.0


def test_functions_that_are_alike_are_not_told_apart() -> None:
    mixture = Mixture()
    write(mixture, 4, 5)
    compute_and_write(mixture, 4, 5, factor=1.1)
    assert mixture.is_mixed
    assert not mixture.is_uneven


def test_bytes_that_take_longer_are_worth_more() -> None:
    mixture = Mixture()
    write(mixture, 4, 5)
    compute_and_write(mixture, 4, 5)
    assert mixture.is_uneven
    assert mixture.weight("compute") == pytest.approx(4.0)
    assert mixture.bytes_of_worth == pytest.approx((5 * 2 + 5 * 1) / (5 * 2 + 5 * 4))


@given(numbers=st.lists(st.integers(1, 16), min_size=1, max_size=30), first=st.integers(1, 16))
def test_weights_do_not_hang_on_how_many_ran_when(numbers: list[int], first: int) -> None:
    """The device is slower the more run; as long as both functions ran among as many, that changes no weight."""
    mixture = Mixture()
    for running in (first, *numbers):
        rate = 40 * MB / (1 + 0.1 * running)
        mixture.ended("write", 2 * MB, 2 * MB * running / rate, running)
        mixture.ended("compute", 1 * MB, 3 * MB * running / rate, running)
    assert mixture.weight("compute") == pytest.approx(3.0)


def test_a_function_that_runs_where_no_other_did_is_taken_to_be_like_the_others_there() -> None:
    mixture = Mixture()
    write(mixture, 4, 5)
    compute_and_write(mixture, 16, 5)
    assert mixture.weight("compute") == pytest.approx(16.0)  # 4 for itself, and 4 since four times as many ran
    write(mixture, 16, 5)
    compute_and_write(mixture, 16, 1)
    assert mixture.weight("compute") == pytest.approx(4.0)


def window_of(limit: int, mixture: Mixture, writes: int, computes: int, rate: float) -> Window:
    """What ended while so many shared a device of that rate."""
    window = Window(limit, 0.0)
    for _ in range(writes):
        window.ended("write", 2 * MB, mixture.weight("write"), 2 * MB * limit / rate, limit)
    for _ in range(computes):
        window.ended("compute", 1 * MB, mixture.weight("compute"), 4 * MB * limit / rate, limit)
    return window


@pytest.mark.parametrize(("writes", "computes"), [(4, 4), (7, 1), (1, 7)])
def test_a_rate_does_not_hang_on_which_functions_ended(writes: int, computes: int) -> None:
    mixture = Mixture()
    write(mixture, 4, 10)
    compute_and_write(mixture, 4, 10)
    rates = []
    for limit, rate in ((4, 40 * MB), (8, 20 * MB)):
        ends = window_of(limit, mixture, writes, computes, rate).ends(mixture, 1.0)
        assert ends is not None
        rates.append(ends.rate)
    assert rates[0] / rates[1] == pytest.approx(2.0)


def test_a_function_with_long_attempts_is_waited_for() -> None:
    """Otherwise those that end soon would say how many are best."""
    mixture = Mixture()
    write(mixture, 4, 10)
    for _ in range(5):
        mixture.ended("long", 20 * MB, 10.0, 4)
    mixture.began("long")
    window = Window(4, 0.0)
    for _ in range(8):
        window.ended("write", 2 * MB, 1.0, 0.2, 4.0)
    assert window.ends(mixture, 2.0) is None
    window.ended("long", 20 * MB, mixture.weight("long"), 10.0, 4.0)
    assert window.ends(mixture, 2.0) is not None


def test_it_is_waited_for_no_longer_than_it_usually_takes_and_then_counts_as_slow() -> None:
    mixture = Mixture()
    write(mixture, 4, 10)
    for _ in range(5):
        mixture.ended("long", 20 * MB, 10.0, 4)
    window = Window(8, 0.0)
    for _ in range(8):
        window.ended("write", 2 * MB, 1.0, 0.2, 8.0)
    without = window.ends(mixture, 1.0)
    mixture.began("long")
    sooner, later = window.ends(mixture, 13.0), window.ends(mixture, 30.0)
    assert without is not None
    assert sooner is not None
    assert later is not None
    assert later.rate < sooner.rate < without.rate


def test_nothing_is_judged_while_a_function_runs_that_has_never_ended() -> None:
    mixture = Mixture()
    write(mixture, 4, 10)
    mixture.began("new")
    window = Window(4, 0.0)
    for _ in range(8):
        window.ended("write", 2 * MB, 1.0, 0.2, 4.0)
    assert mixture.is_mixed
    assert window.ends(mixture, 5.0) is None
    assert window.ends(mixture, 50.0) is not None
    mixture.left("new")
    assert window.ends(mixture, 5.0) is not None
