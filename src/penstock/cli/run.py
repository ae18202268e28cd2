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
) -> None:
    """Run APP, its tasks in parallel, and sum up.

    The exit status is that of APP.
    """
    from penstock.cli.launch import launch
    from penstock.cli.quick import RunRequest

    flags: dict[str, object] = {
        "cpus": cpus,
        "memory": memory,
        "scheduler": scheduler,
        "run_dir": run_dir,
        "log": log,
        "progress": progress,
        "mode": mode,
        "strict": strict,
        "window": window,
    }
    given = {name: value for name, value in flags.items() if value is not None}
    raise typer.Exit(launch(RunRequest(app, args or [], module, given)))
