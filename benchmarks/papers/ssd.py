"""The node-local SSD of MareNostrum 4: one curve and one cost of `fsync`, fitted once, used by all experiments on it.

Published: it writes 450 MB/s. Not published: what many writers get. The model has two parts. `CURVE` is the rate at
which writers together hand over data; it rises with them, because one alone leaves the device idle between requests.
Each file ends with an `fsync`, which commits what the other writers have under way too, so its cost grows with their
number. Together they give every size of file a best number of streams of its own, as was published. A curve alone
cannot: times are then proportional to the size, and all sizes prefer the same constraint.

Fitted to: which constraint is learned for files of 162, 290, 330, 596 and 615 MB, how many epochs an unbounded search
has for 109 and 290 MB, and that no file is written faster than 450 MB/s (615 MB by 112 streams is).
"""

from __future__ import annotations

from penstock.model.resources import StorageLayer
from penstock.sim.devices import Device
from penstock.sim.transfers import Transfer
from penstock.storage.curves import interpolate

__all__ = ["BANDWIDTH", "CURVE", "MB", "Ssd", "layer", "sync_cost", "throughput"]

MB = 10**6
#: MB/s, as published; what constraints are counted against
BANDWIDTH = 450
#: streams, and MB/s of all of them together while none of them is in `fsync`
CURVE = ((1, 14.6), (3, 44), (7, 102), (14, 204), (28, 352), (56, 541), (112, 885), (225, 1478), (500, 1478))
#: an `fsync` among n streams takes as long as writing ENTANGLEMENT · n ** GROWTH MB
ENTANGLEMENT = 1.63
GROWTH = 1.25


def layer() -> StorageLayer:
    """The SSD as the resource description has it."""
    return StorageLayer("ssd", "/ssd", float(BANDWIDTH * MB), curve=tuple((n, float(rate * MB)) for n, rate in CURVE))


def sync_cost(streams: int) -> float:
    """MB that could be written in the time of one `fsync` among so many streams."""
    return ENTANGLEMENT * float(streams**GROWTH)


def throughput(streams: int, size: float) -> float:
    """MB/s that reach the device when so many streams write files of `size` MB at a time."""
    return interpolate(CURVE, streams) * size / (size + sync_cost(streams))


class Ssd(Device[Transfer]):
    """A device whose streams end with an `fsync`."""

    def __init__(self, name: str, layer: StorageLayer, per_stream: float) -> None:
        super().__init__(name, layer.bandwidth, layer.curve, per_stream)
        self._syncing: set[Transfer] = set()

    def complete(self, now: float) -> list[Transfer]:
        """Streams whose data are written begin their `fsync`; those that have had it are over."""
        ended = super().complete(now)
        streams = len(self) + len(ended)
        over = []
        for stream in ended:
            if stream in self._syncing:
                self._syncing.remove(stream)
                over.append(stream)
            else:
                self._syncing.add(stream)
                self.start(now, stream, sync_cost(streams) * MB)
        return over

    def cancel(self, now: float, stream: Transfer) -> None:
        """A stream breaks off."""
        super().cancel(now, stream)
        self._syncing.discard(stream)
