"""``penstock simulate``: its options, and what it shows.

arguments checked ──▶ one simulation, or a sweep of many ──▶ analysis ──▶ terminal, JSON, plot
"""

from __future__ import annotations

import io
import os
import signal
import sys
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from penstock.cli.simulate_input import Request, SimulatedRun
    from penstock.observe.analysis import Analysis

__all__ = ["simulate"]

_FAILED, _USAGE, _INTERRUPTED, _TERMINATED = 1, 2, 130, 143
#: parts of the critical path that JSON has room for
_MOST_SEGMENTS = 1000


def simulate(
    given: Annotated[
        str,
        typer.Argument(
            metavar="INPUT",
            help="A program, the run directory or event log of a recorded run, or a workflow in WfFormat (JSON).",
            show_default=False,
        ),
    ],
    args: Annotated[list[str] | None, typer.Argument(metavar="[-- ARGS]", help="Arguments of a program.")] = None,
    module: Annotated[bool, typer.Option("-m", "--module", help="INPUT is the name of a module.")] = False,
    nodes: Annotated[str | None, typer.Option(metavar="N", help="Number of nodes.")] = None,
    cores: Annotated[str | None, typer.Option(metavar="N", help="Computing units of each node.")] = None,
    memory: Annotated[str | None, typer.Option(metavar="SIZE", help='Memory of each node: "96GB".')] = None,
    io_executors: Annotated[str | None, typer.Option(metavar="N", help="I/O tasks at a time on each node.")] = None,
    scheduler: Annotated[str | None, typer.Option(metavar="NAME", help="Scheduling policy.")] = None,
    io_scheduler: Annotated[
        str | None, typer.Option(metavar="NAME", help='"fcfs", "priority" or "backfilling".')
    ] = None,
    data_movement: Annotated[
        str | None, typer.Option(metavar="true|false", help="Move data to lower layers while no I/O runs.")
    ] = None,
    network: Annotated[
        str | None, typer.Option(metavar="RATE[,TIME]", help='Bandwidth and latency of a node\'s link: "12GB/s,2us".')
    ] = None,
    layer: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME.WHAT=VALUE", help='Another "bandwidth" or "capacity": "ssd.bandwidth=900MB/s".'),
    ] = None,
    decision_cost: Annotated[
        str | None, typer.Option(metavar="TIME", help='Time the master needs for an event: "50us", or "measured".')
    ] = None,
    seed: Annotated[str | None, typer.Option(metavar="N", help="For whatever is left to chance.")] = None,
    duration: Annotated[
        list[str] | None,
        typer.Option(metavar="TASK=TIME", help='How long a task takes: "f=2s", "f=lognormal(2,0.3)". Repeat it.'),
    ] = None,
    lose: Annotated[
        list[str] | None, typer.Option(metavar="NODE@TIME", help='Lose a node: "node-3@90s". Repeat it.')
    ] = None,
    files_under: Annotated[
        str | None, typer.Option(metavar="DIR", help="Where a workflow's files lie: they use the layer there.")
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(metavar="SETTING=A,B,C", help='Compare: "nodes=10,50,100". Repeated: all combinations.'),
    ] = None,
    log: Annotated[str | None, typer.Option(metavar="FILE", help="Write the event log, as of a real run.")] = None,
    plot: Annotated[
        str | None, typer.Option(metavar="FILE", help="Draw it (.png, .svg, .pdf); needs matplotlib.")
    ] = None,
    as_json: Annotated[str | None, typer.Option("--json", metavar="FILE", help="Write the analysis as JSON.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show nothing but what the program prints.")] = False,
) -> None:
    """Run INPUT on virtual time, on a machine that need not exist, and tell where the time went.

    Tasks are not executed: they take their declared, recorded or given time.
    """
    from penstock.errors import ConfigError, PenstockError

    flags = {
        "nodes": nodes,
        "cores": cores,
        "memory": memory,
        "io_executors": io_executors,
        "scheduler": scheduler,
        "io_scheduler": io_scheduler,
        "data_movement": data_movement,
        "network": network,
        "decision_cost": decision_cost,
        "seed": seed,
    }
    settings = {name: value for name, value in flags.items() if value is not None}
    try:
        command = _Command(
            given, args or [], module, settings, layer or [], duration or [], lose or [], files_under or ""
        )
        _check_outputs(as_json, plot)
        if sweep and log is not None:
            raise ConfigError(f"--log {log}: a sweep is of many runs, and a log of one; leave out the one or the other")
        if sweep:
            raise typer.Exit(command.compare(sweep, as_json, plot))
        raise typer.Exit(command.run(log, as_json, plot, quiet=quiet))
    except PenstockError as error:
        print(f"penstock: {error}", file=sys.stderr)
        raise typer.Exit(_USAGE) from None
    except KeyboardInterrupt:
        print("penstock: interrupted", file=sys.stderr)
        raise typer.Exit(_INTERRUPTED) from None


class _Command:
    """What was asked for, checked."""

    def __init__(
        self,
        given: str,
        args: list[str],
        module: bool,
        settings: dict[str, str],
        layers: list[str],
        durations: list[str],
        lose: list[str],
        files_under: str,
    ) -> None:
        from penstock.cli.simulate_input import kind_of
        from penstock.cli.simulate_settings import read_settings
        from penstock.errors import ConfigError

        for text in layers:
            name, equals, value = text.partition("=")
            if not equals:
                raise ConfigError(f"--layer {text}: expected NAME.bandwidth=VALUE or NAME.capacity=VALUE")
            settings[f"layer.{name.strip()}"] = value.strip()
        self._given, self._args, self._module = given, args, module
        self._settings = settings
        self._durations, self._lose, self._files_under = durations, lose, files_under
        read_settings(settings)
        kind_of(given, as_module=module)

    def run(self, log: str | None, as_json: str | None, plot: str | None, *, quiet: bool) -> int:
        """One simulation; the exit status."""
        from penstock.cli.program import print_exception
        from penstock.cli.simulate_input import ProgramFailed, simulate_once
        from penstock.observe.analysis import analyse_history

        request = self._request(log, quiet=quiet)
        try:
            run = simulate_once(request)
        except ProgramFailed as failure:
            print_exception(failure.error)
            return _FAILED
        analysis = analyse_history(run.history)
        if as_json is not None:
            _write_json(as_json, self._given, self._settings, analysis)
        if plot is not None:
            from penstock.observe.figures import draw_analysis

            draw_analysis(analysis, plot, self._title(run))
        if not quiet:
            self._show(run, analysis, log, plot)
        return run.status or (_FAILED if analysis.failed else 0)

    def _request(self, log: str | None, *, quiet: bool) -> Request:
        from penstock.cli.simulate_input import Request
        from penstock.cli.simulate_settings import read_settings
        from penstock.runtime.simulated_durations import parse_given

        return Request(
            input=self._given,
            args=self._args,
            as_module=self._module,
            settings=read_settings(self._settings),
            durations=dict(map(parse_given, self._durations)),
            lose=self._lose,
            files_under=self._files_under,
            log=log,
            progress=not quiet,
        )

    def _title(self, run: SimulatedRun) -> str:
        from penstock.units import format_count

        nodes = run.machine.nodes
        cpus = {node.cpus for node in nodes}
        units = f"{cpus.pop()} cores" if len(cpus) == 1 else f"{min(cpus)} to {max(cpus)} cores"
        place = f"{format_count(len(nodes))} nodes of {units}" if len(nodes) > 1 else f"1 node of {units}"
        return f"{self._given}, simulated on {place}, {run.machine.scheduler}"

    def _show(self, run: SimulatedRun, analysis: Analysis, log: str | None, plot: str | None) -> None:
        from penstock.observe.analysis_view import analysis_view

        console = _console()
        console.print(analysis_view(analysis, console, self._title(run)))
        for what, path in (("event log", log), ("plot", plot)):
            if path is not None:
                console.print(f"\n{what}: {path}", markup=False)

    # --- sweeps -------------------------------------------------------------------------------------------------------

    def compare(self, sweeps: list[str], as_json: str | None, plot: str | None) -> int:
        """All combinations of the settings that are swept; the exit status."""
        from penstock.cli.simulate_comparison import comparison, comparison_plot
        from penstock.cli.simulate_settings import split_sweep
        from penstock.cli.simulate_sweep import run_sweep, words
        from penstock.errors import ConfigError

        grid: dict[str, list[str]] = {}
        for text in sweeps:
            name, values = split_sweep(text)
            if name in grid:
                raise ConfigError(f"--sweep {text}: {name} is swept already; give all its values at once")
            if name in self._settings:
                raise ConfigError(f"--sweep {text}: {name}={self._settings[name]} is given too; keep one of the two")
            grid[name] = values
        signal.signal(signal.SIGTERM, _end)  # or the processes of the combinations would go on
        points = run_sweep(self._same_in_all(), self._args, grid, _console(stderr=True))
        console = _console()
        console.print(comparison(points, console))
        for point in points:
            if point.outcome.analysis is None:
                console.print(f"{words(point.settings)}: {point.outcome.problem}", markup=False)
        drawn = comparison_plot(points, console)
        if drawn is not None:
            console.print("\nmakespan", style="bold")
            console.print(drawn)
        if plot is not None:
            from penstock.observe.figures import draw_comparison

            rows = [(p.settings, p.outcome.analysis.makespan) for p in points if p.outcome.analysis is not None]
            draw_comparison(rows, plot, self._given)
        if as_json is not None:
            _write(as_json, [{"settings": p.settings, "outcome": p.outcome} for p in points])
        return _FAILED if any(point.outcome.analysis is None for point in points) else 0

    def _same_in_all(self) -> list[str]:
        """The words of the command that each combination gets."""
        words = ["-m"] if self._module else []
        for name, value in self._settings.items():
            if name.startswith("layer."):
                words += ["--layer", f"{name.removeprefix('layer.')}={value}"]
            else:
                words += [f"--{name.replace('_', '-')}", value]
        for flag, texts in (("--duration", self._durations), ("--lose", self._lose)):
            words += [word for text in texts for word in (flag, text)]
        words += ["--files-under", self._files_under] if self._files_under else []
        return [self._given, *words]


def _end(number: int, frame: object) -> None:
    raise SystemExit(_TERMINATED)


def _check_outputs(as_json: str | None, plot: str | None) -> None:
    """Say before a long simulation what could not be written after it."""
    from penstock.errors import ConfigError

    if as_json is not None and not os.path.isdir(os.path.dirname(as_json) or "."):
        raise ConfigError(f"--json {as_json}: there is no directory {os.path.dirname(as_json)}")
    if plot is not None:
        from penstock.observe.figures import check_figure

        check_figure(plot)


def _console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")  # a terminal that knows no "µ" is no reason to fail
    return Console(stderr=stderr, highlight=False, emoji=False)


def _write_json(path: str, given: str, settings: dict[str, str], analysis: Analysis) -> None:
    import msgspec

    path_ = analysis.critical_path
    if len(path_.segments) > _MOST_SEGMENTS:
        longest = sorted(path_.segments, key=lambda segment: segment.seconds, reverse=True)[:_MOST_SEGMENTS]
        kept = sorted(longest, key=lambda segment: segment.start)
        analysis = msgspec.structs.replace(analysis, critical_path=msgspec.structs.replace(path_, segments=kept))
    _write(path, {"input": given, "settings": settings, "analysis": analysis})


def _write(path: str, content: object) -> None:
    import msgspec

    from penstock.errors import ConfigError

    text = msgspec.json.format(msgspec.json.encode(content), indent=1)
    try:
        with open(path, "wb") as file:
            file.write(text + b"\n")
    except OSError as error:
        raise ConfigError(f"--json {path}: cannot write it: {error.strerror}") from None
