"""``penstock stream``: unmodified programs that exchange files, streamed. One module per verb of the group."""

from __future__ import annotations

import typer

from penstock.cli.stream_check import check, estimate, schema
from penstock.cli.stream_run import execute, run, serve
from penstock.cli.stream_status import status

__all__ = ["stream"]

stream = typer.Typer(
    no_args_is_help=True,
    help="Stream files between unmodified programs.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
stream.command()(run)
stream.command()(serve)
# What follows the options is the command of a step, with options of its own.
stream.command("exec", context_settings={"allow_interspersed_args": False})(execute)
stream.command()(status)
stream.command()(check)
stream.command()(estimate)
stream.command()(schema)
