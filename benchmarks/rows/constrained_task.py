"""What a storage constraint costs the scheduler: empty I/O tasks that reserve bandwidth against empty plain tasks.

Both kinds run in one process, in turns, with as many workers; no task touches a file.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from benchmarks.row import Budget, Measurement, Row
from benchmarks.workload import emit

FIGURE = "constrained_over_plain"
TURNS = 3
WORKERS = 2

ROWS = [
    Row("task with storage_bw over plain", "×", Measurement(FIGURE, "less", __name__), Budget(1.5)),
]


def main() -> None:
    import penstock
    from benchmarks.ours import nothing

    count = 1_000 if "--quick" in sys.argv else 10_000

    @penstock.constraint(storage_bw=1)
    @penstock.io
    @penstock.task(returns=1)
    def constrained() -> None:
        """An empty task that reserves bandwidth."""

    with tempfile.TemporaryDirectory() as mount:
        layer = {"name": "disk", "mount": mount, "bandwidth": "1GB/s"}
        with penstock.Runtime(cpus=WORKERS, io_executors=WORKERS, storage=[layer], tuning="off"):

            def seconds(kind: Callable[[], Any], number: int) -> float:
                began = time.perf_counter()
                for future in [kind() for _ in range(number)]:
                    future.result()
                return time.perf_counter() - began

            for kind in (nothing, constrained):
                seconds(kind, count // 10)
            turns = [(seconds(nothing, count), seconds(constrained, count)) for _ in range(TURNS)]
    plain, limited = (statistics.median(times) / count * 1e6 for times in zip(*turns, strict=True))
    emit({FIGURE: limited / plain, "plain_us": plain, "constrained_us": limited})


if __name__ == "__main__":
    main()
