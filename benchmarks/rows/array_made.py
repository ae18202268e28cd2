"""A 1 GB array made by a task and read by twenty tasks, in units of one memory copy.

The time the task spends filling the array is its own work, measured inside it and taken off; what remains is what
handing the array over costs.
"""

import sys
import time
from typing import Any

import numpy

from benchmarks.row import Budget, Measurement, Row
from benchmarks.system import new_array, one_copy_seconds
from benchmarks.workload import READERS, check_part_sums, emit

FIGURE = "array_made_copies"

ROWS = [Row("1 GB array made by a task, 20 readers", "copies", Measurement(FIGURE, "less", __name__), Budget(1.2))]


def main() -> None:
    import penstock
    from benchmarks.ours import part_sum

    @penstock.task(returns=2)
    def make(length: int) -> tuple[Any, float]:
        began = time.perf_counter()
        array = numpy.ones(length)
        return array, time.perf_counter() - began

    def make_and_read(length: int) -> float:
        began = time.perf_counter()
        made: Any = make(length)  # a future per returned value
        array, making = made
        readers = [part_sum(array, i) for i in range(READERS)]
        sums = [reader.result() for reader in readers]
        seconds = time.perf_counter() - began
        check_part_sums(sums, length)
        return seconds - float(making.result())

    array = new_array(quick="--quick" in sys.argv)
    copy = one_copy_seconds(array)
    length = len(array)
    del array
    with penstock.Runtime(cpus=2):
        make_and_read(READERS * 50_000)
        seconds = make_and_read(length)
    emit({FIGURE: seconds / copy, "handing_over_s": seconds, "one_copy_s": copy})


if __name__ == "__main__":
    main()
