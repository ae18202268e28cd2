"""Penstock as it is measured next to the peers: two CPUs, everything else as a user gets it."""

from typing import Any

import penstock
from benchmarks import system, workload
from penstock import task


@task(returns=1)
def nothing() -> None:
    """An empty task."""


@task(returns=1)
def increment(x: int) -> int:
    return x + 1


@task(returns=1)
def part_sum(array: Any, index: int) -> float:
    return workload.part_sum(array, index)


class Penstock(system.System):
    tasks = 40_000
    links = 5_000
    imports = "import penstock"

    def start(self) -> None:
        self.runtime = penstock.Runtime(cpus=2)
        self.runtime.__enter__()

    def stop(self) -> None:
        self.runtime.__exit__(None, None, None)

    def run_tasks(self, count: int) -> None:
        for future in [nothing() for _ in range(count)]:
            future.result()

    def map(self, count: int) -> list[int]:
        return list(increment.map(range(count)).results())

    def round_trip(self) -> None:
        nothing().result()

    def chain(self, links: int) -> int:
        value: Any = 0
        for _ in range(links):
            value = increment(value)
        return int(value.result())

    def read_shared(self, array: Any) -> list[float]:
        shared = penstock.share(array)
        readers = [part_sum(shared, i) for i in range(workload.READERS)]
        return [reader.result() for reader in readers]


if __name__ == "__main__":
    system.main(Penstock())
