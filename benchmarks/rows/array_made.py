"""A 1 GB array made by a task and read by twenty tasks, in units of one memory copy.

The time the task spends filling the array is its own work, measured inside it and taken off; what remains is what
handing the array over costs. The array is made by NumPy and in the store, where it takes longer to make: how many times
sooner all is done then, making included, is the second figure. As for the copy, the median of three counts: memory that
has been free for a while may be the host's again, and is then slow at its first touch.
"""

import statistics
import sys
import time
from typing import Any

import numpy

from benchmarks.row import Budget, Measurement, Row
from benchmarks.system import new_array, one_copy_seconds
from benchmarks.workload import READERS, check_part_sums, emit

FIGURE = "array_made_copies"
BUILT = "array_built_speedup"
TURNS = 3

ROWS = [
    Row(
        "1 GB array made by a task, 20 readers",
        "copies",
        Measurement(FIGURE, "less", __name__, together=True),
        Budget(1.2),
    ),
    Row(
        "the same, penstock.empty against numpy.empty",
        "×",
        Measurement(BUILT, "more", __name__, together=True),
        Budget(1.5),
    ),
]


def main() -> None:
    import penstock
    from benchmarks.ours import part_sum

    @penstock.task(returns=2)
    def make(length: int) -> tuple[Any, float]:
        began = time.perf_counter()
        array = numpy.ones(length)
        return array, time.perf_counter() - began

    @penstock.task(returns=2)
    def build(length: int) -> tuple[Any, float]:
        began = time.perf_counter()
        array = penstock.empty(length)
        array[:] = 1.0
        return array, time.perf_counter() - began

    def make_and_read(length: int, make: Any) -> tuple[float, float]:
        began = time.perf_counter()
        array, making = make(length)  # a future per returned value
        readers = [part_sum(array, i) for i in range(READERS)]
        sums = [reader.result() for reader in readers]
        seconds = time.perf_counter() - began
        check_part_sums(sums, length)
        return seconds, seconds - float(making.result())

    array = new_array(quick="--quick" in sys.argv)
    copy = one_copy_seconds(array)
    length = len(array)
    del array
    with penstock.Runtime(cpus=2):
        make_and_read(READERS * 50_000, make)
        make_and_read(READERS * 50_000, build)
        all_made = [make_and_read(length, make) for _ in range(TURNS)]
        all_built = [make_and_read(length, build) for _ in range(TURNS)]
    made, handing_over = (statistics.median(times) for times in zip(*all_made, strict=True))
    built, _ = (statistics.median(times) for times in zip(*all_built, strict=True))
    emit(
        {
            FIGURE: handing_over / copy,
            BUILT: made / built,
            "made_s": made,
            "built_s": built,
            "handing_over_s": handing_over,
            "one_copy_s": copy,
        }
    )


if __name__ == "__main__":
    main()
