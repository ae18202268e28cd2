"""The standard library's ProcessPoolExecutor with two processes, run by our own interpreter."""

from concurrent.futures import ProcessPoolExecutor

from benchmarks import system, workload


class Futures(system.System):
    tasks = 20_000
    imports = "import concurrent.futures.process"

    def start(self) -> None:
        self.pool = ProcessPoolExecutor(max_workers=2)

    def stop(self) -> None:
        self.pool.shutdown()

    def run_tasks(self, count: int) -> None:
        for future in [self.pool.submit(workload.nothing) for _ in range(count)]:
            future.result()

    def map(self, count: int) -> list[int]:
        return list(self.pool.map(workload.increment, range(count), chunksize=max(count // 8, 1)))

    def round_trip(self) -> None:
        self.pool.submit(workload.nothing).result()


if __name__ == "__main__":
    system.main(Futures())
