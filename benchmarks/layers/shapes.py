"""The programs: iterations in which all inputs are computed and then all results are written.

    compute ─┐            ┌─► write (an I/O task, its size)
    compute ─┼─► gathered ┼─► write
    compute ─┘            └─► write

Published of them: two results of 200 and 800 MB for each input of the multi-reference alignment; one of 800 or 500 MB,
by turns, in the synthetic program; one of 400 MB in the checkpoints of HMMER. All ask for as many MB/s as they write
MB. Capacity is what 1 TB of NVRAM was of all that a node wrote: 2.4, 1.56 and 1.84 TB.

Ours: few inputs and five iterations. Nothing was published of the size of an iteration. It was chosen by simulating the
schedulers on these layers: what is between priority and backfilling is a few per cent, and ends of phases are as large,
so that with other sizes their order can be another. In the synthetic program hardly any size shows both of the
published orders: beside as many 800 as fit, no layer has 500 MB/s left, so there is nothing to backfill with.
Results are of use during the run only, so that what is measured ends with the last write, as it did there, and not
with all of them on the slowest layer.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.layers.devices import RATE, SECOND, SIZE

CPUS = 2
#: seconds there: less, and results would be written before the program has asked for all of them
LEAST_COMPUTE = 1.0


@dataclass(frozen=True)
class Shape:
    #: MB there of the results, in the order in which tasks write them
    sizes: tuple[int, ...]
    #: how often that order is repeated in an iteration
    repeats: int
    #: of all that is written, what the fastest layer can hold
    holds: float
    #: seconds there of computing between two phases of writing, long enough to move what has to go
    compute: float
    iterations: int = 5

    @property
    def per_iteration(self) -> int:
        """MB there that an iteration writes."""
        return sum(self.sizes) * self.repeats

    @property
    def nvram(self) -> float:
        """MB there that the fastest layer can hold."""
        return self.holds * self.per_iteration * self.iterations


SHAPES = {
    "alignment": Shape((200, 800), repeats=10, holds=1 / 2.4, compute=18),
    "synthetic": Shape((800, 500), repeats=20, holds=1 / 1.56, compute=12),
    "hmmer": Shape((400,), repeats=20, holds=1 / 1.84, compute=16),
}


def phases(shape: Shape, results: Path, *, constrained: bool, compute: float, iterations: int) -> list[float]:
    """Run the program; for each iteration, seconds from the end of its computing to the end of its last write."""
    from penstock import barrier

    produce, gather, writers = _compute_task(), _gather_task(), {}
    for size in dict.fromkeys(shape.sizes):
        writers[size] = _write_task(size, constrained)
    seconds = []
    for iteration in range(iterations):
        # What is computed first hides nothing: no file is there yet to be moved.
        inputs = _inputs(shape, compute if iteration else LEAST_COMPUTE)
        gathered = gather([produce(seconds_each) for seconds_each in inputs])
        for number in range(shape.repeats):
            for size in shape.sizes:
                writers[size](gathered, str(results / f"{iteration}-{number}-{size}"))
        gathered.result()
        began = time.perf_counter()
        barrier()
        seconds.append(time.perf_counter() - began)
    return seconds


def _inputs(shape: Shape, compute: float) -> list[float]:
    """Seconds of each input, so that the computing units take `compute` seconds there for all of them."""
    count = shape.repeats * len(shape.sizes)
    return [compute * SECOND * CPUS / count] * count


def _compute_task() -> Any:
    from penstock import task

    @task(returns=1)
    def compute(seconds: float) -> int:
        time.sleep(seconds)
        return 0

    return compute


def _gather_task() -> Any:
    from penstock import COLLECTION_IN, task

    # One end of all computing: writes become ready together, and the I/O scheduler has a choice.
    @task(computed=COLLECTION_IN, returns=1)
    def gather(computed: list[int]) -> int:
        return len(computed)

    return gather


def _write_task(size: int, constrained: bool) -> Any:
    """A task of its own for each size: how long tasks take is known by function."""
    from penstock import FILE_OUT, constraint, io, task

    def write(gathered: int, path: str) -> None:
        with open(path, "wb") as file:
            file.write(bytes(round(size * SIZE)))
            file.flush()
            os.fsync(file.fileno())

    write.__name__ = write.__qualname__ = f"write_{size}"
    writer: Any = io(task(path=FILE_OUT(temp=True))(write))
    if constrained:
        writer = constraint(storage_bw=f"{size * RATE:.0f}B/s", storage_size=f"{size * SIZE:.0f}B")(writer)
    return writer
