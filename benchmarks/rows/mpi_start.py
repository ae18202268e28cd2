"""What it costs to start an MPI task: with a world of its own, and in one that has just served another."""

import statistics
import sys
import time
from typing import Any

from benchmarks.row import Budget, Measurement, Row
from benchmarks.workload import emit

RANKS = 2
_START = Measurement("mpi_cold_over_warm", "more", __name__, rounds=1, together=True)

ROWS = [
    Row("MPI task: cold start over warm", "×", _START, Budget(10)),
    Row(
        "MPI task in a warm world",
        "ms",
        Measurement("mpi_warm_ms", "less", __name__, rounds=1, together=True),
        Budget(20),
    ),
]


def main() -> None:
    import penstock

    @penstock.mpi(processes=RANKS)
    @penstock.task(returns=list)
    def rank(last: bool) -> Any:
        if last:
            penstock.mpi.discard_world()
        return penstock.mpi.comm().rank

    def seconds(last: bool) -> float:
        began = time.perf_counter()
        if penstock.wait_on(rank(last)) != list(range(RANKS)):
            raise AssertionError("the ranks are not those that were asked for")
        return time.perf_counter() - began

    rounds = 3 if "--quick" in sys.argv else 10
    with penstock.Runtime(cpus=2):
        seconds(True)  # so that everything is read from disk
        cold, warm = [], []
        for _ in range(rounds):
            cold.append(seconds(False))
            warm += [seconds(False) for _ in range(10)]
            seconds(True)
    cold_ms, warm_ms = statistics.median(cold) * 1e3, statistics.median(warm) * 1e3
    emit({"mpi_cold_over_warm": cold_ms / warm_ms, "mpi_warm_ms": warm_ms, "mpi_cold_ms": cold_ms})


if __name__ == "__main__":
    main()
