"""What ``penstock probe`` says of what it measured, on numbers made up: spread, doubts, and what is written down."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from rich.console import Console
from tests.own_place import memory_dir

from penstock.cli import probe_view
from penstock.runtime.describe import layer_table
from penstock.runtime.layers import read_layer
from penstock.runtime.probe_points import Measurement, Point

MB = 1e6


def measured(folder: object, *writes: tuple[float, ...], **about: object) -> Measurement:
    """Points of 1, 2, 4, … streams, by the rates of their repeats in MB/s."""
    rates = [tuple(write * MB for write in repeats) for repeats in writes]
    points = tuple(Point(2**n, repeats, repeats, size=1) for n, repeats in enumerate(rates))
    return Measurement(str(folder), points, **about)  # type: ignore[arg-type]


def shown(content: object) -> str:
    console = Console(file=io.StringIO(), width=80)
    console.print(content)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


SURE = ((100, 101, 102), (195, 200, 205), (398, 400, 401), (398, 399, 400))
#: one disk on one day
SEEN = ((300, 310, 290), (345, 170, 340), (330, 345, 180), (167, 330, 200))


def test_the_table_shows_the_median_and_the_repeats(tmp_path: object) -> None:
    lines = shown(probe_view.table(measured(tmp_path, *SURE))).splitlines()
    assert lines[1].split() == ["1", "101", "MB/s", "100-102", "MB/s", "101", "MB/s", "100-102", "MB/s"]
    assert "knee, best" in lines[3]
    assert "unsure" not in "".join(lines)


def test_units_differ_where_repeats_do(tmp_path: object) -> None:
    assert "950 MB/s-1.2 GB/s" in shown(probe_view.table(measured(tmp_path, (950, 1000, 1200))))


def test_what_was_measured_well_raises_no_doubts(tmp_path: object) -> None:
    measurement = measured(tmp_path, *SURE, others=0.05)
    assert list(probe_view.doubts(measurement)) == []
    layer = probe_view.measured_layer(measurement, "fast")
    assert "nsure" not in layer_table(layer)


def test_repeats_that_differ_are_said_to_be_unsure_in_every_place(tmp_path: object) -> None:
    measurement = measured(tmp_path, *SEEN)
    assert shown(probe_view.table(measurement)).count("unsure") == 3
    findings = " ".join(probe_view.findings(measurement))
    assert "(unsure: 170-345 MB/s)" in findings and "congestion" not in findings
    assert "cannot be told" in findings
    doubts = " ".join(probe_view.doubts(measurement))
    assert "Unsure with 2, 4 and 8 streams: repeats of the same step differ by more than 30%." in doubts
    assert "measure again" in doubts
    assert [point["unsure"] for point in probe_view.as_json(measurement)["points"]] == [False, True, True, True]


def test_the_file_says_so_too_and_is_read_as_before(tmp_path: object) -> None:
    measurement = measured(tmp_path, *SEEN, others=0.85)
    layer = probe_view.measured_layer(measurement, "fast")
    text = layer_table(layer)
    assert text.count("  unsure\n") == 3
    assert "# probe: Unsure with 2, 4 and 8 streams" in text
    assert "too busy to tell: others used 85% of its CPUs" in " ".join(text.replace("# probe: ", "").split())
    assert max(len(line) for line in text.splitlines() if line.startswith("#")) <= 80
    read = read_layer(layer.values, str(tmp_path), "here").layer
    assert read.bandwidth == 340 * MB
    assert read.measured == ((1, 300 * MB), (2, 340 * MB), (4, 330 * MB), (8, 200 * MB))


def test_a_busy_machine_is_said_to_be_busy(tmp_path: object) -> None:
    (doubt,) = probe_view.doubts(measured(tmp_path, *SURE, others=0.6))
    assert "too busy to tell: others used 60% of its CPUs" in doubt


@pytest.mark.parametrize(("once", "words"), [(((1,),), "with 1 stream:"), (((1,), (2,)), "with 1 and 2 streams:")])
def test_what_was_measured_once_is_unsure(tmp_path: object, once: tuple[tuple[float, ...], ...], words: str) -> None:
    measurement = measured(tmp_path, *once)
    (doubt,) = probe_view.doubts(measurement)
    assert words in doubt and "only once" in doubt
    assert "once" in shown(probe_view.table(measurement))


def test_a_step_that_was_cut_is_named(tmp_path: object) -> None:
    measurement = measured(tmp_path, *SURE, unfinished="writing with 8 streams")
    assert list(probe_view.doubts(measurement)) == ["Cut: writing with 8 streams was not done when the time was up."]


def test_a_layer_in_memory_is_said_to_lose_its_files(tmp_path: Path) -> None:
    memory = measured(memory_dir(), *SURE)
    assert "temporary = true" in layer_table(probe_view.measured_layer(memory, "memory"))
    if os.stat(tmp_path).st_dev != os.stat(memory_dir()).st_dev:
        assert list(probe_view.warnings(str(tmp_path))) == []
