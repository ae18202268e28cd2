"""One million tasks from a generator, with the default window: how far the main program's memory grows at its peak."""

import sys
from collections.abc import Iterator

from benchmarks.memory import peak_bytes, reset_peak
from benchmarks.row import Budget, Measurement, Row
from benchmarks.workload import emit

FIGURE = "million_tasks_mb"

# One round: it takes about a minute, and a peak hardly varies.
ROWS = [Row("1,000,000 tasks, growth at peak", "MB", Measurement(FIGURE, "less", __name__, rounds=1), Budget(300))]


def main() -> None:
    import penstock
    from benchmarks.ours import increment

    count = 100_000 if "--quick" in sys.argv else 1_000_000

    def numbers() -> Iterator[int]:
        yield from range(count)

    with penstock.Runtime(cpus=2):
        increment(0).result()
        before = reset_peak()
        last = None
        for number in numbers():
            last = increment(number)
        penstock.barrier()
        grown = peak_bytes() - before
        if last is None or last.result() != count:
            raise AssertionError("the last task gave a wrong result")
    emit({FIGURE: grown / 1e6})


if __name__ == "__main__":
    main()
