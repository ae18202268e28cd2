"""The gain of overlap alone, on the disk that is there, without emulation: time unaware over time with `@io`.

Every task that computes is followed by one that writes and forces its file to the disk. Computing is given twice the
time of writing, which is measured first, so that a third of the unaware program's time is writing; both programs run in
turns, in one process. A perfect overlap would give 1.5, where writing leaves the processors alone; where the disk is
a virtual one, or fast, writing is itself work for them, and there is little to gain. It must not lose.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.row import Budget, Measurement, Row
from benchmarks.storage import ways
from benchmarks.storage.device import MB
from benchmarks.storage.shapes import work
from benchmarks.storage.work import write
from benchmarks.workload import emit

FIGURE = "overlap_real_disk"
FILES = 32
SIZE = 8 * MB
TURNS = 5
LEAST_COMPUTING = 0.01  # seconds: shorter tasks would measure scheduling

ROWS = [Row("overlap on the real disk", "×", Measurement(FIGURE, "more", __name__, rounds=1), Budget(1.0))]


def checkpoint(result: Any, path: str, size: int) -> None:
    write(path, size)


def main() -> None:
    import penstock

    turns = 2 if "--quick" in sys.argv else TURNS
    # Not the temporary directory, which may be in memory.
    disk = tempfile.TemporaryDirectory(dir=_existing(harness.ROOT / "build"), prefix="disk-")
    with disk as name, penstock.Runtime(cpus=2, io_executors=16, tuning="off"):
        folder = Path(name)
        programs = [ways.declare_writer(way, checkpoint) for way in (ways.UNAWARE, ways.UNCONSTRAINED)]
        for writer in programs:
            _seconds(writer, 0.0, folder)
        writing = statistics.median(_seconds(programs[0], 0.0, folder) for _ in range(3)) / FILES * 2
        computing = max(LEAST_COMPUTING, 2 * writing)
        times = [[_seconds(writer, computing, folder) for writer in programs] for _ in range(turns)]
    unaware, aware = (statistics.median(column) for column in zip(*times, strict=True))
    details = {"unaware_s": unaware, "aware_s": aware, "writing_s": writing, "computing_s": computing}
    emit({FIGURE: unaware / aware} | details)


def _seconds(writer: Any, computing: float, folder: Path) -> float:
    import penstock

    began = time.perf_counter()
    for i in range(FILES):
        writer(work(computing, i), str(folder / f"file-{i}"), size=SIZE)
    penstock.barrier()
    return time.perf_counter() - began


def _existing(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


if __name__ == "__main__":
    main()
