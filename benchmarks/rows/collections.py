"""What a collection costs: against pickling its elements, and against a parameter for each of them.

Submission and completion are told apart: a timer that stops when the call returns says nothing of the task. Against
pickling, CPU time of the calling thread counts; submission and completion of collections and of `*args` are times of
the clock, the best of several calls in turns. Elements are arrays of eight numbers by value, or results of other tasks.
"""

import pickle
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.row import Budget, Measurement, Row
from benchmarks.workload import emit

ELEMENTS = 10_000
SIZES = (10, 60, 1_000, 10_000)
CALLS = 9

PICKLING = "collection_over_pickling"
ROWS = [
    Row(
        "collection of 10,000 over pickling them",
        "×",
        Measurement(PICKLING, "less", __name__, rounds=1, together=True),
        Budget(3),
    ),
    Row(
        "the same, of lists of three",
        "×",
        Measurement(f"{PICKLING}_lists", "less", __name__, rounds=1, together=True),
        Budget(3),
    ),
    *(
        Row(
            f"collection over varargs, {size:,} results",
            "×",
            Measurement(f"collection_over_varargs_{size}", "less", __name__, rounds=1, together=True),
            Budget(1.2),
        )
        for size in SIZES
    ),
]


def main() -> None:
    import numpy as np

    import penstock

    @penstock.task(elements=penstock.COLLECTION_IN, returns=1)
    def collection(elements: Any) -> int:
        return len(elements)

    @penstock.task(returns=1)
    def varargs(*elements: Any) -> int:
        return len(elements)

    @penstock.task(elements=penstock.COLLECTION_INOUT, returns=1)
    def written(elements: Any) -> int:
        return len(elements)

    @penstock.task(returns=1)
    def make(i: int) -> Any:
        return np.arange(8.0) + i

    figures: dict[str, float] = {}
    calls = 3 if "--quick" in sys.argv else CALLS
    with penstock.Runtime(cpus=2):
        kinds = {
            "": [np.arange(8.0) + i for i in range(ELEMENTS)],
            "_lists": [[i, i + 1, str(i)] for i in range(ELEMENTS)],
        }
        for name, elements in kinds.items():
            figures |= _against_pickling(name, elements, collection, written, calls)
        results = [make(i) for i in range(max(SIZES))]
        penstock.barrier()
        for size in SIZES:
            figures |= _against_varargs(size, results[:size], collection, varargs, calls)
    emit(figures)


def _against_pickling(name: str, elements: list[Any], read: Any, write: Any, calls: int) -> dict[str, float]:
    def each() -> None:
        for element in elements:
            pickle.dumps(element, 5)

    once = _cpu(each, calls)
    by_value = _cpu(lambda: read(elements), calls)
    first = write(list(elements))  # from now on tasks have them
    first.result()
    return {
        f"{PICKLING}{name}": by_value / once,
        f"pickling{name}_ms": once * 1e3,
        f"collection{name}_ms": by_value * 1e3,
        f"collection_of_data{name}_ms": _cpu(lambda: read(elements), calls) * 1e3,
        f"collection_written{name}_ms": _cpu(lambda: write(elements), calls) * 1e3,
    }


def _against_varargs(size: int, results: list[Any], collection: Any, varargs: Any, calls: int) -> dict[str, float]:
    ways: dict[str, Callable[[], Any]] = {
        "collection": lambda: collection(results),
        "varargs": lambda: varargs(*results),
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(calls + 1):
        for name, call in ways.items():
            began = time.perf_counter()
            future = call()
            submitted = time.perf_counter() - began
            if future.result() != size:
                raise AssertionError("elements are missing")
            times[name].append((submitted, time.perf_counter() - began))
    figures: dict[str, float] = {}
    for name, pairs in times.items():
        submissions, completions = zip(*pairs[1:], strict=True)  # the first one warms up
        figures[f"{name}_{size}_submitted_ms"] = min(submissions) * 1e3
        figures[f"{name}_{size}_completed_ms"] = min(completions) * 1e3
    completed = [figures[f"{name}_{size}_completed_ms"] for name in ways]
    return {f"collection_over_varargs_{size}": completed[0] / completed[1], **figures}


def _cpu(call: Callable[[], Any], calls: int) -> float:
    """CPU seconds of this thread for one call."""
    times = []
    for _ in range(calls + 1):
        began = time.thread_time()
        future = call()
        times.append(time.thread_time() - began)
        if future is not None:
            future.result()
    return statistics.median(times[1:])


if __name__ == "__main__":
    main()
