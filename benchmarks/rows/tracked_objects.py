"""Does a call cost the same with a million objects that tasks have written as with a thousand?

Objects become data when tasks write them; collections of ten thousand make many at once. Then calls are timed in CPU
time of the calling thread: what others on the machine do must not count, nor what the tasks themselves take. Three
kinds of call: one that reads a known object, one that updates it, and one that updates an object made for this call
only, which has to be tracked and forgotten again. Half of the objects take weak references (instances), half do not
(lists). The mean of a few thousand calls counts, so rounds of the garbage collector are in it.
"""

import gc
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.row import Budget, Measurement, Row
from benchmarks.workload import emit

FIGURE = "call_cost_million_over_thousand"
BATCH = 10_000
CALLS = 2_000
CHUNKS = 5

ROWS = [
    Row(
        "call, 10⁶ tracked objects over 10³",
        "×",
        Measurement(FIGURE, "less", __name__, rounds=1, together=True),
        Budget(1.5),
    ),
]


class Thing:
    """An object that takes weak references."""


def main() -> None:
    import penstock

    @penstock.task(objects=penstock.COLLECTION_INOUT)
    def take(objects: list[Any]) -> None:
        """Updates all, and changes nothing."""

    @penstock.task
    def read(thing: Any) -> None:
        """Reads one."""

    @penstock.task(thing=penstock.INOUT)
    def update(thing: Any) -> None:
        """Updates one."""

    many = 10**5 if "--quick" in sys.argv else 10**6
    figures: dict[str, float] = {}
    with penstock.Runtime(cpus=2) as runtime:
        objects: list[Any] = []
        kinds: dict[str, Callable[[int], Any]] = {
            "read": lambda i: read(objects[i % 1000]),
            "update": lambda i: update(objects[i % 1000]),
            "temporary": lambda i: update([] if i % 2 else Thing()),
        }
        for count in (1000, many):
            while len(objects) < count:
                batch: list[Any] = [[] if i % 2 else Thing() for i in range(min(BATCH, count - len(objects)))]
                take(batch)
                objects += batch
                penstock.barrier()
            if len(runtime.identity) < count:
                raise AssertionError(f"only {len(runtime.identity)} objects are tracked")
            gc.collect()
            for name, call in kinds.items():
                mean, longest = _seconds(call, penstock.barrier)
                figures[f"{name}_{count}_us"] = mean * 1e6
                figures[f"{name}_{count}_longest_ms"] = longest * 1e3
    ratios = [figures[f"{name}_{many}_us"] / figures[f"{name}_1000_us"] for name in kinds]
    emit({FIGURE: max(ratios), **figures})


def _seconds(call: Callable[[int], Any], finish: Callable[[], None]) -> tuple[float, float]:
    """CPU time of one call, the median of several means; and the longest of all."""
    means, longest = [], 0.0
    for chunk in range(CHUNKS + 1):
        times = []
        for i in range(CALLS):
            began = time.thread_time()
            call(i)
            times.append(time.thread_time() - began)
        finish()
        if chunk:  # the first one warms up
            means.append(statistics.fmean(times))
            longest = max(longest, *times)
    return statistics.median(means), longest


if __name__ == "__main__":
    main()
