"""Small versions of the measured workflows: streamed, they have the results of batch, and of simple arithmetic."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.streaming import runs, shapes
from benchmarks.streaming.flow import CLOSE_UPDATE, Flow, Step, Stream

MIB = 1 << 20

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="THE WORKFLOWS ARE NOT TESTED: there is no gcc")

FLOWS: dict[str, Callable[[Path], Flow]] = {
    "1 to 1, blocks": lambda bin: shapes.one_to_one(bin, 3, 2 * MIB),
    "1 to 1, records": lambda bin: shapes.one_to_one(bin, 2, MIB + 77, block=1000),
    "1 to 1, whole files": lambda bin: shapes.one_to_one(bin, 5, 300_000, rule=CLOSE_UPDATE),
    "1 to many": lambda bin: shapes.one_to_many(bin, 3, MIB, readers=4),
    "sparse partitions": lambda bin: shapes.partitions(bin, 8 * MIB, writers=4, readers=2),
    "many to 1": lambda bin: shapes.many_to_one(bin, 3, 6, MIB),
    "many small files": lambda bin: shapes.many_to_one(bin, 5, 500, 1_000),
    "MapReduce": lambda bin: shapes.mapreduce(bin, 12, 200_000, mappers=4, reducers=3, pace=1_000),
    "genomes": lambda bin: shapes.genomes(bin, 2_000, 60, processes=3, pace=2),
    "weather": lambda bin: shapes.weather(bin, 12, 100_000, 5_000, 4_000),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("shape", FLOWS.values(), ids=FLOWS)
def test_a_workflow_has_the_results_of_batch(shape: Callable[[Path], Flow]) -> None:
    flow = shape(runs.programs())
    _, expected = runs.run(flow, runs.BATCH)
    _, found = runs.run(flow, runs.STREAMED)
    assert found == expected


def archive(bin: Path) -> Flow:
    parts = [f"part{number:05}" for number in range(4)]
    same = "--mtime=@0 --owner=0 --group=0 --numeric-owner --mode=644"
    whole = Stream(("*",), fire="update")
    return Flow(
        "archive",
        (
            Step("write", (f"{bin}/produce part 0 4 300000 4096 0",), output=("part*",), streams=(whole,)),
            Step("pack", (f"tar -cf all.tar {same} {' '.join(parts)}",), input=("part*",), output=("all.tar",)),
            Step("squeeze", ("gzip -nkf all.tar",), input=("all.tar",), output=("all.tar.gz",)),
        ),
        ("all.tar.gz",),
    )


def pieces(bin: Path) -> Flow:
    return Flow(
        "pieces",
        (
            Step("write", (f"{bin}/produce part 0 1 400000 4096 0",), output=("part*",), streams=(Stream(("part*",)),)),
            Step("split", ("split -n 3 part00000 piece.",), input=("part*",), output=("piece.a?",)),
            Step("sort", ("sort -o sorted piece.ab",), input=("piece.a?",), output=("sorted",)),
            Step("squeeze", ("gzip -nkf sorted",), input=("sorted",), output=("sorted.gz",)),
        ),
        ("sorted.gz", "piece.a?"),
    )


def replace_outputs(work: Path, dice: random.Random) -> None:
    """Other bytes, and more or fewer of them, in everything that a run has left."""
    for path in sorted(work.rglob("*")):
        if path.is_file() and path.name != "workflow.toml":
            size = path.stat().st_size
            path.write_bytes(dice.randbytes(dice.choice([0, size // 2, size, size + 1000])))


@pytest.mark.long
@pytest.mark.parametrize("shape", [*FLOWS.values(), archive, pieces], ids=[*FLOWS, "archive", "pieces"])
def test_a_second_run_over_garbage_has_the_results_of_batch(shape: Callable[[Path], Flow]) -> None:
    flow = shape(runs.programs())
    found = []
    for run in (runs.run_in_order, runs.run_streamed):
        with runs.scratch() as folder:
            work, times = folder / "work", folder / "times"
            for path in (times, work, *(work / name for name in flow.folders)):
                path.mkdir()
            for dice in (None, random.Random(1), random.Random(2)):
                if dice is not None:
                    replace_outputs(work, dice)
                run(flow, work, os.environ | {"BENCH_TIMES": str(times)})
            found.append(runs.results_of(flow, work))
    assert found[0] == found[1]


def test_the_counts_of_mapreduce_add_up() -> None:
    flow = FLOWS["MapReduce"](runs.programs())
    _, found = runs.run(flow, runs.STREAMED)
    counts = [int(line.split()[1]) for line in found["counts"].splitlines()]
    # 200,000 bytes are written as blocks of at least 64 KiB, in words of five letters and a space.
    assert sum(counts) == 12 * 4 * -(-(1 << 16) // 6)


def test_the_first_picture_is_there_long_before_the_last_hour() -> None:
    flow = shapes.weather(runs.programs(), 40, 1_000, 25_000, 1_000)
    ran, pictures = runs.run(flow, runs.STREAMED)
    assert len(pictures) == 40
    # One after the other it would be there after 96 % of the time. A busy machine slows the hours down, too.
    assert ran.first < ran.seconds * 3 / 4
