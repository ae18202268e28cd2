"""2,000 small files that live in memory and are kept, over the same workflow by `--batch`: whole commands, in turns.

Batch leaves its files to the page cache; those that come home from memory are on the disk when the command ends. The
files of the turn before were removed just then: on ext4 both ways then spend most of their time on finding inodes that
were not freed in the last half minute (about 0.7 ms for each file that is made on the disk).
"""

import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import harness
from benchmarks.row import Budget, Measurement, Row
from benchmarks.streaming import runs
from benchmarks.streaming.flow import Flow, Step, Stream
from benchmarks.workload import emit

TURNS = 7
FILES = 2000

ROWS = [
    Row(
        f"streaming in memory: {FILES:,} permanent files over batch",
        "×",
        Measurement("stream_memory", "less", __name__, rounds=1, together=True),
        Budget(1.3),
    )
]


def workflow(programs: Path, count: int) -> Flow:
    write = Step(
        "write",
        (f"{programs}/produce file 0 {count} 4096 4096 0",),
        output=("file*",),
        streams=(Stream(("file*",)),),
    )
    read = Step("read", (f"{programs}/consume file 0 {count} 4096 0 sum",), input=("file*",), output=("sum",))
    return Flow("kept", (write, read), (), permanent=("*",))


def run(flow: Flow, option: str, count: int) -> float:
    """Seconds of a run in a fresh folder, on a disk."""
    parent = harness.ROOT / "build"
    parent.mkdir(exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="kept-", dir=parent))
    try:
        began = time.perf_counter()
        runs.run_streamed(flow, work, dict(os.environ), option)
        took = time.perf_counter() - began
        if len(list(work.glob("file*"))) != count:
            raise AssertionError(f"{option}: not all files are there")
        return took
    finally:
        shutil.rmtree(work)


def main() -> None:
    quick = "--quick" in sys.argv
    count = FILES // 10 if quick else FILES
    flow = workflow(runs.programs(), count)
    memory, batch = list[float](), list[float]()
    for _ in range(1 if quick else TURNS):
        batch.append(run(flow, "--batch", count))
        memory.append(run(flow, "--memory", count))
    figures = {"memory_s": statistics.median(memory), "batch_s": statistics.median(batch)}
    emit({"stream_memory": figures["memory_s"] / figures["batch_s"], **figures})


if __name__ == "__main__":
    main()
