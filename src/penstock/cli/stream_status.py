"""``penstock stream status``: ask the servers of this user how their workflows stand."""

from __future__ import annotations

import time
from typing import Annotated

import typer

__all__ = ["status"]


def status(
    workflow: Annotated[str | None, typer.Argument(metavar="NAME", help="Only this workflow.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Once a second, until the workflow is over.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per workflow.")] = False,
) -> None:
    """Show the workflows that stream now: steps, files, bytes in flight, and who waits for what.

    The exit status is 1 if there is none.
    """
    shown = _show(workflow, as_json)
    while watch and shown:
        time.sleep(1)
        if not as_json:
            print()
        shown = _show(workflow, as_json)
    if not watch and not shown:
        print(f"no workflow {workflow} streams now" if workflow else "no workflow streams now")
        raise typer.Exit(1)


def _show(workflow: str | None, as_json: bool) -> bool:
    from penstock.errors import ConfigError
    from penstock.streaming.control import ask
    from penstock.streaming.folders import living_servers

    found = False
    for identity in living_servers():
        if workflow is not None and identity.name != workflow:
            continue
        try:
            answer = ask(identity)
        except ConfigError:
            continue  # it starts, or ends, just now
        found = True
        if as_json:
            import msgspec

            print(msgspec.json.encode(answer).decode())
        else:
            _print(answer)
    return found


def _print(answer: object) -> None:
    from rich.console import Console
    from rich.markup import escape

    from penstock.cli.stream_view import status_tables
    from penstock.streaming.status import Status
    from penstock.units import format_duration

    assert isinstance(answer, Status)
    console = Console(highlight=False)
    where = f"{answer.root}, {answer.placement}, process {answer.pid}, {format_duration(answer.elapsed)}"
    console.print(f"[bold]{escape(answer.name)}[/]  {escape(where)}", soft_wrap=True)
    for table in status_tables(answer):
        console.print(table)
    for text in answer.waits:
        console.print(f"  {escape(text)}", soft_wrap=True)
    for text in answer.warnings:
        console.print(f"[yellow]! {escape(text)}[/]", soft_wrap=True)
