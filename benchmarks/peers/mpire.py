"""mpire as it is measured: a forked pool of two; `apply_async` for single tasks, `map` for bulk.

Its shared objects are inherited by a fork, so sharing an array means starting a pool, which is part of that figure.
"""

from typing import Any

from benchmarks import system, workload


class Mpire(system.System):
    tasks = 20_000
    imports = "import mpire"

    def start(self) -> None:
        from mpire import WorkerPool  # type: ignore[import-not-found]

        self.make_pool = WorkerPool
        self.pool = WorkerPool(n_jobs=2, keep_alive=True)

    def stop(self) -> None:
        self.pool.stop_and_join()
        self.pool.terminate()

    def run_tasks(self, count: int) -> None:
        for answer in [self.pool.apply_async(workload.nothing) for _ in range(count)]:
            answer.get()

    def map(self, count: int) -> list[int]:
        values: list[int] = self.pool.map(workload.increment, range(count))
        return values

    def round_trip(self) -> None:
        self.pool.apply_async(workload.nothing).get()

    def read_shared(self, array: Any) -> list[float]:
        with self.make_pool(n_jobs=2, shared_objects=array) as pool:
            sums: list[float] = pool.map(workload.part_sum, range(workload.READERS))
        return sums


if __name__ == "__main__":
    system.main(Mpire())
