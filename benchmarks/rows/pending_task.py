"""What a pending task costs, its future included: memory of all processes over many tasks behind one that is held."""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.memory import private_bytes
from benchmarks.row import Budget, Measurement, Row
from benchmarks.workload import emit

FIGURE = "pending_task_kib"

ROWS = [Row("pending task", "KiB", Measurement(FIGURE, "less", __name__), Budget(2))]


def main() -> None:
    import penstock

    count = 5_000 if "--quick" in sys.argv else 20_000

    @penstock.task(returns=1)
    def held(gate: str) -> int:
        # Opening a named pipe waits until the main program opens its other end.
        with open(gate, "rb"):
            return 0

    @penstock.task(returns=1)
    def behind(first: int, number: int) -> int:
        return first + number

    with tempfile.TemporaryDirectory() as directory, penstock.Runtime(cpus=2, window=2 * count):
        gate = Path(directory) / "gate"
        os.mkfifo(gate)
        [behind(0, i).result() for i in range(1_000)]
        first: Any = held(str(gate))  # passed on as a future, received as its value
        before = private_bytes()
        pending = [behind(first, i) for i in range(count)]
        after = private_bytes()
        gate.open("wb").close()
        if [future.result() for future in pending] != list(range(count)):
            raise AssertionError("pending tasks gave wrong results")
    emit({FIGURE: (after - before) / count / 1024})


if __name__ == "__main__":
    main()
