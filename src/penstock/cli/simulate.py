"""``penstock simulate``: its options, and what it shows.

arguments checked ──▶ one simulation, or a sweep of many ──▶ analysis ──▶ terminal, JSON, plot
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.own_threads import OwnThread

if TYPE_CHECKING:
    from penstock.cli.simulate_command import Command

__all__ = ["simulate"]

_FAILED, _USAGE, _INTERRUPTED, _TERMINATED = 1, 2, 130, 143


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
    default_duration: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long a task takes of which nothing is known.")
    ] = None,
    main_time: Annotated[
        bool,
        typer.Option("--main-time", help="The time that the program takes for itself counts; it differs each time."),
    ] = False,
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
    as_json: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write the analysis as JSON; - prints it.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show nothing but what the program prints.")] = False,
    lifeline: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run INPUT on virtual time, on a machine that need not exist, and tell where the time went.

    Tasks are not executed: they take their declared, recorded or given time.
    """
    from penstock.errors import ConfigError, PenstockError

    if lifeline is not None:
        OwnThread("lifeline", _end_with, lifeline).start()
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
    try:
        from penstock.cli.simulate_command import Command
        from penstock.cli.simulate_output import check_outputs

        settings = {name: value for name, value in flags.items() if value is not None} | _layer_settings(layer or [])
        command = Command(
            given=given,
            args=args or [],
            module=module,
            settings=settings,
            durations=duration or [],
            default_duration=default_duration,
            main_time=main_time,
            lose=lose or [],
            files_under=os.path.abspath(files_under) if files_under else "",
        )
        command.check()
        check_outputs(as_json, plot)
        if sweep and log is not None:
            raise ConfigError(f"--log {log}: a sweep is of many runs, and a log of one; leave out the one or the other")
        if sweep:
            raise typer.Exit(_compare(command, sweep, as_json, plot))
        raise typer.Exit(_run(command, log, as_json, plot, quiet=quiet))
    except PenstockError as error:
        print(f"penstock: {error}", file=sys.stderr)
        raise typer.Exit(_USAGE) from None
    except KeyboardInterrupt:
        print("penstock: interrupted", file=sys.stderr)
        raise typer.Exit(_INTERRUPTED) from None
    except BrokenPipeError:  # whoever read it has read enough
        _forget_output()
        raise typer.Exit(_FAILED) from None
    except OSError as error:
        _forget_output()
        print(f"penstock: cannot print: {error.strerror}", file=sys.stderr)
        raise typer.Exit(_FAILED) from None


def _end_with(lifeline: int) -> None:
    """End when whoever holds the other end of a pipe does: nobody wants to know any more what comes of this."""
    os.read(lifeline, 1)
    os._exit(_TERMINATED)


def _layer_settings(layers: list[str]) -> dict[str, str]:
    from penstock.errors import ConfigError

    settings = {}
    for text in layers:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--layer {text}: expected NAME.bandwidth=VALUE or NAME.capacity=VALUE")
        settings[f"layer.{name.strip()}"] = value.strip()
    return settings


def _forget_output() -> None:
    """Nothing can be printed any more: what is left must not be tried again at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# --- one simulation ---------------------------------------------------------------------------------------------------


def _run(command: Command, log: str | None, as_json: str | None, plot: str | None, *, quiet: bool) -> int:
    """Simulate, show and write what came of it; the exit status."""
    from penstock.cli.program import print_exception
    from penstock.cli.simulate_input import simulate_once
    from penstock.cli.simulate_output import STANDARD_OUTPUT, console, title, write_analysis
    from penstock.observe.analysis import analyse_history

    run = simulate_once(command.request(log, quiet=quiet))
    analysis = analyse_history(run.history)
    if as_json is not None:
        error = "" if run.error is None else f"{type(run.error).__name__}: {run.error}"
        write_analysis(as_json, command.given, command.settings, analysis, error)
    heading = title(command.given, run.machine)
    if plot is not None:
        from penstock.observe.figures import draw_analysis

        draw_analysis(analysis, plot, heading)
    # A program that fell over before it came to anything has nothing to show but why.
    if not quiet and as_json != STANDARD_OUTPUT and not (run.error is not None and not run.history.calls):
        from penstock.observe.analysis_view import analysis_view

        shown = console()
        heading += "" if run.error is None else "; the program fell over"
        shown.print(analysis_view(analysis, shown, heading))
        for what, path in (("event log", log), ("plot", plot)):
            if path is not None:
                shown.print(f"\n{what}: {path}", markup=False)
    if run.error is not None:
        sys.stdout.flush()
        print_exception(run.error)
        return _FAILED
    return run.status or (_FAILED if analysis.failed else 0)


# --- sweeps -----------------------------------------------------------------------------------------------------------


def _compare(command: Command, sweeps: list[str], as_json: str | None, plot: str | None) -> int:
    """Simulate all combinations of the settings that are swept; the exit status."""
    from penstock.cli.simulate_comparison import show_comparison
    from penstock.cli.simulate_output import STANDARD_OUTPUT, console, write_json
    from penstock.cli.simulate_sweep import SweepInterrupted, run_sweep

    grid = _grid(command, sweeps)
    signal.signal(signal.SIGTERM, _end)  # or the processes of the combinations would go on
    interrupted = False
    try:
        points = run_sweep(command.words(), command.args, grid, console(stderr=True))
    except SweepInterrupted as interruption:
        points, interrupted = interruption.finished, True
    if points and as_json != STANDARD_OUTPUT:
        show_comparison(points, console())
    if plot is not None:
        from penstock.observe.figures import draw_comparison

        rows = [(p.settings, p.outcome.analysis.makespan) for p in points if p.outcome.analysis is not None]
        draw_comparison(rows, plot, command.given)
    if as_json is not None:
        write_json(as_json, [{"settings": p.settings, "outcome": p.outcome} for p in points])
    if interrupted:
        raise KeyboardInterrupt
    return _FAILED if any(point.outcome.analysis is None for point in points) else 0


def _grid(command: Command, sweeps: list[str]) -> dict[str, list[str]]:
    """The settings that are swept, with their values, all of which can be meant."""
    from penstock.cli.simulate_input import check_layers
    from penstock.cli.simulate_settings import split_sweep
    from penstock.errors import ConfigError

    grid: dict[str, list[str]] = {}
    for text in sweeps:
        name, values = split_sweep(text)
        if name in grid:
            raise ConfigError(f"--sweep {text}: {name} is swept already; give all its values at once")
        if name in command.settings:
            raise ConfigError(f"--sweep {text}: {name}={command.settings[name]} is given too; keep one of the two")
        grid[name] = values
    firsts = {name: values[0] for name, values in grid.items()}
    check_layers(command.request(None, quiet=True), command.settings | firsts)
    return grid


def _end(number: int, frame: object) -> None:
    raise SystemExit(_TERMINATED)
