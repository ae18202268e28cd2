"""The emulated device: the node-local SSD of MareNostrum 4 in behaviour, scaled to a machine with two cores.

Published of that SSD: it writes 450 MB/s; nodes had 48 cores and 225 I/O executors (500 for I/O tasks without
constraints); checkpoints of one size ran best with a constraint of 8 MB/s, so with 56 of them at a time, and without
constraints worse than not I/O-aware at all. Ours takes 64 MB/s and 32 executors (64 without constraints): executors
and streams are scaled by 1/7, bandwidth by 1/7, and so the constraint of 8 MB/s keeps its value and admits 8 at a time.

How the bandwidth depends on the number of streams was not published as numbers. `CURVE` is ours, made to have what the
results show: few streams leave bandwidth unused, 8 take all of it, and with more it falls, to two fifths with all
executors writing. One thing does not scale: two computing units write two streams at a time, where 48 units of one
node came close to the best number. The I/O-unaware programs here lose time to that as well as to the lack of overlap.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MB = 10**6
BANDWIDTH = 64  # MB/s
EXECUTORS = 32
EXECUTORS_WITHOUT_CONSTRAINTS = 64
#: values of a static constraint: 32, 16, 8, 4, 2 and 1 tasks at a time
SWEEP = (2, 4, 8, 16, 32, 64)
BOUNDED = f"auto({SWEEP[0]},{SWEEP[-1]},2)"
#: streams, and MB/s of all of them together
CURVE = ((1, 22), (2, 36), (4, 54), (8, 64), (16, 46), (32, 26), (64, 16))


def layer(mount: Path) -> dict[str, Any]:
    """The device as a storage layer, its files below `mount`."""
    curve = [[streams, f"{rate}MB/s"] for streams, rate in CURVE]
    return {"name": "ssd", "mount": str(mount), "bandwidth": f"{BANDWIDTH}MB/s", "capacity": "8GB", "curve": curve}


@contextmanager
def mounted() -> Iterator[Path]:
    """A directory for the device, in memory if possible: the real storage must be faster than what it emulates."""
    memory = Path("/dev/shm")
    parent = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="bench-of-penstock-", dir=parent) as directory:
        yield Path(directory)
