"""Virtual time goes forward only, and ties are broken in one way."""

from __future__ import annotations

import pytest

from penstock.errors import InternalError
from penstock.sim.clock import Clock


def test_items_come_by_time_then_priority_then_order() -> None:
    clock: Clock[str] = Clock()
    for time, item, priority in [(2.0, "last", 0), (1.0, "b", 0), (1.0, "c", 1), (1.0, "a", -1), (1.0, "b2", 0)]:
        clock.at(time, item, priority)
    found = []
    while len(clock):
        found.append((clock.pop(), clock.now))
    assert found == [("a", 1.0), ("b", 1.0), ("b2", 1.0), ("c", 1.0), ("last", 2.0)]


def test_items_that_cannot_be_compared_may_tie() -> None:
    clock: Clock[object] = Clock()
    first, second = object(), object()
    clock.at(0.0, first)
    clock.at(0.0, second)
    assert [clock.pop(), clock.pop()] == [first, second]


def test_the_next_time_is_known_before_it_comes() -> None:
    clock: Clock[str] = Clock()
    assert clock.next_time() is None
    clock.at(3.0, "x")
    assert clock.next_time() == 3.0
    assert clock.now == 0.0
    clock.advance(2.5)
    assert clock.now == 2.5
    assert clock.pop() == "x"


@pytest.mark.parametrize("time", [0.5, float("nan")])
def test_nothing_can_be_put_down_for_the_past(time: float) -> None:
    clock: Clock[str] = Clock()
    clock.advance(1.0)
    with pytest.raises(InternalError):
        clock.at(time, "too late")


def test_the_clock_passes_over_nothing_and_never_goes_back() -> None:
    clock: Clock[str] = Clock()
    clock.at(1.0, "x")
    with pytest.raises(InternalError):
        clock.advance(1.5)
    clock.advance(1.0)
    with pytest.raises(InternalError):
        clock.advance(0.5)
