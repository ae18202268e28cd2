"""Bytes on their way: over one device, or over several at once, such as from a disk through two nodes' links.

A transfer over several devices is a stream on each of them and is over when the slowest has served it. Each device
shares its bandwidth among its streams as if it were alone, so a stream that another device holds up still counts here
for as long as its own bytes last: close to max-min fairness, for the cost of a heap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from penstock.sim.clock import Clock
from penstock.sim.devices import Device

__all__ = ["Transfer", "TransferDevice", "Transfers"]


class Transfer:
    """What is under way; the stream that devices know."""

    __slots__ = ("devices", "pending", "waiting")

    def __init__(self, devices: tuple[TransferDevice, ...], arrived: Callable[[], None]) -> None:
        self.devices = devices
        #: devices that have not served it yet; 0 also before it starts and after it broke off
        self.pending = 0
        #: to be called when it is over
        self.waiting = [arrived]


TransferDevice = Device[Transfer]


class Transfers:
    """All transfers of a simulation."""

    def __init__(self, clock: Clock[Callable[[], None]]) -> None:
        self._clock = clock
        #: devices whose next completion is to be computed anew
        self._changed: dict[TransferDevice, None] = {}

    def start(
        self, devices: Iterable[TransferDevice], size: float, arrived: Callable[[], None], latency: float = 0.0
    ) -> Transfer:
        """Send bytes over devices, after some seconds on the way."""
        transfer = Transfer(tuple(dict.fromkeys(devices)), arrived)
        if latency:
            self._clock.at(self._clock.now + latency, partial(self._flow, transfer, size))
        else:
            self._flow(transfer, size)
        return transfer

    def _flow(self, transfer: Transfer, size: float) -> None:
        if not transfer.waiting:
            return  # it broke off before
        if not transfer.devices:
            _over(transfer)
            return
        transfer.pending = len(transfer.devices)
        for device in transfer.devices:
            device.start(self._clock.now, transfer, size)
            self._changed[device] = None

    def cancel(self, transfer: Transfer) -> None:
        """A transfer breaks off; nobody hears of it any more."""
        transfer.waiting = []
        if transfer.pending:
            transfer.pending = 0
            for device in transfer.devices:
                if transfer in device:
                    device.cancel(self._clock.now, transfer)
                    self._changed[device] = None

    def vary(self, device: TransferDevice, speed: float, strangers: int) -> None:
        """A device becomes slower or faster, or others begin or cease to use it."""
        device.vary(self._clock.now, speed, strangers)
        self._changed[device] = None

    def plan(self) -> None:
        """Note when the next stream of each device ends; to be called before time goes on."""
        if not self._changed:
            return
        for device in self._changed:
            time = device.next_completion()
            if time is not None:
                self._clock.at(max(time, self._clock.now), partial(self._due, device, device.revision))
        self._changed.clear()

    def _due(self, device: TransferDevice, revision: int) -> None:
        if device.revision == revision:
            self._changed[device] = None
            for transfer in device.complete(self._clock.now):
                transfer.pending -= 1
                if not transfer.pending:
                    _over(transfer)


def _over(transfer: Transfer) -> None:
    waiting, transfer.waiting = transfer.waiting, []
    for arrived in waiting:
        arrived()
