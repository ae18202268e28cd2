"""What is still held of a finished task that nobody refers to: memory of all processes over many such tasks."""

import sys

from benchmarks.memory import private_bytes
from benchmarks.row import Budget, Measurement, Row
from benchmarks.workload import emit

FIGURE = "finished_task_kib"

ROWS = [Row("finished task nobody refers to", "KiB", Measurement(FIGURE, "less", __name__), Budget(0.5))]


def main() -> None:
    import penstock
    from benchmarks.ours import increment

    count = 20_000 if "--quick" in sys.argv else 50_000
    with penstock.Runtime(cpus=2):

        def run_all() -> int:
            for i in range(count):
                increment(i)
            penstock.barrier()
            return private_bytes()

        run_all()  # the same load first: buffers and heaps reach their size
        before = run_all()
        after = run_all()
    emit({FIGURE: max(after - before, 0) / count / 1024})


if __name__ == "__main__":
    main()
