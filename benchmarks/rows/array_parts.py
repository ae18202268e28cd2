"""Heat on one array, in blocks of rows that tasks update where they lie: CPU time over the same without tasks.

Both take turns in one process; that of the workers counts. What the first steps cost, when the array is brought to
where tasks find it and workers import NumPy, is paid before.
"""

import sys
from typing import Any

import psutil

from benchmarks.row import Budget, Measurement, Row
from benchmarks.workload import emit

FIGURE = "array_parts_cpu"
SIZE = 2000
BLOCKS = 4
TURNS = 3

ROWS = [
    Row(
        f"heat on one array in {BLOCKS} blocks of rows: CPU time over sequential",
        "×",
        Measurement(FIGURE, "less", __name__, rounds=1),
        Budget(1.2),
    )
]


def main() -> None:
    from examples.heat import heat, step

    import penstock

    steps = 10 if "--quick" in sys.argv else 100

    def used(function: Any) -> tuple[float, Any]:
        before = _cpu_seconds()
        result = heat(SIZE, steps, BLOCKS, function)
        return _cpu_seconds() - before, result

    with penstock.Runtime(cpus=2):
        heat(SIZE, 2, BLOCKS)
        turns = [(used(step), used(step.__wrapped__)) for _ in range(TURNS)]
    assert all((tasks == plain).all() for (_, tasks), (_, plain) in turns)
    ratios = sorted(tasks / plain for (tasks, _), (plain, _) in turns)
    emit({FIGURE: ratios[TURNS // 2], "lowest": ratios[0], "highest": ratios[-1]})


def _cpu_seconds() -> float:
    """CPU time of this process and all that it has started."""
    this = psutil.Process()
    times = [one.cpu_times() for one in (this, *this.children(recursive=True))]
    return sum(one.user + one.system for one in times)


if __name__ == "__main__":
    main()
