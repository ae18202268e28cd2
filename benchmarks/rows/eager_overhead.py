"""What an early output costs: one producer of small numbers, 10 to 100,000 of them, early and at its end.

The figure is the time of the largest run over its outputs, from the call to the last value in the program.
"""

import sys
import time
from typing import Any

from benchmarks.row import Budget, Measurement, Row
from benchmarks.workload import emit

FIGURE = "early_output_us"
COUNTS = (10, 100, 1_000, 10_000, 100_000)
TURNS = 3

ROWS = [
    Row("early output, small value", "µs", Measurement(FIGURE, "less", __name__, rounds=1), Budget(60)),
]


def tasks(count: int) -> tuple[Any, Any]:
    """A producer that hands over its outputs one by one, and one that returns them."""
    import penstock

    @penstock.task(returns=count)
    def early() -> None:
        for number in range(count):
            penstock.ready_value(number, number)

    @penstock.task(returns=count)
    def at_the_end() -> list[int]:
        return list(range(count))

    return early, at_the_end


def seconds(producer: Any, count: int) -> float:
    """From the call to the last value."""
    import penstock

    began = time.perf_counter()
    values = penstock.wait_on(producer())
    took = time.perf_counter() - began
    assert values == list(range(count))
    return took


def main() -> None:
    import penstock

    counts = COUNTS[:-1] if "--quick" in sys.argv else COUNTS
    figures: dict[str, float] = {}
    with penstock.Runtime(cpus=2):
        for count in counts:
            early, at_the_end = tasks(count)
            seconds(early, count), seconds(at_the_end, count)
            for name, producer in (("early", early), ("at_end", at_the_end)):
                best = min(seconds(producer, count) for _ in range(TURNS))
                figures[f"{name}_{count}_us"] = best / count * 1e6
    emit({FIGURE: figures[f"early_{counts[-1]}_us"]} | figures)


if __name__ == "__main__":
    main()
