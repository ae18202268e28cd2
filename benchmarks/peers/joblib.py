"""joblib as it is measured: its default process backend with automatic batching; big arrays are memory-mapped.

It hands out no future per task, so only its bulk and sharing figures exist; a round trip is a call with one task.
"""

from typing import Any

from benchmarks import system, workload


class Joblib(system.System):
    imports = "import joblib"

    def start(self) -> None:
        import joblib  # type: ignore[import-not-found]

        self.delayed = joblib.delayed
        self.parallel = joblib.Parallel(n_jobs=2)
        self.parallel.__enter__()

    def stop(self) -> None:
        self.parallel.__exit__(None, None, None)

    def map(self, count: int) -> list[int]:
        increment = self.delayed(workload.increment)
        values: list[int] = self.parallel(increment(i) for i in range(count))
        return values

    def round_trip(self) -> None:
        self.parallel([self.delayed(workload.nothing)()])

    def read_shared(self, array: Any) -> list[float]:
        part_sum = self.delayed(workload.part_sum)
        sums: list[float] = self.parallel(part_sum(array, i) for i in range(workload.READERS))
        return sums


if __name__ == "__main__":
    system.main(Joblib())
