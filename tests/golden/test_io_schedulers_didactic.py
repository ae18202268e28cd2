"""The published examples of I/O scheduling: four red and six blue tasks on one device; tasks that fit on three layers.

A device of bandwidth 100 holds two red tasks of 35, or four blue ones of 25; two red and one blue are 95.
"""

from __future__ import annotations

import pytest
from tests.unit.io_rig import Device, Node, Task, World, need

RED, BLUE = 0, 1
ARRIVAL = "RBRBRBRBBB"
SECONDS_OF_RED = 10.0


def story(
    scheduler: str, *, seconds_of_blue: float, red: float = 35, blue: float = 25, known: bool = True
) -> list[tuple[float, str]]:
    """When was what launched, as letters."""
    durations = {RED: SECONDS_OF_RED, BLUE: seconds_of_blue}
    device = Device("disk", 100.0, means=dict(durations) if known else {})
    world = World([Node("a", 0, [device])], scheduler)
    kinds = {"R": (need(red), RED), "B": (need(blue), BLUE)}
    world.add(*(Task(serial, *kinds[letter]) for serial, letter in enumerate(ARRIVAL)))
    assert len(world.ready) == 10
    return [(time, "".join(ARRIVAL[i] for i in launched)) for time, launched in world.run(durations)]


def test_priority_runs_red_two_and_two_then_blue_four_and_two() -> None:
    """As the figure shows it: the device is full with two red, or with four blue."""
    expected = [(0, "RR"), (10, "RR"), (20, "BBBB"), (24, "BB")]
    assert story("priority", red=50, seconds_of_blue=4) == expected


def test_priority_starts_no_blue_while_a_red_waits() -> None:
    """At 0 a blue would fit beside the two red, but a third red is before it; at 10 no red is left."""
    assert story("priority", seconds_of_blue=4) == [(0, "RR"), (10, "RRB"), (14, "B"), (18, "B"), (20, "BBB")]


def test_backfilling_lets_a_blue_slip_in_beside_two_red_when_it_ends_in_time() -> None:
    assert story("backfilling", seconds_of_blue=4) == [
        (0, "RRB"),
        (4, "B"),  # ends at 8, before the reds; at 8 the next would not
        (10, "RRB"),  # from here on nobody waits
        (14, "B"),
        (18, "B"),
        (20, "B"),
    ]


@pytest.mark.parametrize("seconds_of_blue", [10, 12])
def test_backfilling_holds_a_blue_back_that_would_not_end_in_time(seconds_of_blue: float) -> None:
    assert story("backfilling", seconds_of_blue=seconds_of_blue)[:2] == [(0, "RR"), (10, "RRB")]


def test_without_known_times_nothing_is_backfilled() -> None:
    assert story("backfilling", seconds_of_blue=4, known=False)[0] == (0, "RR")


def test_fcfs_takes_them_as_they_come() -> None:
    assert story("fcfs", seconds_of_blue=4)[0] == (0, "RBR")


@pytest.mark.parametrize("scheduler", ["fcfs", "priority", "backfilling"])
@pytest.mark.parametrize(
    ("megabytes", "nvram", "ssd", "pfs"), [(200, 30, 13, 4), (400, 15, 6, 2), (500, 12, 5, 1), (800, 7, 3, 1)]
)
def test_concurrency_on_three_layers(scheduler: str, megabytes: int, nvram: int, ssd: int, pfs: int) -> None:
    devices = [Device("nvram", 6026.0, 1_000_000), Device("ssd", 2743.0, 1_900_000), Device("pfs", 900.0)]
    world = World([Node("a", 0, devices)], scheduler)
    world.add(*(Task(serial, need(megabytes, megabytes)) for serial in range(100)))
    launched = world.round()
    assert launched == list(range(nvram + ssd + pfs))
    layers = [world.running[serial].device for serial in launched]
    assert layers == [devices[0]] * nvram + [devices[1]] * ssd + [devices[2]] * pfs
