"""Web archive on two units: words of a page counted while ranks read the next, against all pages at the end.

Two ranks read records of very different lengths from a slow disk. They hand over each; or all, when both have read
theirs. The disk is an emulated device, the same for both ways, and as fast as two units count. Nothing can take less
time than reading alone, and that is checked.
"""

import os
import sys
import tempfile
import time
from typing import Any

import benchmarks.eager  # noqa: F401  # makes the examples importable
from benchmarks.row import Budget, Measurement, Row
from benchmarks.workload import emit

FIGURE = "web_saved"
TURNS = 3
WORDS = 20_000

ROWS = [
    Row(
        "web archive: saved by early outputs of ranks", "%", Measurement(FIGURE, "more", __name__, rounds=1), Budget(30)
    ),
]


def main() -> None:
    from web_archive_stream import RANKS, best_words, page_of, plainly, share, write_archive

    import penstock

    pages = 40 if "--quick" in sys.argv else 100

    @penstock.io
    @penstock.mpi(processes=RANKS)
    @penstock.task(returns=pages, path=penstock.FILE_IN)
    def early(path: str, records: Any) -> None:
        comm = penstock.mpi.comm()
        with open(path, "rb") as file:
            for index in share(len(records), comm.rank, comm.size):
                penstock.ready_value(page_of(file, *records[index]), index)

    @penstock.io
    @penstock.mpi(processes=RANKS)
    @penstock.task(returns=pages, path=penstock.FILE_IN)
    def at_the_end(path: str, records: Any) -> None:
        comm = penstock.mpi.comm()
        with open(path, "rb") as file:
            mine = {index: page_of(file, *records[index]) for index in share(len(records), comm.rank, comm.size)}
        comm.Barrier()
        for index, page in mine.items():
            penstock.ready_value(page, index)

    def reading_alone() -> float:
        began = time.perf_counter()
        early(path, records)
        penstock.barrier()
        return time.perf_counter() - began

    def seconds(read: Any) -> float:
        began = time.perf_counter()
        best = best_words(read(path, records))
        took = time.perf_counter() - began
        assert best == expected
        return took

    with tempfile.TemporaryDirectory() as mount:
        path = os.path.join(mount, "pages.warc.gz")
        records = write_archive(path, pages, WORDS)
        expected = plainly(path, records)
        rate = os.path.getsize(path) / _seconds_of_counting(path, records)
        layer = {"name": "disk", "mount": mount, "bandwidth": rate / 1e6, "curve": [[1, rate / 1e6]]}
        with penstock.Runtime(cpus=2, storage=[layer], tuning="off"):
            reading_alone()  # starts the ranks, which stay for the others
            turns = [(reading_alone(), seconds(early), seconds(at_the_end)) for _ in range(TURNS)]
    reading, eager, lazy = (min(times) for times in zip(*turns, strict=True))
    assert reading <= eager, f"reading takes {reading:.2f} s, and all of the program {eager:.2f} s"
    ratio = {FIGURE: 100 * (1 - eager / lazy), "early_over_at_the_end": eager / lazy}
    emit({**ratio, "read_s": reading, "early_s": eager, "at_the_end_s": lazy})


def _seconds_of_counting(path: str, records: Any) -> float:
    """How long two units take if all pages are there, whatever else this machine does."""
    from web_archive_stream import best_words, page_of

    import penstock

    with penstock.Runtime(cpus=2), open(path, "rb") as file:
        pages = [page_of(file, *record) for record in records]
        best_words(pages[:4])
        began = time.perf_counter()
        best_words(pages)
        return time.perf_counter() - began


if __name__ == "__main__":
    main()
