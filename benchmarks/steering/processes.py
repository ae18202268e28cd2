"""The scenarios with real processes on an emulated device, and files on the disk that is there."""

import time
from pathlib import Path
from typing import Any

from benchmarks.steering.scenarios import EXECUTORS, MB, PEAK, File, Scenario
from benchmarks.storage.device import mounted
from benchmarks.storage.ways import declare_writer
from benchmarks.storage.work import write


def one(path: str, size: int, seconds: float) -> None:
    """What takes time before it is written waits: computing would be limited by this machine's processors."""
    time.sleep(seconds)
    write(path, size)


def another(path: str, size: int, seconds: float) -> None:
    one(path, size, seconds)


def on_device(scenario: Scenario, tasks: int, way: str, registry: str = "off") -> float:
    """Seconds that a scenario takes that has no noise, no strangers and at most two functions, none of which reads."""
    with mounted() as mount:
        curve = [[streams, f"{rate / MB:g}MB/s"] for streams, rate in scenario.curve]
        return seconds(mount, scenario.files(tasks, seed=0), way, registry, curve=curve)


def seconds(mount: Path, files: list[File], way: str, registry: str = "off", **described: Any) -> float:
    """Seconds from the first call until files are on a layer; ``registry`` keeps what is learned."""
    import penstock

    layer = {"name": "disk", "mount": str(mount), "bandwidth": f"{PEAK / MB:g}MB/s", "capacity": "8GB", **described}
    writers = {"write": declare_writer(way, one), "other": declare_writer(way, another)}
    with penstock.Runtime(cpus=2, io_executors=EXECUTORS, storage=[layer], tuning=registry):
        began = time.perf_counter()
        for number, file in enumerate(files):
            writers[file.name](str(mount / str(number)), file.size, file.seconds)
        penstock.barrier()
        return time.perf_counter() - began
