"""Nodes' links to each other, and the objects that travel over them.

An object that a task made lies on the node of that task. A consumer on another node fetches it over the sender's link
out and its own link in; from then on it lies on both. Consumers that want it at the same time share one transfer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import isfinite

from msgspec import Struct

from penstock.errors import ConfigError
from penstock.model.data import Piece, SegmentId, Value
from penstock.sim.devices import Device
from penstock.sim.transfers import Transfer, TransferDevice, Transfers

__all__ = ["Links", "Network", "Objects"]

_NOTHING = Value(b"")


class Network(Struct, frozen=True):
    """What connects the nodes: every node has a link of its own, as fast in one direction as in the other."""

    #: bytes per second of a link, each way
    bandwidth: float
    #: seconds before the first byte arrives
    latency: float = 0.0

    def __post_init__(self) -> None:
        if not (self.bandwidth > 0 and isfinite(self.bandwidth)):
            raise ConfigError(f"network: a bandwidth of {self.bandwidth} bytes/s; it must be finite and above zero")
        if not (self.latency >= 0 and isfinite(self.latency)):
            raise ConfigError(f"network: a latency of {self.latency} s; it must be finite, zero or above")


class Links:
    """The two directions of each node's link; none where transfers are free."""

    def __init__(self, network: Network | None) -> None:
        self._network = network
        #: by node and direction, as outcomes show them
        self.devices: dict[str, TransferDevice] = {}
        self.latency = 0.0 if network is None else network.latency

    def join(self, node: str) -> None:
        """Connect a node; one that was here before gets its old link."""
        if self._network is not None:
            for direction in ("in", "out"):
                name = f"{node}:{direction}"
                self.devices.setdefault(name, Device(name, self._network.bandwidth))

    def between(self, source: str, target: str) -> tuple[TransferDevice, ...]:
        """What bytes pass on their way to another node; from nowhere, they only arrive."""
        if self._network is None or source == target:
            return ()
        arrival = self.devices[f"{target}:in"]
        return (self.devices[f"{source}:out"], arrival) if source else (arrival,)


class Objects:
    """Where the objects are that tasks made, while anybody can read them."""

    def __init__(self, links: Links, transfers: Transfers) -> None:
        self._links = links
        self._transfers = transfers
        self._made = 0
        #: nodes that hold each object, the oldest copy first
        self._holders: dict[SegmentId, dict[str, None]] = {}
        self._arriving: dict[tuple[SegmentId, str], Transfer] = {}

    def make(self, node: str, size: int) -> Value:
        """A task on a node made an object."""
        if not size:
            return _NOTHING
        self._made += 1
        self._holders[self._made] = {node: None}
        return Value(Piece(self._made, False, 0, size))

    def fetch(self, value: Value, node: str, arrived: Callable[[], None]) -> int:
        """Bring an object to a node; how many transfers there are to wait for, each of which calls ``arrived``."""
        if not self._links.devices:
            return 0
        transfers = 0
        for piece in value.pieces():
            holders = self._holders.get(piece.segment)
            # What tasks did not make came with the program, and is wherever it is needed.
            if holders is not None and node not in holders:
                self._arrival(piece, holders, node).waiting.append(arrived)
                transfers += 1
        return transfers

    def _arrival(self, piece: Piece, holders: dict[str, None], node: str) -> Transfer:
        """The transfer that brings an object, from whoever has it and sends the least."""
        key = (piece.segment, node)
        transfer = self._arriving.get(key)
        if transfer is None:
            links = self._links
            source = min(holders, key=lambda name: len(links.devices[f"{name}:out"])) if holders else ""
            devices = links.between(source, node)
            transfer = self._transfers.start(devices, piece.size, partial(self._arrived, key), links.latency)
            self._arriving[key] = transfer
        return transfer

    def _arrived(self, key: tuple[SegmentId, str]) -> None:
        segment, node = key
        del self._arriving[key]
        if segment in self._holders:
            self._holders[segment][node] = None

    def free(self, segment: SegmentId) -> None:
        """Nobody can read an object any more."""
        self._holders.pop(segment, None)

    def lose(self, node: str) -> None:
        """A node is gone. What lay only there survives, in a store whose links are not modelled."""
        for holders in self._holders.values():
            holders.pop(node, None)
        for key in [key for key in self._arriving if key[1] == node]:
            self._transfers.cancel(self._arriving.pop(key))
