"""Dask distributed as it is measured: a local cluster of two processes; bulk is a bag, sharing is scatter."""

from typing import Any

from benchmarks import system, workload


class Dask(system.System):
    tasks = 2_000
    links = 500
    imports = "import dask.distributed"

    def start(self) -> None:
        from dask.distributed import Client, LocalCluster  # type: ignore[import-not-found]

        self.cluster = LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
        )
        self.client = Client(self.cluster)

    def stop(self) -> None:
        self.client.close()
        self.cluster.close()

    def run_tasks(self, count: int) -> None:
        self.client.gather([self.client.submit(workload.nothing, pure=False) for _ in range(count)])

    def map(self, count: int) -> list[int]:
        import dask.bag  # type: ignore[import-not-found]

        values: list[int] = dask.bag.from_sequence(range(count), npartitions=8).map(workload.increment).compute()
        return values

    def round_trip(self) -> None:
        self.client.submit(workload.nothing, pure=False).result()

    def chain(self, links: int) -> int:
        value: Any = 0
        for _ in range(links):
            value = self.client.submit(workload.increment, value, pure=False)
        return int(value.result())

    def read_shared(self, array: Any) -> list[float]:
        # Without hash=False the whole gigabyte would be hashed first; direct goes around the scheduler.
        shared = self.client.scatter(array, hash=False, direct=True)
        readers = [self.client.submit(workload.part_sum, shared, i, pure=False) for i in range(workload.READERS)]
        sums: list[float] = self.client.gather(readers)
        return sums


if __name__ == "__main__":
    system.main(Dask())
