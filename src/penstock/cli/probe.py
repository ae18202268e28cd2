"""``penstock probe``: measure a directory, show what it can do, and write it into ``penstock.toml``.

arguments checked ──▶ ``runtime.probe`` measures, a bar in view ──▶ ``probe_view`` shows ──▶ ``runtime.describe`` writes
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import probe_view

if TYPE_CHECKING:
    from penstock.runtime.describe import Edit
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
        self._layer = probe_view.measured_layer(measurement, name)

    def print_json(self, *, written: bool) -> None:
        import json

        content = probe_view.as_json(self._measurement)
        content |= {"layer": self._layer.values, "written": self._path if written else None}
        print(json.dumps(content, indent=2))

    def show(self) -> None:
        """Plot, table, and what they mean."""
        from penstock.runtime.probe import free_bytes
        from penstock.units import format_size

        console = self._console
        free = f"{format_size(free_bytes(self._measurement.directory))} free"
        console.print(f"\n{self._measurement.directory}", style="bold", markup=False, soft_wrap=True, end="")
        console.print(f"  {free}\n", style="dim")
        console.print(probe_view.curves(console, self._measurement))
        console.print()
        console.print(probe_view.table(self._measurement))
        console.print()
        for sentence in probe_view.findings(self._measurement):
            console.print(sentence)
        for sentence in (*probe_view.warnings(self._measurement.directory), *probe_view.doubts(self._measurement)):
            console.print(sentence, style="yellow")
        console.print(f"\n{probe_view.how(self._limits)}", style="dim")

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
            best = self._measurement.best
            doubt = ", with a note that its bandwidth is unsure" if best.unsure or self._measurement.busy else ""
            self._console.print(f"\nWrote the layer [bold]{self._layer.name}[/] into {_shown(self._path)}{doubt}.")
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
            described = f"{what}, {probe_view.streams(progress.streams)}"
            bar.update(task, completed=progress.done, description=described, rate=format_rate(progress.rate))

        yield show


def _shown(path: str) -> str:
    """The shorter way to say where a file is."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def _failure(message: str, status: int) -> typer.Exit:
    typer.echo(f"penstock: {message}", err=True)
    return typer.Exit(status)
