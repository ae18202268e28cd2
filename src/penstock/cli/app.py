"""The verbs, gathered. Each verb's module imports what it needs when it is called, so that none pays for another."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.config import config
from penstock.cli.doctor import doctor
from penstock.cli.probe import probe
from penstock.cli.run import run
from penstock.cli.simulate import simulate
from penstock.cli.store import store
from penstock.cli.stream import stream
from penstock.cli.tuning import tuning

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# What follows APP on the command line is the program's own, options included.
app.command(context_settings={"allow_interspersed_args": False})(run)
app.command()(simulate)
app.command()(doctor)
app.command()(config)
app.command()(probe)
app.command()(tuning)
app.add_typer(store, name="store")
app.add_typer(stream, name="stream")


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"penstock {version('penstock')}")
        raise typer.Exit


@app.callback()
def penstock(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Run Python programs as parallel tasks."""
