"""A million objects that live for one call each: does the program keep anything of them?

Tasks update lists, dicts, sets, bytearrays, arrays and instances, ten thousand to a call, and the program drops them at
once. Four of the six kinds take no weak references. Growth of the main program's peak resident memory counts, after as
many as a tenth of them; one round.
"""

import gc
import sys
from collections.abc import Callable
from typing import Any

from benchmarks.row import Budget, Measurement, Row
from benchmarks.workload import emit

FIGURE = "temporaries_growth_mb"
BATCH = 10_000

ROWS = [
    Row("growth over 10⁶ temporary objects", "MB", Measurement(FIGURE, "less", __name__, rounds=1), Budget(20)),
]


class Thing:
    """An object that takes weak references."""


def main() -> None:
    import numpy

    import penstock
    from benchmarks.memory import peak_bytes, reset_peak

    @penstock.task(objects=penstock.COLLECTION_INOUT)
    def take(objects: list[Any]) -> None:
        """Updates all, and changes nothing."""

    kinds: list[Callable[[], Any]] = [list, dict, set, lambda: bytearray(8), lambda: numpy.zeros(2), Thing]
    batches = 10 if "--quick" in sys.argv else 100
    with penstock.Runtime(cpus=2) as runtime:

        def drop(count: int) -> None:
            for _ in range(count):
                take([kinds[i % len(kinds)]() for i in range(BATCH)])
            penstock.barrier()

        drop(10)
        gc.collect()
        before = reset_peak()
        drop(batches)
        grown = (peak_bytes() - before) / 1e6
        penstock.barrier()
        left = len(runtime.identity)
    if left > BATCH:
        raise AssertionError(f"{left} objects that nobody has are still tracked")
    emit({FIGURE: grown, "tracked_at_the_end": left})


if __name__ == "__main__":
    main()
