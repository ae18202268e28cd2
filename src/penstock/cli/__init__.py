"""The command line: ``penstock VERB``, one module per verb. Nothing is imported before a command is given."""

from __future__ import annotations

import os
import sys

__all__ = ["main"]


def main() -> None:
    """Entry point of the ``penstock`` command."""
    arguments = sys.argv[1:]
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - it was closed: what is said there is for nobody
    completing = "_PENSTOCK_COMPLETE" in os.environ  # a shell asks what could be said next
    if arguments[:1] == ["run"] and not completing:
        from penstock.cli.quick import parse_run

        if (request := parse_run(arguments[1:])) is not None:
            from penstock.cli.launch import launch

            sys.exit(launch(request))

    from penstock.cli.app import app_for

    app_for(() if completing else arguments)(prog_name="penstock")
