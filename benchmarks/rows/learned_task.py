"""What learning costs the processors: I/O tasks with a learned ``storage_bw`` against those with a static one.

Both kinds write small files into memory, in turns, in one process; what counts is the processors' time of the program
and its workers together. The static one admits as many as there are I/O executors, so neither waits.
"""

import statistics
import sys
from pathlib import Path
from typing import Any

import psutil

from benchmarks.row import Budget, Measurement, Row
from benchmarks.storage.device import mounted
from benchmarks.storage.ways import AUTO, declare_writer
from benchmarks.workload import emit

FIGURE = "learned_over_static_cpu"
SIZE = 10_000
TURNS = 5
EXECUTORS = 4

ROWS = [
    Row("learned storage_bw over static, processors' time", "×", Measurement(FIGURE, "less", __name__), Budget(1.1))
]


def write(path: str) -> None:
    Path(path).write_bytes(bytes(SIZE))


def main() -> None:
    import penstock

    count = 500 if "--quick" in sys.argv else 4_000
    static, learned = declare_writer("1", write), declare_writer(AUTO, write)
    with mounted() as mount:
        layer = {"name": "disk", "mount": str(mount), "bandwidth": "1GB/s"}
        with penstock.Runtime(cpus=2, io_executors=EXECUTORS, storage=[layer], tuning="off"):

            def taken(kind: Any, number: int) -> float:
                began = _processors()
                for index in range(number):
                    kind(str(mount / str(index)))
                penstock.barrier()
                return _processors() - began

            for kind in (static, learned):
                taken(kind, count // 4)
            turns = [(taken(static, count), taken(learned, count)) for _ in range(TURNS)]
    fixed, free = (statistics.median(times) / count * 1e6 for times in zip(*turns, strict=True))
    emit({FIGURE: free / fixed, "static_us": fixed, "learned_us": free})


def _processors() -> float:
    """Seconds of the processors that this program and its processes have had."""
    this = psutil.Process()
    times = [one.cpu_times() for one in (this, *this.children(recursive=True))]
    return sum(one.user + one.system for one in times)


if __name__ == "__main__":
    main()
