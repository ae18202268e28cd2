"""``penstock tuning --profiles``: how long functions took in earlier runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from penstock.model.profiles import Profile
    from penstock.runtime.cache_file import Record

__all__ = ["show_profiles"]


def show_profiles(path: str, function: str | None, layer: str | None, *, json: bool) -> None:
    """Print the profiles that match, slowest first."""
    from penstock.runtime.cache_file import matches
    from penstock.runtime.profiles import profile_cache

    found = [record for record in profile_cache(path).records() if matches(record.entry, function, layer)]
    found.sort(key=lambda record: -record.entry.mean)
    if json:
        import msgspec

        plain = [{**msgspec.structs.asdict(record.entry), "learned": record.learned} for record in found]
        typer.echo(msgspec.json.format(msgspec.json.encode(plain)).decode())
    elif found:
        from rich.console import Console

        Console(highlight=False).print(_table(found))
    else:
        typer.echo(f"no such function in {path}" if function or layer else f"nothing was measured yet ({path})")


def _table(found: list[Record[Profile]]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    from penstock.units import format_count, format_duration

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("function", overflow="fold")
    table.add_column("layer")
    for heading in ("measured", "mean", "spread", "last run"):
        table.add_column(heading, justify="right")
    for record in found:
        one = record.entry
        table.add_row(
            escape(one.function),
            escape(one.layer) or "[dim]any[/]",
            format_count(one.count),
            format_duration(one.mean),
            f"± {format_duration(one.deviation)}",
            record.learned.astimezone().strftime("%Y-%m-%d %H:%M"),
        )
    return table
