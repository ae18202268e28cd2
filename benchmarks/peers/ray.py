"""Ray as it is measured: two CPUs, tasks are remote functions, bulk is its multiprocessing pool, sharing is put."""

from typing import Any

from benchmarks import system, workload


class Ray(system.System):
    tasks = 5_000
    links = 2_000
    imports = "import ray"

    def start(self) -> None:
        import ray  # type: ignore[import-not-found]

        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        self.ray = ray
        self.nothing = ray.remote(workload.nothing)
        self.increment = ray.remote(workload.increment)
        self.part_sum = ray.remote(workload.part_sum)
        self.pool: Any = None

    def stop(self) -> None:
        if self.pool is not None:
            self.pool.terminate()
        self.ray.shutdown()

    def run_tasks(self, count: int) -> None:
        self.ray.get([self.nothing.remote() for _ in range(count)])

    def map(self, count: int) -> list[int]:
        from ray.util.multiprocessing import Pool  # type: ignore[import-not-found]

        if self.pool is None:
            self.pool = Pool(processes=2)
        values: list[int] = self.pool.map(workload.increment, range(count))
        return values

    def round_trip(self) -> None:
        self.ray.get(self.nothing.remote())

    def chain(self, links: int) -> int:
        value: Any = 0
        for _ in range(links):
            value = self.increment.remote(value)
        return int(self.ray.get(value))

    def read_shared(self, array: Any) -> list[float]:
        shared = self.ray.put(array)
        sums: list[float] = self.ray.get([self.part_sum.remote(shared, i) for i in range(workload.READERS)])
        return sums


if __name__ == "__main__":
    system.main(Ray())
