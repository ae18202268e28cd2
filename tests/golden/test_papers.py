"""The replayed experiments: what the SSD's model was fitted to, learning at full scale, and the frame around them."""

from __future__ import annotations

from functools import partial
from io import StringIO
from itertools import pairwise
from pathlib import Path

import pytest
from benchmarks.papers import EXPERIMENTS, drawing, fitting, hmmer, kmeans, marenostrum, ssd, variants
from benchmarks.papers.__main__ import table
from benchmarks.papers.figure import Bars, Figure, Lines, Replay
from benchmarks.papers.marenostrum import BOUNDED, STATIC, UNAWARE, UNBOUNDED, UNCONSTRAINED, epochs, learned, run
from rich.console import Console

#: epochs under 2, 4, 8 … 256 MB/s
STREAMS = (225, 112, 56, 28, 14, 7, 3, 1)


def seconds(streams: int, size: int) -> float:
    """How long one of so many files of the same size takes."""
    return streams * size / ssd.throughput(streams, size)


def unbounded_epochs(size: int) -> int:
    """Epochs of a search that ends with the first doubling that does not halve the time."""
    pays = [seconds(fewer, size) <= seconds(more, size) / 2 for more, fewer in pairwise(STREAMS)]
    return pays.index(False) + 2


# --- the SSD --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "constraint"), [(162, 16), (290, 8), (330, 4), (596, 4), (615, 4)])
def test_each_size_of_file_is_written_fastest_under_the_constraint_that_was_published(
    size: int, constraint: int
) -> None:
    rates = {value: ssd.throughput(streams, size) for value, streams in zip(STATIC, STREAMS, strict=True)}
    best = max(rates.values())
    # As the objective does it: of those within two per cent the highest.
    assert max(value for value, rate in rates.items() if rate * 1.02 >= best) == constraint


@pytest.mark.parametrize(("size", "many"), [(109, 5), (290, 4)])
def test_unbounded_searches_have_as_many_epochs_as_was_published(size: int, many: int) -> None:
    assert unbounded_epochs(size) == many


def test_the_curve_is_what_its_fitting_gives() -> None:
    for (streams, rate), (fitted_streams, fitted_rate) in zip(ssd.CURVE, fitting.curve(), strict=True):
        assert streams == fitted_streams
        assert rate == pytest.approx(fitted_rate, rel=0.005)


def test_no_file_is_written_faster_than_the_device_can() -> None:
    rates = [ssd.throughput(streams, size) for streams in range(1, 501) for size in (109, 162, 290, 330, 596, 615)]
    assert max(rates) == pytest.approx(ssd.BANDWIDTH, rel=0.01)


def test_a_wave_of_files_takes_what_the_model_says() -> None:
    device = ssd.Ssd("n:ssd", ssd.layer(), 0.0)
    files = [object() for _ in range(56)]
    for file in files:
        device.start(0.0, file, 290 * ssd.MB)  # type: ignore[arg-type]
    assert device.complete(device.next_completion() or 0.0) == []  # all are in fsync now
    end = device.next_completion() or 0.0
    assert device.complete(end) == files
    assert end == pytest.approx(seconds(56, 290))


def test_a_stream_that_breaks_off_during_its_fsync_is_forgotten() -> None:
    device = ssd.Ssd("n:ssd", ssd.layer(), 0.0)
    stream = object()
    for start in (0.0, 100.0):
        device.start(start, stream, ssd.MB)  # type: ignore[arg-type]
        now = device.next_completion() or 0.0
        assert device.complete(now) == []
        device.cancel(now, stream)  # type: ignore[arg-type]
    assert device.next_completion() is None


# --- full scale -----------------------------------------------------------------------------------------------------


def test_hmmer_learns_8_in_four_epochs_of_421_tasks() -> None:
    outcome = run(hmmer.program, UNBOUNDED)
    assert epochs(outcome, "checkpointFrag") == [2, 4, 8, 16]
    assert [epoch.registered for epoch in outcome.epochs] == [True, True, True, False]
    assert sum(epoch.tasks for epoch in outcome.epochs) == 421
    assert learned(outcome) == {"checkpointFrag": 8}
    assert outcome.done == 2 * 2304 + 48 + 2


def test_kmeans_learns_with_435_or_446_of_500_tasks() -> None:
    for way, used in ((UNBOUNDED, 435), (BOUNDED, 446)):
        outcome = run(partial(kmeans.program, 1), way)
        assert sum(epoch.tasks for epoch in outcome.epochs) == used


def test_unconstrained_checkpoints_pile_up_on_the_first_nodes_and_unaware_ones_do_not() -> None:
    piled = run(hmmer.program, UNCONSTRAINED, hmmer.UNCONSTRAINED_EXECUTORS)
    spread = run(hmmer.program, UNAWARE)
    assert piled.devices["n01:ssd"].transferred > 1.5 * spread.devices["n01:ssd"].transferred
    assert piled.makespan > 1.5 * spread.makespan


def test_the_published_programs_have_the_published_sizes() -> None:
    def count(program: marenostrum.Program) -> int:
        return len(program(marenostrum._Checkpoints(UNAWARE)).jobs)

    assert count(hmmer.program) == 2304 * 2 + 48 + 2
    assert count(variants.program) == 1728 * 12
    assert count(partial(kmeans.program, 3)) == 500 + 3 * (1000 + 1)


# --- the frame ------------------------------------------------------------------------------------------------------

REPLAY = Replay(
    [Figure("gain", "> 38", 37.5, "%", True, False, "0.5 short"), Figure("choice", 8, 8, "MB/s", False, None)],
    [Bars("times", "s", {"a": 1.0, "b": 2.0}, {"a": 1.5}), Lines("rates", "streams", "MB/s", {"x": [(1, 2), (2, 3)]})],
    ["a remark"],
)


def test_the_table_says_what_was_published_what_came_out_and_why() -> None:
    console = Console(width=140, record=True, file=StringIO())
    console.print(table("An experiment", REPLAY, 1.0))
    for chart in REPLAY.charts:
        console.print(drawing.shown(chart))
    text = console.export_text()
    for words in (
        "An experiment",
        "> 38",
        "37.5",
        "fitted",
        "predicted",
        "✗",
        "0.5 short",
        "a remark",
        "1.5 published",
    ):
        assert words in text


def test_charts_are_written_as_pictures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    written = drawing.save(REPLAY.charts, tmp_path / "new", "both")
    assert [path.name for path in written] == ["both-1.png", "both-2.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)


def test_experiments_that_are_listed_exist() -> None:
    folder = Path(drawing.__file__).parent
    assert all((folder / f"{name}.py").is_file() for name in EXPERIMENTS)
