"""Streams on a simulated device share its bandwidth fairly, whenever they begin, end or break off."""

from __future__ import annotations

from random import Random

import pytest

from penstock.errors import InternalError
from penstock.sim.devices import Device


def device(
    bandwidth: float = 100.0, *, curve: tuple[tuple[int, float], ...] = (), per_stream: float = 0
) -> Device[str]:
    return Device("disk", bandwidth, curve, per_stream)


def ends(disk: Device[str]) -> dict[str, float]:
    """Let all streams end; when each of them did."""
    found: dict[str, float] = {}
    while (time := disk.next_completion()) is not None:
        for stream in disk.complete(time):
            found[stream] = time
    return found


def test_a_stream_alone_has_all_the_bandwidth() -> None:
    disk = device()
    disk.start(1.0, "a", 250)
    assert ends(disk) == {"a": 3.5}
    assert (disk.served, disk.busy) == (250, 2.5)


def test_two_streams_share_and_the_longer_one_has_the_rest_for_itself() -> None:
    disk = device()
    disk.start(0.0, "long", 300)
    disk.start(0.0, "short", 100)
    assert ends(disk) == {"short": 2.0, "long": 4.0}


def test_a_late_stream_slows_the_first_from_then_on() -> None:
    disk = device()
    disk.start(0.0, "a", 200)
    disk.start(1.0, "b", 100)
    assert ends(disk) == {"a": 3.0, "b": 3.0}


def test_a_stream_that_breaks_off_leaves_its_share_and_counts_what_it_moved() -> None:
    disk = device()
    disk.start(0.0, "a", 200)
    disk.start(0.0, "b", 200)
    disk.cancel(2.0, "a")
    assert len(disk) == 1
    assert disk.served == 100
    assert ends(disk) == {"b": 3.0}
    assert disk.served == 300


def test_a_stream_may_begin_again_after_it_broke_off() -> None:
    disk = device()
    disk.start(0.0, "other", 400)
    disk.start(0.0, "a", 300)
    disk.cancel(0.0, "a")
    disk.start(0.0, "a", 100)
    assert ends(disk) == {"a": 2.0, "other": 5.0}


def test_a_stream_cannot_begin_twice() -> None:
    disk = device()
    disk.start(0.0, "a", 1)
    with pytest.raises(InternalError, match="began twice"):
        disk.start(0.0, "a", 1)


def test_time_without_streams_is_not_busy() -> None:
    disk = device()
    disk.start(0.0, "a", 100)
    assert ends(disk) == {"a": 1.0}
    disk.start(5.0, "b", 100)
    assert ends(disk) == {"b": 6.0}
    assert disk.busy == 2.0


def test_a_curve_says_what_many_streams_get_together() -> None:
    disk = device(curve=((1, 100.0), (3, 50.0)))
    assert [disk.rate(n) for n in (1, 2, 3, 9)] == [100, 75, 50, 50]
    for stream in "abc":
        disk.start(0.0, stream, 50)
    assert ends(disk) == dict.fromkeys("abc", 3.0)


def test_streams_that_are_slow_by_themselves_do_not_fill_a_fast_device() -> None:
    disk = device(100, per_stream=40)
    assert [disk.rate(n) for n in (1, 2, 3)] == [40, 80, 100]


def test_the_end_that_was_foretold_comes_even_when_rounding_is_against_it() -> None:
    chance = Random(7)
    disk = device(1e9 / 3)
    now, started, ended = 0.0, 0, 0
    while ended < 2000:
        due = disk.next_completion()
        if started < 2000 and (due is None or chance.random() < 0.6):
            now = now + chance.random() * (0.1 if due is None else due - now)
            disk.start(now, str(started), chance.uniform(1, 1e9))
            started += 1
        else:
            assert due is not None and due >= now
            now = due
            found = disk.complete(now)
            assert found
            ended += len(found)
    assert len(disk) == 0
    assert disk.served == pytest.approx(disk.busy * 1e9 / 3)


def test_a_stream_too_short_for_the_clock_ends_all_the_same() -> None:
    disk = device(1e9)
    disk.start(1e9, "a", 1)
    assert disk.next_completion() == 1e9
    assert disk.complete(1e9) == ["a"]


def test_a_device_that_has_served_much_is_exact_again_after_a_rest() -> None:
    disk = device(curve=((1, 1e17), (2, 2.0)))
    disk.start(0.0, "much", 1e17)
    assert ends(disk) == {"much": 1.0}
    disk.start(2.0, "a", 1)
    disk.start(2.0, "b", 1)
    assert ends(disk) == {"a": 3.0, "b": 3.0}
