"""The command line: ``penstock VERB``, one module per verb. Nothing is imported before a command is given."""

from __future__ import annotations

import os
import sys

__all__ = ["main"]


def main() -> None:
    """Entry point of the ``penstock`` command."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["run"] and "_PENSTOCK_COMPLETE" not in os.environ:
        from penstock.cli.quick import parse_run

        if (request := parse_run(arguments[1:])) is not None:
            from penstock.cli.launch import launch

            sys.exit(launch(request))

    from penstock.cli.app import app

    app(prog_name="penstock")
