"""``penstock config``: each setting, its value and where it came from; then the storage layers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from penstock.runtime.config import Config, Loaded
    from penstock.runtime.found_layers import FoundLayer

__all__ = ["config"]

_SIZES = frozenset({"memory", "store_capacity", "serialization_memory", "read_cache"})


def config() -> None:
    """Show each setting, its value and its origin, and the storage layers, fastest first."""
    from rich.console import Console

    from penstock.errors import ConfigError
    from penstock.runtime.config import load_config
    from penstock.runtime.found_layers import known_layers

    console = Console(highlight=False)
    try:
        loaded = load_config({})
        console.print(_settings(loaded))
        known = known_layers(loaded.config)
    except ConfigError as error:
        typer.echo(f"penstock: {error}", err=True)
        raise typer.Exit(2) from None
    console.print()
    console.print(_layers(known))
    if any(one.guessed for one in known):
        console.print("guessed: run `penstock probe DIR` to measure", style="dim")


def _settings(loaded: Loaded) -> Table:
    from rich.markup import escape

    from penstock.runtime.config import SETTINGS

    found = _found_out(loaded.config)
    table = _table("setting", "value", "origin")
    for name in SETTINGS:
        value = getattr(loaded.config, name)
        origin = loaded.origins[name]
        shown, note = (_show(name, value), "") if value is not None else found[name]
        style = "dim" if origin == "default" else "green"
        table.add_row(name, escape(shown), f"[{style}]{escape(origin + note)}[/]")
    return table


def _layers(known: Iterable[FoundLayer]) -> Table:
    """The storage layers and how we know of them."""
    from rich.markup import escape

    from penstock.units import format_rate, format_size

    table = _table("layer", "mount", "bandwidth", "capacity", "shared", "origin")
    for one in known:
        layer = one.layer
        capacity = "no limit" if layer.capacity is None else format_size(layer.capacity)
        origin = f"[dim]found: {one.kind}, guessed[/]" if one.guessed else "[green]described[/]"
        origin += ", temporary files only" if layer.temporary else ""
        origin += ", enforced" if layer.enforced else ""
        cells = (layer.name, layer.mount, format_rate(layer.bandwidth), capacity, "yes" if layer.shared else "no")
        table.add_row(*map(escape, cells), origin)
    return table


def _table(*headings: str) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def _show(name: str, value: object) -> str:
    from penstock.runtime.layers import DescribedLayer
    from penstock.units import format_duration, format_rate, format_size

    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(value) or "none"
    if name == "countable" and isinstance(value, tuple):
        return ", ".join(f"{what}={count}" for what, count in value) or "none"
    if isinstance(value, tuple):  # of tables, which a line has no room for
        names = [one.layer.name if isinstance(one, DescribedLayer) else one.name for one in value]
        return ", ".join(names) or "none"
    if name == "read_cache" and not value:
        return "off"
    if name in _SIZES and isinstance(value, int):
        return format_size(value)
    if name in ("io_ageing", "retry_delay", "stall") and isinstance(value, float):
        return format_duration(value)
    if name == "store":
        from penstock.persistent.where import shown

        return shown(str(value))
    if name == "tuning_ceiling" and isinstance(value, float):
        return format_rate(value)
    if name == "tuning_tolerance" and isinstance(value, float):
        return f"{100 * value:g}%" if value else "off"
    return str(value)


def _found_out(config: Config) -> dict[str, tuple[str, str]]:
    """Value and note for each setting that was left open."""
    from penstock.runtime.directories import free_bytes, memory_parent
    from penstock.runtime.machine import this_machine

    machine = this_machine()
    memory = memory_parent(config)
    free = free_bytes(memory) if memory else 0
    return {
        "cpus": (str(machine.cpus), f": {machine.cpus_limit}"),
        "memory": (_show("memory", machine.memory), f": {machine.memory_limit}"),
        "setup": ("none", ""),
        "tasks_per_worker": ("none", ": workers live as long as the run"),
        "run_dir": ("temporary", "; under penstock run: .penstock/APP-TIME"),
        "log": ("auto", ": when there is a run_dir"),
        "progress": ("auto", ": under penstock run"),
        "memory_dir": (memory or "auto", "" if memory else ": in the run directory, for want of shared memory"),
        "store_capacity": (_show("store_capacity", free // 2), f": half of free {memory or 'shared memory'}"),
        "spill_dir": ("auto", ": on storage layers, else in the run directory"),
        "serialization_memory": (
            _show("serialization_memory", machine.budget(None)),
            ": a quarter of free memory",
        ),
        "store": ("auto", ": local:penstock-store, where the program is started"),
        "stall": ("off", ""),
        "retry_delay": ("auto", ": 1 s after what looks like an outage, else none"),
        "io_ageing": ("off", ""),
        "tuning": ("auto", ": in the user's cache directory"),
        "profiles": ("auto", ": in the user's cache directory"),
        "tuning_ceiling": ("none", ""),
        "resources_file": ("none", ""),
        "storage": ("auto", ": see below"),
    }
