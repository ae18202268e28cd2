"""Transfers over several devices at once end with the slowest, and may break off at any moment."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.sim.clock import Clock
from penstock.sim.devices import Device
from penstock.sim.transfers import Transfer, Transfers


class Bench:
    """Devices, and a clock that runs until nothing is left to happen."""

    def __init__(self) -> None:
        self.clock: Clock[Callable[[], None]] = Clock()
        self.transfers = Transfers(self.clock)
        self.disk: Device[Transfer] = Device("disk", 100.0)
        self.link: Device[Transfer] = Device("link", 50.0)
        self.ends: dict[str, float] = {}

    def send(self, name: str, size: float, *devices: Device[Transfer], latency: float = 0.0) -> Transfer:
        return self.transfers.start(devices, size, lambda: self.ends.update({name: self.clock.now}), latency)

    def run(self) -> dict[str, float]:
        self.transfers.plan()
        while len(self.clock):
            self.clock.pop()()
            self.transfers.plan()
        return self.ends


def test_the_slowest_device_decides() -> None:
    bench = Bench()
    bench.send("a", 100, bench.disk, bench.link)
    assert bench.run() == {"a": 2.0}
    assert bench.disk.served == bench.link.served == 100
    assert (bench.disk.busy, bench.link.busy) == (1.0, 2.0)


def test_a_device_named_twice_is_passed_once() -> None:
    bench = Bench()
    bench.send("a", 100, bench.disk, bench.disk)
    assert bench.run() == {"a": 1.0}
    assert bench.disk.served == 100


def test_without_devices_only_the_latency_counts() -> None:
    bench = Bench()
    bench.send("now", 100)
    bench.send("later", 100, latency=0.5)
    assert bench.run() == {"now": 0.0, "later": 0.5}


def test_each_device_shares_as_if_it_were_alone() -> None:
    bench = Bench()
    bench.send("both", 100, bench.disk, bench.link)
    bench.send("disk only", 100, bench.disk)
    # The disk serves both until 2 s although the link holds one of them up: that one is over there by then.
    assert bench.run() == {"both": 2.0, "disk only": 2.0}


@pytest.mark.parametrize(
    ("time", "disk", "link"), [(0.25, 0.0, 0.0), (0.75, 25.0, 12.5), (1.75, 100.0, 62.5), (9.0, 100.0, 100.0)]
)
def test_a_transfer_breaks_off_before_it_flows_while_it_does_or_not_at_all(
    time: float, disk: float, link: float
) -> None:
    bench = Bench()
    transfer = bench.send("a", 100, bench.disk, bench.link, latency=0.5)
    bench.clock.at(time, lambda: bench.transfers.cancel(transfer))
    bench.send("other", 10, bench.disk, latency=5.0)
    ends = bench.run()
    assert (ends.get("a"), ends["other"]) == (2.5 if time == 9.0 else None, pytest.approx(5.1))
    assert bench.disk.served == pytest.approx(disk + 10)
    assert bench.link.served == pytest.approx(link)
    assert not len(bench.disk) and not len(bench.link)


def test_all_who_wait_are_told_once() -> None:
    bench = Bench()
    told: list[str] = []
    transfer = bench.send("a", 100, bench.disk)
    transfer.waiting += [lambda: told.append("b"), lambda: told.append("c")]
    assert bench.run() == {"a": 1.0}
    assert told == ["b", "c"]
    assert transfer.waiting == []
