"""Small versions of the measured workflows: streamed, they have the results of batch, and of simple arithmetic."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.streaming import runs, shapes
from benchmarks.streaming.flow import CLOSE_UPDATE, Flow

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


@pytest.mark.parametrize("shape", FLOWS.values(), ids=FLOWS)
def test_a_workflow_has_the_results_of_batch(shape: Callable[[Path], Flow]) -> None:
    flow = shape(runs.programs())
    _, expected = runs.run(flow, runs.BATCH)
    _, found = runs.run(flow, runs.STREAMED)
    assert found == expected


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
