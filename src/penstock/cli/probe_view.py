"""What ``penstock probe`` has measured, for people and for ``penstock.toml``: plot, table, sentences, the layer."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.units import format_rate, format_size

if TYPE_CHECKING:
    from rich.console import Console

    from penstock.runtime.describe import MeasuredLayer
    from penstock.runtime.probe import Limits
    from penstock.runtime.probe_points import Measurement, Point

__all__ = ["as_json", "curves", "doubts", "findings", "how", "measured_layer", "streams", "table", "warnings"]

#: columns of a note, beside the mark that it has in the file
_WIDTH = 70


def measured_layer(measurement: Measurement, name: str | None) -> MeasuredLayer:
    """The layer as it is written down; what is unsure about it is said beside it."""
    from penstock.runtime.describe import MeasuredLayer, default_name
    from penstock.runtime.probe import free_bytes

    directory = measurement.directory
    return MeasuredLayer(
        name=name or default_name(directory),
        mount=directory,
        bandwidth=format_rate(measurement.best.write).replace(" ", ""),
        capacity=format_size(_two_digits_down(free_bytes(directory))).replace(" ", ""),
        measured=", ".join(
            f"{point.streams}: {format_rate(point.write).replace(' ', '')}" for point in measurement.points
        ),
        notes=(
            "what `penstock probe` measured, by number of streams: median (repeats)",
            *map(_note, measurement.points),
            *(line for said in (*warnings(directory), *doubts(measurement)) for line in textwrap.wrap(said, _WIDTH)),
        ),
    )


def _note(point: Point) -> str:
    write = f"write {format_rate(point.write):>9} ({_range(point.writes)})"
    return f"{point.streams:>4}  {write}  read {format_rate(point.read):>9}{'  unsure' if point.unsure else ''}"


def _both(point: Point) -> tuple[tuple[str, float, tuple[float, ...]], ...]:
    return ("write", point.write, point.writes), ("read", point.read, point.reads)


def _range(rates: tuple[float, ...]) -> str:
    """From the least to the most, with one unit if both have the same."""
    least, most = format_rate(min(rates)), format_rate(max(rates))
    if len(rates) == 1:
        return "once"
    number, _, unit = least.partition(" ")
    return f"{number}-{most}" if most.endswith(f" {unit}") else f"{least}-{most}"


def _two_digits_down(size: int) -> int:
    unit: int = 10 ** max(0, len(str(size)) - 2)
    return size // unit * unit


def as_json(measurement: Measurement) -> dict[str, Any]:
    """All that is known, in bytes per second."""
    computed = ("streams", "write", "read", "writes", "reads", "rounds", "size", "cut", "unsure")
    return {
        "directory": measurement.directory,
        "points": [{name: getattr(point, name) for name in computed} for point in measurement.points],
        "best": measurement.best.streams,
        "knee": measurement.knee.streams,
        "congestion": measurement.congestion.streams if measurement.congestion else None,
        "stopped": measurement.stopped or None,
        "unfinished": measurement.unfinished or None,
        "others": measurement.others,
        "busy": measurement.busy,
    }


def curves(console: Console, measurement: Measurement) -> Any:
    import math

    from penstock.observe.plot import Series, plot

    return plot(
        [
            Series("write", [(point.streams, point.write) for point in measurement.points], "bold cyan"),
            Series("read", [(point.streams, point.read) for point in measurement.points], "yellow"),
        ],
        width=min(console.width, 80) - 2,
        x_label="concurrent streams",
        x_scale=math.log2,
        y_format=format_rate,
        ascii_only=console.options.ascii_only,
    )


def table(measurement: Measurement) -> Any:
    from rich.table import Table

    shown = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for heading in ("streams", "write", "repeats", "read", "repeats"):
        shown.add_column(heading, justify="right", no_wrap=True, style="dim" if heading == "repeats" else None)
    shown.add_column("")
    for point in measurement.points:
        remarks = [
            *(["knee"] if point is measurement.knee else []),
            *(["best"] if point is measurement.best else []),
            *(["congestion"] if point is measurement.congestion else []),
            *(["[yellow]unsure[/]"] if point.unsure else []),
            *(["cut short"] if point.cut else []),
        ]
        cells = [cell for _, rate, rates in _both(point) for cell in (format_rate(rate), _range(rates))]
        style = "bold" if point is measurement.knee else None
        shown.add_row(str(point.streams), *cells, f"[dim]{', '.join(remarks)}[/]", style=style)
    return shown


def findings(measurement: Measurement) -> Iterator[str]:
    best, knee, congestion = measurement.best, measurement.knee, measurement.congestion
    unsure = f" (unsure: {_range(best.writes)})" if best.unsure else ""
    sentence = f"Best: writing at [bold]{format_rate(best.write)}[/]{unsure} with {streams(best.streams)}."
    if knee is not best:
        sentence += f" {streams(knee.streams).capitalize()} nearly suffice{'s' if knee.streams == 1 else ''}"
        sentence += f" ({knee.write / best.write:.0%}): the knee."
    elif all(point.is_clearly_slower(best) for point in measurement.points if point.streams < best.streams):
        sentence += " The knee is there too: fewer streams are clearly slower."
    else:
        sentence += " Whether fewer streams suffice cannot be told: their repeats differ as much."
    yield sentence
    if congestion is not None:
        lost = 1 - congestion.write / best.write
        slower = format_rate(congestion.write)
        yield f"With {streams(congestion.streams)} it falls by {lost:.0%}, to {slower}: congestion."
    if measurement.stopped:
        yield f"More than {streams(measurement.points[-1].streams)} were not tried: {measurement.stopped}."


def warnings(directory: str) -> Iterator[str]:
    """What whoever uses this layer should know."""
    from penstock.runtime.spills import is_in_memory

    if is_in_memory(directory):
        yield (
            "This is memory: files that lie on it are lost when the machine goes down, synced or not. "
            "With `temporary = true` in its table it takes temporary files only."
        )


def doubts(measurement: Measurement) -> Iterator[str]:
    """Why not all of it is to be relied on; nothing if it is."""
    unsure = measurement.unsure
    if measurement.unfinished:
        yield f"Cut: {measurement.unfinished} was not done when the time was up."
    if unsure:
        once = [point for point in unsure if point.rounds < 2]
        differ = [point for point in unsure if point.rounds > 1]
        if differ:
            yield f"Unsure with {_listed(differ)}: repeats of the same step differ by more than 30%."
        if once:
            yield f"Unsure with {_listed(once)}: there was time to measure that only once (--time gives more)."
    if measurement.busy:
        used = f"{measurement.others:.0%}"
        yield f"The machine was too busy to tell: others used {used} of its CPUs. Measure again when it is quiet."
    elif unsure and any(point.rounds > 1 for point in unsure):
        yield "Others may use the same storage: measure again, and give it more --time."


def _listed(points: list[Point]) -> str:
    numbers = [str(point.streams) for point in points]
    listed = f"{', '.join(numbers[:-1])} and {numbers[-1]}" if len(numbers) > 1 else numbers[0]
    return f"{listed} stream{'' if numbers == ['1'] else 's'}"


def how(limits: Limits) -> str:
    return (
        f"Each stream is a process that writes its own file, {format_size(limits.size)} at most, with an fsync at the "
        "end; all numbers of streams take turns, in rounds. Before reading, the kernel is asked to drop the files from "
        "its cache; where the file system ignores that, or has a cache of its own, reads are faster than the device."
    )


def streams(count: int) -> str:
    return "1 stream" if count == 1 else f"{count} streams"
