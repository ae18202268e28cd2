"""Three emulated layers in the proportions of a node of CTE-Power: NVRAM, SSD and parallel file system (PFS).

Published of it: 6026, 2743 and 900 MB/s when writing, 1 TB of NVRAM and 1.9 TB of SSD to fill. Bandwidth is scaled by
1/100; a second is scaled to 1/4, so sizes are scaled by 1/400. How many streams it takes to reach the bandwidth was not
published. Ours is what such devices do: a stream of the NVRAM gets at most 1500 MB/s, of the SSD 914, of the PFS 300,
and more streams than fill a layer cost nothing. So a large file on the PFS takes long, even if nobody else writes.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

MB = 10**6
#: seconds here for one second there
SECOND = 0.25
#: bytes per second here for one MB/s there
RATE = MB / 100
#: bytes here for one MB there
SIZE = RATE * SECOND
#: enough for what the layers admit at a time of the programs measured here
EXECUTORS = 24


@dataclass(frozen=True)
class Device:
    name: str
    #: MB/s there, of all streams and of one
    bandwidth: float
    stream: float
    #: times the capacity of the first layer; 0 is without limit
    capacity: float


DEVICES = (Device("nvram", 6026, 1500, 1), Device("ssd", 2743, 914, 1.9), Device("pfs", 900, 300, 0))


def layers(root: Path, nvram: float) -> list[dict[str, Any]]:
    """The layers, their mounts below `root`, with room for `nvram` MB there on the fastest."""
    return [_layer(device, root, nvram) for device in DEVICES]


def _layer(device: Device, root: Path, nvram: float) -> dict[str, Any]:
    mount = root / device.name
    mount.mkdir()
    streams = range(1, ceil(device.bandwidth / device.stream) + 1)
    curve = [[count, f"{min(count * device.stream, device.bandwidth) * RATE:.0f}B/s"] for count in streams]
    layer: dict[str, Any] = {"name": device.name, "mount": str(mount), "curve": curve}
    layer["bandwidth"] = f"{device.bandwidth * RATE:.0f}B/s"
    if device.capacity:
        layer["capacity"] = f"{device.capacity * nvram * SIZE:.0f}B"
    return layer


@contextmanager
def mounted() -> Iterator[Path]:
    """A directory for the devices, in memory if possible: the real storage must be faster than what it emulates."""
    memory = Path("/dev/shm")
    parent = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="bench-of-penstock-", dir=parent) as directory:
        yield Path(directory)
