"""What need not be copied or unpickled again: an array that tasks pass on, and a dict that many tasks read.

The array goes through twenty tasks, one after the other, each of which returns what it was given: in units of one
memory copy, all twenty together. The dict is read by fifty tasks of one worker, without a read cache and with one
that has room for it; the figure is how many times sooner they are done with it.
"""

import sys
import time
from typing import Any

from benchmarks.row import Budget, Measurement, Row
from benchmarks.system import new_array, one_copy_seconds
from benchmarks.workload import emit

PASSED = "array_passed_on_copies"
CACHED = "read_cache_speedup"
TASKS = 20
READERS = 50

ROWS = [
    Row(
        f"1 GB array passed on by {TASKS} tasks",
        "copies",
        Measurement(PASSED, "less", __name__, together=True),
        Budget(0.2),
    ),
    Row(
        f"a dict read by {READERS} tasks: read cache against none",
        "×",
        Measurement(CACHED, "more", __name__, together=True),
        Budget(10),
    ),
]


def main() -> None:
    import penstock

    @penstock.task
    def same(array: Any) -> Any:
        return array

    @penstock.task
    def make(entries: int) -> Any:
        return {f"key {number}": number for number in range(entries)}

    @penstock.task
    def entry(table: Any, number: int) -> int:
        return int(table[f"key {number}"])

    def pass_on(array: Any) -> float:
        current = same(array)
        penstock.wait([current])
        began = time.perf_counter()
        for _ in range(TASKS):
            current = same(current)
        penstock.wait([current])
        return time.perf_counter() - began

    def read(entries: int) -> float:
        table = make(entries)
        penstock.wait([table])
        began = time.perf_counter()
        found = [entry(table, number) for number in range(READERS)]
        assert penstock.wait_on(found) == list(range(READERS))
        return time.perf_counter() - began

    quick = "--quick" in sys.argv
    array = new_array(quick=quick)
    copy = one_copy_seconds(array)
    with penstock.Runtime(cpus=2):
        passing = pass_on(penstock.share(array))
    entries = 20_000 if quick else 100_000
    with penstock.Runtime(cpus=1):
        plain = read(entries)
    with penstock.Runtime(cpus=1, read_cache="1GB"):
        cached = read(entries)
    emit(
        {
            PASSED: passing / copy,
            CACHED: plain / cached,
            "passing_on_s": passing,
            "one_copy_s": copy,
            "reading_s": plain,
            "reading_cached_s": cached,
        }
    )


if __name__ == "__main__":
    main()
