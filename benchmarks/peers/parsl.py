"""Parsl as it is measured: its high-throughput executor with two workers on this machine.

It has no bulk call and no shared memory, so those figures are missing.
"""

import os
import shutil
import sys
import tempfile
from typing import Any

from benchmarks import system, workload


class Parsl(system.System):
    tasks = 3_000
    links = 1_000
    imports = "import parsl"

    def start(self) -> None:
        import parsl  # type: ignore[import-not-found]
        from parsl.executors import HighThroughputExecutor  # type: ignore[import-not-found]
        from parsl.providers import LocalProvider  # type: ignore[import-not-found]

        # Parsl finds its own helper programs through PATH, as if this environment were activated.
        os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
        self.run_directory = tempfile.mkdtemp(prefix="parsl-bench-")
        executor = HighThroughputExecutor(
            label="workers",
            address="127.0.0.1",
            max_workers_per_node=2,
            cores_per_worker=1,
            encrypted=False,
            provider=LocalProvider(init_blocks=1, min_blocks=1, max_blocks=1),
        )
        self.kernel = parsl.load(
            parsl.Config(executors=[executor], run_dir=self.run_directory, strategy="none", initialize_logging=False)
        )
        self.nothing = parsl.python_app(workload.nothing)
        self.increment = parsl.python_app(workload.increment)

    def stop(self) -> None:
        self.kernel.cleanup()
        shutil.rmtree(self.run_directory, ignore_errors=True)

    def run_tasks(self, count: int) -> None:
        for future in [self.nothing() for _ in range(count)]:
            future.result()

    def round_trip(self) -> None:
        self.nothing().result()

    def chain(self, links: int) -> int:
        value: Any = 0
        for _ in range(links):
            value = self.increment(value)
        return int(value.result())


if __name__ == "__main__":
    system.main(Parsl())
