"""The programs: the graphs of the published evaluation, with fewer, smaller and shorter tasks.

A program takes the folder of the device and a function that makes a writing task of a body; it submits everything
and returns when all is done. What was published of each graph stands in its docstring.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.storage.device import MB
from benchmarks.storage.work import compute, write
from penstock import COLLECTION_IN, barrier, task

Declare = Callable[[Callable[..., None]], Any]
Program = Callable[[Path, Declare], None]


@task(returns=1)
def work(seconds: float, *inputs: Any) -> int:
    """A step of a program; its result is small, what it wrote is simulated by the checkpoint after it."""
    compute(seconds)
    return len(inputs)


@task(returns=1, parts=COLLECTION_IN)
def gather(seconds: float, parts: list[Any]) -> int:
    compute(seconds)
    return len(parts)


# --- HMMER ------------------------------------------------------------------------------------------------------------


def checkpoint_fragment(result: Any, path: str, size: int) -> None:
    write(path, size)


def hmmer(device: Path, declare: Declare, *, fragments: int = 13) -> None:
    """Every pair of a fragment of the sequences and one of the database is searched and the result written.

    Published: 48 × 48 pairs, 290 MB each, in 12 nodes; `gatherDB` per sequence fragment, one `gatherSeq`.
    """
    checkpoint = declare(checkpoint_fragment)
    gathered = []
    for i in range(fragments):
        results = []
        for j in range(fragments):
            result = work(0.030, i, j)
            checkpoint(result, str(device / f"fragment-{i}-{j}"), size=round(1.1 * MB))
            results.append(result)
        gathered.append(gather(0.005, results))
    gather(0.005, gathered)
    barrier()


# --- variants discovery -----------------------------------------------------------------------------------------------

#: kinds of checkpoint and the MB that were published for each
VARIANT_MB = {"fastq": 162, "mapped": 290, "merged": 330, "marked": 596, "grouped": 615}
#: steps of the pipeline in their phases: seconds of computation, and the kind of checkpoint after it
VARIANT_PHASES = (
    (("fastq", 0.005),),
    (("mapped", 0.016), ("mapped", 0.010), ("merged", 0.010)),
    (("marked", 0.014), ("grouped", 0.009)),
)
_VARIANT_BYTES = {kind: round(published / 615 * 0.66 * MB) for kind, published in VARIANT_MB.items()}


def checkpoint_fastq(result: Any, path: str, size: int) -> None:
    write(path, size)


def checkpoint_mapped(result: Any, path: str, size: int) -> None:
    write(path, size)


def checkpoint_merged(result: Any, path: str, size: int) -> None:
    write(path, size)


def checkpoint_marked(result: Any, path: str, size: int) -> None:
    write(path, size)


def checkpoint_grouped(result: Any, path: str, size: int) -> None:
    write(path, size)


def variants(device: Path, declare: Declare, *, inputs: int = 128) -> None:
    """A pipeline per input, in three phases, with checkpoints of five sizes, each kind a task of its own.

    Published: 1,728 inputs in 12 nodes; the steps `bwa_map` and `sort` write files of one size, `checkpoint_mapped`.
    """
    bodies = (checkpoint_fastq, checkpoint_mapped, checkpoint_merged, checkpoint_marked, checkpoint_grouped)
    checkpoints = {body.__name__.removeprefix("checkpoint_"): declare(body) for body in bodies}
    state: list[Any] = [0] * inputs
    for number, phase in enumerate(VARIANT_PHASES):
        for i in range(inputs):
            for step, (kind, seconds) in enumerate(phase):
                state[i] = work(seconds, state[i])
                path = str(device / f"{kind}-{i}-{number}-{step}")
                checkpoints[kind](state[i], path, size=_VARIANT_BYTES[kind])
    barrier()


# --- k-means ----------------------------------------------------------------------------------------------------------

#: seconds to generate a fragment. Published totals without I/O awareness were 513, 963 and 1,407 s for 1, 3 and 6
#: iterations, so that generating took about 1.3 times as long as the first iteration; here as well.
_GENERATE = 0.055


def checkpoint_centers(result: Any, path: str, size: int) -> None:
    write(path, size)


def kmeans(device: Path, declare: Declare, *, iterations: int, fragments: int = 64) -> None:
    """Points in fragments; in each iteration a partial sum per fragment, which is written, and a merge of them all.

    Published: 500 fragments, 109 MB per checkpoint, 1, 3 and 6 iterations; learning takes most of the first 500.
    """
    checkpoint = declare(checkpoint_centers)
    points = [work(_GENERATE, i) for i in range(fragments)]
    centers: Any = 0
    for iteration in range(iterations):
        sums = [work(0.015, centers, part) for part in points]
        for i, partial in enumerate(sums):
            checkpoint(partial, str(device / f"centers-{iteration}-{i}"), size=round(0.5 * MB))
        centers = gather(0.005, sums)
    barrier()


def kmeans_once(device: Path, declare: Declare) -> None:
    kmeans(device, declare, iterations=1)


def kmeans_six_times(device: Path, declare: Declare) -> None:
    kmeans(device, declare, iterations=6)


PROGRAMS: dict[str, Program] = {
    "hmmer": hmmer,
    "variants": variants,
    "kmeans-1": kmeans_once,
    "kmeans-6": kmeans_six_times,
}
