"""Pairwise alignment on two units: reads as a stream from a slow disk, against the same file part by part.

Part by part is what a program does whose reader gives its outputs at its end and whose memory does not hold the file:
read a part, align it, read the next. The disk is an emulated device, the same for both ways, and as fast as two units
align.
"""

import itertools
import os
import sys
import tempfile
import time
from typing import Any

import benchmarks.eager  # noqa: F401  # makes the examples importable
from benchmarks.row import Budget, Measurement, Row
from benchmarks.workload import emit

FIGURE = "alignment_saved"
TURNS = 3
PARTS = 4
CHUNK = 100
LENGTH = 50

ROWS = [
    Row(
        "stream of alignments: saved by early outputs", "%", Measurement(FIGURE, "more", __name__, rounds=1), Budget(30)
    ),
]


def main() -> None:
    import numpy as np
    from alignment_stream import LETTERS, align, records, write_reads

    import penstock

    reads = 800 if "--quick" in sys.argv else 2_400
    chunks = reads // CHUNK // PARTS
    reference = LETTERS[np.random.default_rng(1).integers(0, 4, 500)]

    @penstock.io
    @penstock.task(returns=..., ahead=16)
    def stream(path: str) -> Any:
        found = ((name, letters) for name, letters, _ in records(path))
        while chunk := list(itertools.islice(found, CHUNK)):
            yield chunk

    @penstock.io
    @penstock.task(returns=chunks)
    def part_of(path: str, number: int) -> Any:
        found = [(name, letters) for name, letters, _ in records(path)]
        return [found[start : start + CHUNK] for start in range(0, len(found), CHUNK)]

    def right(aligned: list[Any]) -> int:
        placed = [one for chunk in aligned for one in chunk]
        return sum(abs(int(name.split(":")[1]) - place) <= 2 for name, _, place in placed)

    def as_stream(paths: list[str]) -> list[Any]:
        return penstock.wait_on([align(chunk, reference) for chunk in stream(paths[0])])

    def part_by_part(paths: list[str]) -> list[Any]:
        aligned: list[Any] = []
        for number, path in enumerate(paths[1:]):
            aligned += penstock.wait_on([align(chunk, reference) for chunk in part_of(path, number)])
        return aligned

    def seconds(way: Any, paths: list[str]) -> float:
        began = time.perf_counter()
        aligned = way(paths)
        took = time.perf_counter() - began
        assert right(aligned) > 0.95 * reads
        return took

    with tempfile.TemporaryDirectory() as mount:
        paths = [os.path.join(mount, name) for name in ("all", *map(str, range(PARTS)))]
        write_reads(paths[0], reference, reads, LENGTH)
        _split(paths[0], paths[1:])
        rate = os.path.getsize(paths[0]) / _seconds_of_aligning(paths[1], reference) / PARTS * 2
        layer = {"name": "disk", "mount": mount, "bandwidth": rate / 1e6, "curve": [[1, rate / 1e6]]}
        with penstock.Runtime(cpus=2, storage=[layer], tuning="off"):
            penstock.wait_on([align([], reference) for _ in range(20)])
            turns = [(seconds(as_stream, paths), seconds(part_by_part, paths)) for _ in range(TURNS)]
    eager, lazy = (min(times) for times in zip(*turns, strict=True))
    emit({FIGURE: 100 * (1 - eager / lazy), "stream_s": eager, "parts_s": lazy})


def _seconds_of_aligning(path: str, reference: Any) -> float:
    """How long one unit takes to align a file, whatever else this machine does."""
    from alignment_stream import align, records

    found = [(name, letters) for name, letters, _ in records(path)]
    began = time.perf_counter()
    align.__wrapped__(found, reference)
    return time.perf_counter() - began


def _split(path: str, parts: list[str]) -> None:
    """The records of a file, in order, in several files."""
    with open(path, "rb") as file:
        lines = file.readlines()
    each = len(lines) // len(parts)
    for number, part in enumerate(parts):
        with open(part, "wb") as file:
            file.writelines(lines[number * each : (number + 1) * each])


if __name__ == "__main__":
    main()
