"""``penstock probe``: measure a directory, show what it can do, and write it into ``penstock.toml``.

arguments checked ──▶ ``runtime.probe`` measures, a bar in view ──▶ plot and table ──▶ ``runtime.describe`` writes
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from penstock.runtime.describe import Edit, MeasuredLayer
    from penstock.runtime.probe import Limits, Measurement
    from penstock.runtime.probe import Progress as Standing

__all__ = ["probe"]

_FAILED, _USAGE = 1, 2


def probe(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="Directory to measure.", show_default=False)],
    size: Annotated[str, typer.Option(metavar="SIZE", help="What each stream writes, at most.")] = "64MB",
    budget: Annotated[str, typer.Option("--time", metavar="TIME", help="How long it may take.")] = "30s",
    streams: Annotated[int, typer.Option(metavar="N", min=1, max=1024, help="The most concurrent streams.")] = 32,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the layer.", show_default="from the mount point")
    ] = None,
    file: Annotated[
        str | None, typer.Option(metavar="FILE", help="File to write it into.", show_default="penstock.toml")
    ] = None,
    write: Annotated[
        bool | None, typer.Option("--yes/--no-write", help="Write without asking, or not at all.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; writes only with --yes.")] = False,
) -> None:
    """Measure what the storage behind DIR can bear.

    Write and read bandwidth against 1, 2, 4, … concurrent streams; the layer goes into penstock.toml.
    """
    from penstock.errors import ConfigError, PenstockError
    from penstock.runtime.probe import check_directory, measure

    try:
        limits = _limits(size, budget, streams)
        directory = check_directory(directory)
        # Whatever is wrong with the file should be said before half a minute is spent, not after.
        path = None if write is False else _writable(file, directory, name)
    except ConfigError as error:
        raise _failure(str(error), _USAGE) from None
    try:
        with _signals_end_it(), _progress_bar() as show:
            measurement = measure(directory, limits, show)
    except OSError as error:
        raise _failure(f"cannot measure {directory}: {error.strerror}", _USAGE) from None
    except PenstockError as error:
        raise _failure(str(error), _FAILED) from None

    outcome = _Outcome(measurement, limits, name, path)
    if as_json:
        outcome.print_json(written=write is True and outcome.write())
    else:
        outcome.show()
        outcome.record(agreed=write)


class _Outcome:
    """What was measured, on its way to the user and into the file."""

    def __init__(self, measurement: Measurement, limits: Limits, name: str | None, path: str | None) -> None:
        from rich.console import Console

        self._console = Console(highlight=False)
        self._measurement = measurement
        self._limits = limits
        self._name = name
        self._path = path
        self._layer = _layer(measurement, name)

    def print_json(self, *, written: bool) -> None:
        import json

        measured = self._measurement
        points = [{field: getattr(point, field) for field in point.__struct_fields__} for point in measured.points]
        content = {
            "directory": measured.directory,
            "points": points,
            "best": measured.best.streams,
            "knee": measured.knee.streams,
            "congestion": measured.congestion.streams if measured.congestion else None,
            "stopped": measured.stopped or None,
            "layer": self._layer.values,
            "written": self._path if written else None,
        }
        print(json.dumps(content, indent=2))

    def show(self) -> None:
        """Plot, table, and what they mean."""
        from penstock.units import format_size

        console = self._console
        free = f"{format_size(_free(self._measurement.directory))} free"
        console.print(f"\n{self._measurement.directory}", style="bold", markup=False, soft_wrap=True, end="")
        console.print(f"  {free}\n", style="dim")
        console.print(_curves(console, self._measurement))
        console.print()
        console.print(_table(self._measurement))
        console.print()
        for sentence in _findings(self._measurement):
            console.print(sentence)
        console.print(f"\n{_how(self._limits)}", style="dim")

    def record(self, *, agreed: bool | None) -> None:
        """Write the layer into the file, after asking where that is due; else show what to add."""
        if agreed is False or self._path is None:
            self._offer("Nothing was written. To use this layer, add to penstock.toml:")
        elif agreed is None and not (sys.stdin.isatty() and sys.stdout.isatty()):
            self._offer(
                f"Nothing was written, because there is no terminal to ask at (--yes writes without asking). "
                f"To use this layer, add to {_shown(self._path)}:"
            )
        elif self.write(ask=agreed is None):
            self._console.print(f"\nWrote the layer [bold]{self._layer.name}[/] into {_shown(self._path)}.")
        else:
            self._console.print("\nNothing was written.")

    def write(self, *, ask: bool = False) -> bool:
        """Make the change; False if the user would rather not."""
        from penstock.errors import PenstockError
        from penstock.runtime.describe import plan_edit

        assert self._path is not None
        try:
            edit = plan_edit(self._path, self._layer, name_given=self._name is not None)
            self._layer = edit.layer
            if ask and edit.replaced is not None and not self._confirmed(edit, edit.replaced):
                return False
            edit.write()
        except (PenstockError, OSError) as error:
            print(f"\nTo use this layer, add:\n\n{self._table_text()}", file=sys.stderr)
            raise _failure(f"the layer was measured and not written: {error}", _FAILED) from None
        return True

    def _confirmed(self, edit: Edit, old: dict[str, Any]) -> bool:
        from rich.markup import escape

        self._console.print(f"\n{_shown(edit.path)} has the layer [bold]{escape(str(old.get('name')))}[/] already:")
        for key, value in edit.layer.values.items():
            if old.get(key) != value:
                self._console.print(f"  {key:<10} {escape(str(old.get(key, '-')))} [dim]becomes[/] {escape(value)}")
        return typer.confirm("Overwrite these?", default=True)

    def _offer(self, sentence: str) -> None:
        self._console.print(f"\n{sentence}\n")
        self._console.print(self._table_text(), markup=False, soft_wrap=True)

    def _table_text(self) -> str:
        from penstock.runtime.describe import layer_table

        return layer_table(self._layer)


# --- before and while it measures -------------------------------------------------------------------------------------


def _limits(size: str, budget: str, streams: int) -> Limits:
    from penstock.errors import ConfigError
    from penstock.runtime.probe import Limits
    from penstock.units import parse_duration, parse_size

    limits = Limits(size=parse_size(size), time=parse_duration(budget), streams=streams)
    if limits.size <= 0 or limits.time <= 0:
        raise ConfigError("--size and --time must be above zero")
    return limits


def _writable(file: str | None, directory: str, name: str | None) -> str:
    """The file that takes the layer. Going through the motions finds whatever would stand in the way."""
    from penstock.runtime.describe import MeasuredLayer, default_name, plan_edit, settings_file

    path = settings_file(file, os.getcwd())
    layer = MeasuredLayer(name or default_name(directory), directory, "1MB/s", "1MB")
    plan_edit(path, layer, name_given=name is not None)
    return path


@contextlib.contextmanager
def _signals_end_it() -> Iterator[None]:
    """The first of these signals ends the measurement in good order; more of them do not disturb the cleaning up."""
    import signal

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def stop(number: int, frame: object) -> None:
        for one in signals:
            signal.signal(one, signal.SIG_IGN)
        print("penstock: interrupted; nothing is left behind and nothing was written", file=sys.stderr)
        raise SystemExit(128 + number)

    before = {one: signal.signal(one, stop) for one in signals if signal.getsignal(one) is not signal.SIG_IGN}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


@contextlib.contextmanager
def _progress_bar() -> Iterator[Any]:
    """A bar on standard error, which stays free of it if nobody is looking."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from penstock.observe.progress import can_draw
    from penstock.units import format_rate

    if not can_draw(sys.stderr):
        yield lambda progress: None
        return
    columns = (TextColumn("{task.description:<20}"), BarColumn(), TextColumn("{task.fields[rate]:>10}"))
    console = Console(stderr=True, highlight=False)
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
        task = bar.add_task("starting", total=1.0, rate="")

        def show(progress: Standing) -> None:
            what = "writing" if progress.phase == "write" else "reading"
            described = f"{what}, {_streams(progress.streams)}"
            bar.update(task, completed=progress.done, description=described, rate=format_rate(progress.rate))

        yield show


# --- what was found ---------------------------------------------------------------------------------------------------


def _layer(measurement: Measurement, name: str | None) -> MeasuredLayer:
    from penstock.runtime.describe import MeasuredLayer, default_name
    from penstock.units import format_rate, format_size

    directory = measurement.directory
    return MeasuredLayer(
        name=name or default_name(directory),
        mount=directory,
        bandwidth=format_rate(measurement.best.write).replace(" ", ""),
        capacity=format_size(_two_digits_down(_free(directory))).replace(" ", ""),
        measured=", ".join(
            f"{point.streams}: {format_rate(point.write).replace(' ', '')}" for point in measurement.points
        ),
        notes=(
            "what `penstock probe` measured, by number of streams",
            *(
                f"{point.streams:>4}  write {format_rate(point.write):>9}  read {format_rate(point.read):>9}"
                for point in measurement.points
            ),
        ),
    )


def _two_digits_down(size: int) -> int:
    unit: int = 10 ** max(0, len(str(size)) - 2)
    return size // unit * unit


def _free(directory: str) -> int:
    from penstock.runtime.probe import free_bytes

    return free_bytes(directory)


def _curves(console: Console, measurement: Measurement) -> Any:
    import math

    from penstock.observe.plot import Series, plot
    from penstock.units import format_rate

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


def _table(measurement: Measurement) -> Any:
    from rich.table import Table

    from penstock.units import format_rate

    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False, header_style="dim")
    for heading in ("streams", "write", "read"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for point in measurement.points:
        remarks = [
            *(["knee"] if point is measurement.knee else []),
            *(["best"] if point is measurement.best else []),
            *(["congestion"] if point is measurement.congestion else []),
            *(["cut short"] if point.cut else []),
        ]
        row = (str(point.streams), format_rate(point.write), format_rate(point.read), f"[dim]{', '.join(remarks)}[/]")
        table.add_row(*row, style="bold" if point is measurement.knee else None)
    return table


def _findings(measurement: Measurement) -> Iterator[str]:
    from penstock.units import format_rate

    best, knee, congestion = measurement.best, measurement.knee, measurement.congestion
    sentence = f"Best: writing at [bold]{format_rate(best.write)}[/] with {_streams(best.streams)}."
    if knee is not best:
        sentence += f" {_streams(knee.streams).capitalize()} nearly suffice{'s' if knee.streams == 1 else ''}"
        sentence += f" ({knee.write / best.write:.0%}): the knee."
    else:
        sentence += " The knee is there too: fewer streams are clearly slower."
    yield sentence
    if congestion is not None:
        lost = 1 - congestion.write / best.write
        yield (
            f"With {_streams(congestion.streams)} it falls by {lost:.0%}, to {format_rate(congestion.write)}: "
            "congestion."
        )
    if measurement.stopped:
        yield f"More than {_streams(measurement.points[-1].streams)} were not tried: {measurement.stopped}."


def _how(limits: Limits) -> str:
    from penstock.units import format_size

    return (
        f"Each stream is a process that writes its own file, {format_size(limits.size)} at most, with an fsync at the "
        "end. Before reading, the kernel is asked to drop the files from its cache; where the file system ignores "
        "that, or has a cache of its own, reads are faster than the device."
    )


def _streams(count: int) -> str:
    return "1 stream" if count == 1 else f"{count} streams"


def _shown(path: str) -> str:
    """The shorter way to say where a file is."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def _failure(message: str, status: int) -> typer.Exit:
    typer.echo(f"penstock: {message}", err=True)
    return typer.Exit(status)
