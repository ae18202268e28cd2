"""``penstock config``: each setting, its value and where it came from."""

from __future__ import annotations

import typer

__all__ = ["config"]

_SIZES = frozenset({"memory", "store_capacity"})


def config() -> None:
    """Show each setting, its value and its origin."""
    from rich.console import Console
    from rich.table import Table

    from penstock.errors import ConfigError
    from penstock.runtime.config import SETTINGS, load_config

    try:
        loaded = load_config({})
    except ConfigError as error:
        typer.echo(f"penstock: {error}", err=True)
        raise typer.Exit(2) from None
    found = _found_out()
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("setting", "value", "origin"):
        table.add_column(heading, overflow="fold")
    for name in SETTINGS:
        value = getattr(loaded.config, name)
        origin = loaded.origins[name]
        shown, note = (_show(name, value), "") if value is not None else found[name]
        style = "dim" if origin == "default" else "green"
        table.add_row(name, shown, f"[{style}]{origin + note}[/]")
    Console().print(table)


def _show(name: str, value: object) -> str:
    from penstock.units import format_size

    if isinstance(value, bool):
        return "yes" if value else "no"
    if name in _SIZES and isinstance(value, int):
        return format_size(value)
    return str(value)


def _found_out() -> dict[str, tuple[str, str]]:
    """Value and note for each setting that was left open."""
    from penstock.runtime.machine import this_machine

    machine = this_machine()
    return {
        "cpus": (str(machine.cpus), f": {machine.cpus_limit}"),
        "memory": (_show("memory", machine.memory), f": {machine.memory_limit}"),
        "run_dir": ("temporary", "; under penstock run: .penstock/APP-TIME"),
        "log": ("auto", ": when there is a run_dir"),
        "progress": ("auto", ": under penstock run"),
        "store_capacity": (_show("store_capacity", machine.shm_free // 2), ": half of free /dev/shm"),
        "spill_dir": ("auto", ": in the run directory"),
    }
