"""Results of a middle size, byte strings and arrays: how many times as fast they come as from a process pool.

Both have two workers and take turns in one process; the median of the turns counts.
"""

import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from benchmarks.row import Budget, Measurement, Row
from benchmarks.workload import emit

SIZES = {"100 kB": 100_000, "1 MB": 1_000_000, "10 MB": 10_000_000}
KINDS = {"byte string": "bytes", "array": "array"}
#: bytes of all results of a turn
VOLUME = 100_000_000
TURNS = 5


def _figure(kind: str, size: str) -> str:
    return f"{KINDS[kind]}_{size.replace(' ', '_')}_over_pool"


ROWS = [
    Row(
        f"{kind} of {size} as a result: against a process pool",
        "×",
        Measurement(_figure(kind, size), "more", __name__, rounds=1, together=True),
        Budget(1.0),
    )
    for kind in KINDS
    for size in SIZES
]


def make_bytes(size: int) -> bytes:
    return bytes(size)


def make_array(size: int) -> Any:
    import numpy

    return numpy.ones(size // 8)


def main() -> None:
    import penstock

    quick = "--quick" in sys.argv
    figures: dict[str, float] = {}
    with penstock.Runtime(cpus=2), ProcessPoolExecutor(2) as pool:
        for kind, make in (("byte string", make_bytes), ("array", make_array)):
            task = penstock.task(returns=1)(make)
            for name, size in SIZES.items():
                count = VOLUME // size // (10 if quick else 1)
                turns = 1 if quick else TURNS
                _seconds(lambda size, call=task: call(size), size, 4)
                _seconds(lambda size, call=make: pool.submit(call, size), size, 4)
                ratios = []
                for _ in range(turns):
                    ours = _seconds(lambda size, call=task: call(size), size, count)
                    theirs = _seconds(lambda size, call=make: pool.submit(call, size), size, count)
                    ratios.append(theirs / ours)
                figures[_figure(kind, name)] = statistics.median(ratios)
    emit(figures)


def _seconds(call: Callable[[int], Any], size: int, count: int) -> float:
    """From the first call until the last result was looked at; all are held until then."""
    began = time.perf_counter()
    futures = [call(size) for _ in range(count)]
    results = [future.result() for future in futures]
    seconds = time.perf_counter() - began
    assert len(results[-1]) == (size if isinstance(results[-1], bytes) else size // 8)
    return seconds


if __name__ == "__main__":
    main()
