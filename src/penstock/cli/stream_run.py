"""``penstock stream run``, ``serve`` and ``exec`` as typer sees them: options and help. Others do the work."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["execute", "run", "serve"]

_Dir = Annotated[
    str | None,
    typer.Option(
        "--dir", metavar="DIR", help="Directory that is streamed through.", show_default="CAPIO_DIR, or FILE's"
    ),
]
_Memory = Annotated[
    bool | None, typer.Option("--memory/--in-place", help="Where files live meanwhile. JSON: memory, TOML: in place.")
]
_Strict = Annotated[
    bool, typer.Option("--strict", help="Stop when a program breaks what FILE promises, or is out of reach.")
]
_Limit = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help='Room that all temporary files may take while they are read: "1GB", "off".'),
]
_Stall = Annotated[str, typer.Option(metavar="TIME", help="Tell of programs that have waited this long.")]
_Log = Annotated[bool, typer.Option("--log/--no-log", help="Keep the event log.")]


def run(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Coordination file, TOML.", show_default=False)],
    directory: _Dir = None,
    memory: _Memory = None,
    batch: Annotated[bool, typer.Option("--batch", help="One step after the other, on ordinary files.")] = False,
    strict: _Strict = False,
    limit: _Limit = None,
    stall: _Stall = "30s",
    output: Annotated[
        str | None, typer.Option(metavar="DIR", help="Keep what steps print in DIR/STEP.out and .err.")
    ] = None,
    log: _Log = True,
    progress: Annotated[bool | None, typer.Option("--progress/--no-progress", help="Show what flows.")] = None,
) -> None:
    """Run the steps of a workflow at once; each reads files while others still write them.

    The exit status is 0, or that of the first step that failed.
    """
    from penstock.cli.stream_launch import Request, launch_run

    request = Request(file, directory, memory, strict, limit, stall, log)
    raise typer.Exit(launch_run(request, batch=batch, output=output, progress=progress))


def serve(
    config: Annotated[
        str, typer.Argument(metavar="CONFIG", help="Coordination file, JSON or TOML.", show_default=False)
    ],
    directory: _Dir = None,
    memory: _Memory = None,
    strict: _Strict = False,
    limit: _Limit = None,
    stall: _Stall = "30s",
    log: _Log = False,
    nodes: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="All nodes, the same everywhere: a file with NAME HOST:PORT per line, or a=HOST:PORT,b=HOST:PORT.",
            envvar="PENSTOCK_STREAM_NODES",
        ),
    ] = None,
    node: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which of the nodes this is.", show_default="the host's name")
    ] = None,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where to listen, if not where LIST says.")
    ] = None,
    token_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="The secret that the nodes share; mode 600.", envvar="PENSTOCK_STREAM_TOKEN_FILE"
        ),
    ] = None,
    prefetch: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="How much to fetch from other nodes ahead of what readers ask for; 0: nothing.",
            show_default="CAPIO_PREFETCH_DATA_SIZE, or 16MiB",
        ),
    ] = None,
    lost_after: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Give a node up of which nothing is heard for so long.", show_default="5s"),
    ] = None,
) -> None:
    """Serve a workflow whose programs you start yourself, with `penstock stream exec`.

    Ends at SIGTERM or Ctrl-C, when permanent files have reached their place.
    """
    from penstock.cli.stream_launch import NodesRequest, Request, launch_serve

    among = NodesRequest(nodes, node, listen, token_file, prefetch, lost_after)
    raise typer.Exit(launch_serve(Request(config, directory, memory, strict, limit, stall, log, among)))


def execute(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND", help="The program and its arguments.")],
    app: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which app it is, NAME or NAME:3.", show_default="CAPIO_APP_NAME")
    ] = None,
    workflow: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which workflow, where several are served.")
    ] = None,
    wait: Annotated[str, typer.Option(metavar="TIME", help="How long to wait for the server to be there.")] = "30s",
) -> None:
    """Start a program of a workflow that `penstock stream serve` serves.

    The exit status is that of the program.
    """
    from penstock.cli.stream_exec import launch_exec

    raise typer.Exit(launch_exec(command, app, workflow, wait))
