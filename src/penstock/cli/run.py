"""``penstock run`` as typer sees it: its options and their help. ``launch`` does the work."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["run"]


def run(
    app: Annotated[str, typer.Argument(metavar="APP", help="Python file to run.", show_default=False)],
    args: Annotated[list[str] | None, typer.Argument(metavar="ARGS", help="Its own arguments.")] = None,
    module: Annotated[bool, typer.Option("-m", "--module", help="APP is the name of a module.")] = False,
    cpus: Annotated[str | None, typer.Option(metavar="N", help="Computing units to use.")] = None,
    memory: Annotated[str | None, typer.Option(metavar="SIZE", help='Memory tasks may reserve: "8GB".')] = None,
    countable: Annotated[
        str | None, typer.Option(metavar="NAME=N,…", help='What tasks may count: "gpus=2,licences=4".')
    ] = None,
    scheduler: Annotated[str | None, typer.Option(metavar="NAME", help="Scheduling policy.")] = None,
    run_dir: Annotated[
        str | None, typer.Option(metavar="DIR", help="Run directory.", show_default=".penstock/APP-TIME")
    ] = None,
    log: Annotated[bool | None, typer.Option("--log/--no-log", help="Keep the event log.")] = None,
    progress: Annotated[bool | None, typer.Option("--progress/--no-progress", help="Show progress.")] = None,
    mode: Annotated[str | None, typer.Option(metavar="MODE", help='"parallel", or "inline" to debug.')] = None,
    strict: Annotated[
        bool | None, typer.Option("--strict/--no-strict", help="Report tasks that change an IN argument.")
    ] = None,
    window: Annotated[str | None, typer.Option(metavar="N", help="Pending tasks before APP has to wait.")] = None,
    io_executors: Annotated[
        str | None, typer.Option("--io-executors", "--io_executors", metavar="N", help="I/O tasks at a time.")
    ] = None,
    io_scheduler: Annotated[
        str | None,
        typer.Option("--io-scheduler", "--io_scheduler", metavar="NAME", help='"fcfs", "priority" or "backfilling".'),
    ] = None,
    io_ageing: Annotated[
        str | None, typer.Option(metavar="TIME", help='How long an I/O task may be passed over: "60s", or "off".')
    ] = None,
    data_movement: Annotated[
        bool | None,
        typer.Option("--data-movement/--no-data-movement", help="Move data to lower layers while no I/O runs."),
    ] = None,
    data_movement_word: Annotated[
        str | None, typer.Option("--data_movement", metavar="true|false", help="The same, as PyCOMPSs spells it.")
    ] = None,
    resources: Annotated[
        str | None, typer.Option(metavar="FILE", help="Take storage layers from a COMPSs resources file (XML).")
    ] = None,
    tuner: Annotated[
        str | None, typer.Option(metavar="NAME", help='How constraints are learned: "adaptive" or "published".')
    ] = None,
    tuning_ceiling: Annotated[
        str | None, typer.Option(metavar="RATE", help='Largest constraint that may be learned: "64MB/s".')
    ] = None,
    tuning_tolerance: Annotated[
        str | None, typer.Option(metavar="SHARE", help='Published: estimates this near are equal: "2%", or "off".')
    ] = None,
    tuning_counts: Annotated[
        str | None, typer.Option(metavar="WHERE", help='Published: count tasks at a time per "cluster" or "node".')
    ] = None,
) -> None:
    """Run APP, its tasks in parallel, and sum up.

    The exit status is that of APP.
    """
    if data_movement is not None and data_movement_word is not None:
        raise typer.BadParameter("give one of --data-movement and --data_movement")

    from penstock.cli.launch import launch
    from penstock.cli.quick import RunRequest

    flags: dict[str, object] = {
        "cpus": cpus,
        "memory": memory,
        "countable": countable,
        "scheduler": scheduler,
        "run_dir": run_dir,
        "log": log,
        "progress": progress,
        "mode": mode,
        "strict": strict,
        "window": window,
        "io_executors": io_executors,
        "io_scheduler": io_scheduler,
        "io_ageing": io_ageing,
        "data_movement": data_movement if data_movement_word is None else data_movement_word,
        "resources_file": resources,
        "tuner": tuner,
        "tuning_ceiling": tuning_ceiling,
        "tuning_tolerance": tuning_tolerance,
        "tuning_counts": tuning_counts,
    }
    given = {name: value for name, value in flags.items() if value is not None}
    raise typer.Exit(launch(RunRequest(app, args or [], module, given)))
