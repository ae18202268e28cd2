"""``penstock store``: what a store of persistent objects holds, whether it is in order, and how to tidy it up."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from penstock.persistent.stores import Store
    from penstock.persistent.upkeep import Report

__all__ = ["check", "clean", "list_objects"]

Address = Annotated[
    str | None,
    typer.Argument(metavar="[STORE]", help="local:FOLDER, a folder, redis://HOST:PORT, …; the one of the settings."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON; sizes in bytes.")]


def list_objects(address: Address = None, as_json: Json = False) -> None:
    """List the objects of a store: their classes, sizes, and how many older states are kept of them."""
    from penstock.units import format_size

    with _opened(address) as (_, report):
        if as_json:
            _print_json([_plain(one) for one in report.objects])
            return
        rows = [
            (
                one.identifier,
                one.manifest.current.kind,
                format_size(one.manifest.current.size),
                str(len(one.manifest.kept) or ""),
                format_size(sum(entry.size for entry in one.manifest.kept)) if one.manifest.kept else "",
                "damaged" if one.current_is_damaged else "",
            )
            for one in report.objects
        ]
        if rows:
            _print_table(("id", "class", "size", "older states", "their size", ""), rows, right=(2, 3, 4))
        else:
            typer.echo("no objects")


def check(address: Address = None, as_json: Json = False) -> None:
    """Say whether a store is in order: objects that have lost bytes, bytes of no object, what dead programs left.

    The exit status is 1 if something is not.
    """
    with _opened(address) as (_, report):
        _print_findings(report, as_json)
        if not report.is_fine:
            raise typer.Exit(1)


def clean(
    address: Address = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    damaged: Annotated[bool, typer.Option("--damaged", help="Remove objects too that have lost bytes.")] = False,
    as_json: Json = False,
) -> None:
    """Remove what dead programs have left, and bytes of no object. What living programs use is not touched.

    The exit status is 1 if objects that have lost bytes stay.
    """
    from penstock.persistent import upkeep

    with _opened(address) as (opened, report):
        _print_findings(report, as_json, verb="would be removed" if dry_run else "removed")
        if not dry_run:
            upkeep.clean(opened, report, damaged=damaged)
        if (report.damaged and not damaged) or report.strange:
            raise typer.Exit(1)


@contextlib.contextmanager
def _opened(address: str | None) -> Iterator[tuple[Store, Report]]:
    from penstock.errors import PenstockError
    from penstock.persistent.upkeep import inspect
    from penstock.persistent.where import open_store

    try:
        opened = open_store(_existing(address))
        try:
            yield opened, inspect(opened)
        finally:
            opened.close()
    except PenstockError as error:
        typer.echo(f"penstock: {error}", err=True)
        raise typer.Exit(2) from None


def _existing(address: str | None) -> str:
    """The address of a store; to open a folder that is none would make it one."""
    from penstock.errors import ConfigError

    if address is None:
        from penstock.runtime.config import load_config

        address = load_config({}).config.store or "local:penstock-store"
    if address.startswith(("redis-start:", "memory:")):
        raise ConfigError(f"{address} is a store that lasts as long as its program: there is nothing to look after")
    if ":" not in address or os.path.isdir(address):
        address = f"local:{address}"
    folder = address.removeprefix("local:")
    if address.startswith("local:") and not os.path.isdir(os.path.join(folder, "objects")):
        why = "is no store of persistent objects" if os.path.isdir(folder) else "does not exist"
        raise ConfigError(f"the folder {folder or '.'} {why}")
    return address


def _findings(report: Report) -> list[tuple[str, int, int]]:
    """What there is: a name, how many, bytes."""
    states = [entry for one in report.objects for entry in one.manifest.kept]
    left = [entry for _, entry in report.left]
    return [
        ("objects", len(report.objects), sum(one.manifest.current.size for one in report.objects)),
        (
            "older states that are kept",
            len(states) - len(left),
            sum(e.size for e in states) - sum(e.size for e in left),
        ),
        ("programs that use it", len(report.living), 0),
        ("dead programs", len(report.dead), 0),
        ("states that dead programs left", len(left), sum(entry.size for entry in left)),
        ("blocks of no object", len(report.orphans), sum(one.size for one in report.orphans)),
        ("objects that have lost blocks", len(report.damaged), sum(o.manifest.current.size for o in report.damaged)),
        ("entries that are no objects", len(report.strange), 0),
    ]


def _print_findings(report: Report, as_json: bool, verb: str = "") -> None:
    from penstock.units import format_count, format_size

    findings = _findings(report)
    if as_json:
        plain = {name.replace(" ", "_"): {"count": count, "bytes": size} for name, count, size in findings}
        names = {"damaged": [one.identifier for one in report.damaged], "strange": list(report.strange)}
        _print_json({**plain, **names, "fine": report.is_fine})
        return
    removed = findings[3:6]
    rows = [
        (name, format_count(count), format_size(size) if size else "", verb if finding in removed and count else "")
        for finding in findings
        for name, count, size in [finding]
    ]
    _print_table(("", "count", "size", ""), rows, right=(1, 2))
    for one in report.damaged:
        typer.echo(f"lost: {one.identifier} ({one.manifest.current.kind})")
    for name in report.strange:
        typer.echo(f"no object of ours: {name}")


def _plain(one: Any) -> dict[str, Any]:
    current = one.manifest.current
    return {
        "id": one.identifier,
        "class": current.kind,
        "bytes": current.size,
        "generation": current.generation,
        "older_states": [{"bytes": entry.size, "run": entry.keeper} for entry in one.manifest.kept],
        "damaged": one.current_is_damaged,
    }


def _print_json(value: object) -> None:
    import msgspec

    typer.echo(msgspec.json.format(msgspec.json.encode(value)).decode())


def _print_table(headings: tuple[str, ...], rows: Sequence[tuple[str, ...]], right: tuple[int, ...]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(escape(cell.encode(errors="backslashreplace").decode()) for cell in row))
    Console(highlight=False).print(table)
