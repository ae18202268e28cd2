"""The verbs, gathered. Each verb's module imports what it needs when it is called, so that none pays for another.

Typer reads the signature of every function that it is given before it looks at the command line, and needs longer for
all of them than most commands take. So it is given the verb that was asked for, and all only for help and mistakes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer

__all__ = ["app_for"]

HELP = {"help_option_names": ["-h", "--help"]}
# What follows APP on the command line is the program's own, options included.
REST_IS_OF_THE_PROGRAM = {"allow_interspersed_args": False}

#: adds a verb under a name to a command, given the words that follow the name
Verb = Callable[[typer.Typer, str, Sequence[str]], None]


def _verb(module: str, function: str, **context: Any) -> Verb:
    """A verb that is a function of a module."""

    def add(to: typer.Typer, name: str, words: Sequence[str]) -> None:
        to.command(name, context_settings=context)(getattr(import_module(f"penstock.cli.{module}"), function))

    return add


def _group(text: str, verbs: Mapping[str, Verb]) -> Verb:
    """A verb that has verbs of its own."""

    def add(to: typer.Typer, name: str, words: Sequence[str]) -> None:
        group = typer.Typer(no_args_is_help=True, help=text, context_settings=HELP)
        _add(group, verbs, words)
        to.add_typer(group, name=name)

    return add


def _add(to: typer.Typer, verbs: Mapping[str, Verb], words: Sequence[str]) -> None:
    """The verb that the first of these words names, or all of them if it names none."""
    asked = words[0] if words and words[0] in verbs else None
    for name, add in verbs.items():
        if asked in (None, name):
            add(to, name, words[1:])


_STREAM = {
    "run": _verb("stream_run", "run"),
    "serve": _verb("stream_run", "serve"),
    "exec": _verb("stream_run", "execute", **REST_IS_OF_THE_PROGRAM),
    "status": _verb("stream_status", "status"),
    "check": _verb("stream_check", "check"),
    "estimate": _verb("stream_check", "estimate"),
    "schema": _verb("stream_check", "schema"),
}
_STORE = {
    "list": _verb("store", "list_objects"),
    "check": _verb("store", "check"),
    "clean": _verb("store", "clean"),
}
_VERBS = {
    "run": _verb("run", "run", **REST_IS_OF_THE_PROGRAM),
    "simulate": _verb("simulate", "simulate"),
    "doctor": _verb("doctor", "doctor"),
    "recover": _verb("recover", "recover"),
    "config": _verb("config", "config"),
    "probe": _verb("probe", "probe"),
    "tuning": _verb("tuning", "tuning"),
    "store": _group("Look after a store of persistent objects.", _STORE),
    "stream": _group("Stream files between unmodified programs.", _STREAM),
}


def app_for(words: Sequence[str]) -> typer.Typer:
    """The command, for a command line that begins with these words; none: with every verb."""
    app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, context_settings=HELP)
    app.callback()(penstock)
    _add(app, _VERBS, words)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"penstock {version('penstock')}")
        raise typer.Exit


def penstock(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Run Python programs as parallel tasks."""
