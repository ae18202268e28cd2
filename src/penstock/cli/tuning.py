"""``penstock tuning``: what auto constraints have learned, which value they would choose, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from penstock.cli.profiles import show_profiles

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from penstock.runtime.cache_file import CacheFile, Record
    from penstock.runtime.config import Config
    from penstock.runtime.tuning_cache import Entry
    from penstock.tuning.objective import Choice, Estimate
    from penstock.tuning.registry import Learned

__all__ = ["tuning"]


class _Asked(NamedTuple):
    """What a choice depends on besides what was learned."""

    #: how many wait, on one node
    tasks: int
    #: estimates that differ by less than this part are equal
    tolerance: float


def tuning(
    function: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this function, by its full name or the end of it.")
    ] = None,
    layer: Annotated[str | None, typer.Option(metavar="NAME", help="Only this storage layer.")] = None,
    tasks: Annotated[int, typer.Option(min=1, help="Estimate the time of this many tasks, on one node.")] = 100,
    profiles: Annotated[bool, typer.Option("--profiles", help="Show how long functions take instead.")] = False,
    clear: Annotated[bool, typer.Option("--clear", help="Forget it, to be learned anew by the next run.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON: bytes per second, and seconds.")] = False,
    file: Annotated[str | None, typer.Option(metavar="PATH", help="Another file than the configured one.")] = None,
) -> None:
    """Show what earlier runs learned: about storage bandwidth, or how long functions take.

    What each storage layer delivered to so many tasks at a time, as functions with storage_bw="auto" found out.
    For what was learned in epochs (tuner = "published"): the value that is chosen depends on how many tasks wait,
    see --tasks.
    """
    from rich.console import Console

    from penstock.cli.delivery import show_delivery
    from penstock.runtime.cache_file import matches
    from penstock.runtime.profiles import profile_cache
    from penstock.runtime.tuning_cache import tuning_cache
    from penstock.tuning.registry import Delivery

    config = _config()
    path = file or _configured_path(config, "profiles" if profiles else "tuning")
    asked = _Asked(tasks, config.tuning_tolerance)
    if clear:
        _clear(profile_cache(path) if profiles else tuning_cache(path), function, layer, json)
        return
    if profiles:
        show_profiles(path, function, layer, json=json)
        return
    everything = tuning_cache(path).records()
    found = [record for record in everything if matches(record.entry, function, layer) and _says_something(record)]
    if json:
        import msgspec

        typer.echo(msgspec.json.format(msgspec.json.encode([_in_json(record, asked) for record in found])).decode())
        return
    console = Console(highlight=False)
    if not found:
        _say_nothing_found(console, everything, path)
    for record in found:
        if isinstance(record.entry, Delivery):
            show_delivery(console, record.entry, record.learned)
        else:
            _show(console, record, asked)  # type: ignore[arg-type]


def _says_something(record: Record[Entry]) -> bool:
    from penstock.tuning.registry import Learned

    return not isinstance(record.entry, Learned) or bool(record.entry.measures)


def _in_json(record: Record[Entry], asked: _Asked) -> dict[str, Any]:
    from penstock.cli.delivery import plain_delivery
    from penstock.tuning.registry import Delivery

    if isinstance(record.entry, Delivery):
        return plain_delivery(record.entry, record.learned)
    return _plain(record, asked)  # type: ignore[arg-type]


def _config() -> Config:
    from penstock.errors import ConfigError
    from penstock.runtime.config import load_config

    try:
        return load_config({}).config
    except ConfigError as error:
        typer.echo(f"penstock: {error}", err=True)
        raise typer.Exit(2) from None


def _configured_path(config: Config, setting: str) -> str:
    from penstock.runtime.cache_file import default_path

    path: str | None = getattr(config, setting)
    # Where this project keeps nothing, what other programs have learned is still there to be seen.
    return default_path(f"{setting}.json") if path is None or path == "off" else path


def _clear(cache: CacheFile[Any], function: str | None, layer: str | None, json: bool) -> None:
    try:
        count = cache.clear(function, layer)
    except OSError as error:
        typer.echo(f"penstock: cannot clear {cache.path}: {error.strerror or error}", err=True)
        raise typer.Exit(1) from None
    if json:
        typer.echo(f'{{"cleared": {count}}}')
    else:
        typer.echo(f"forgot {count} {'entry' if count == 1 else 'entries'} of {cache.path}")


def _say_nothing_found(console: Console, everything: list[Record[Entry]], path: str) -> None:
    from rich.markup import escape

    if everything:
        console.print("Nothing was learned for that. There is:", soft_wrap=True)
        for record in everything:
            console.print(f"  {escape(record.entry.function)} on {escape(record.entry.layer)}", soft_wrap=True)
        return
    console.print(f"Nothing was learned yet [dim](no entries in {escape(path)})[/].", soft_wrap=True)
    console.print(
        'Give an I/O task @constraint(storage_bw="auto") and run the program: the bandwidth that each such task '
        "should reserve is learned while it runs, and kept here.",
        markup=False,
    )


def _plain(record: Record[Learned], asked: _Asked) -> dict[str, Any]:
    from penstock.tuning.spec import shown

    entry = record.entry
    estimates, choice = _judge(entry, asked)
    return {
        "function": entry.function,
        "layer": entry.layer,
        "bandwidth": entry.bandwidth,
        "executors": entry.executors,
        "constraint": shown(entry.auto),
        "ceiling": entry.ceiling,
        "learned": record.learned,
        "tasks": asked.tasks,
        "chosen": choice.constraint,
        "why": _why(entry, estimates, choice, asked),
        "measures": [
            {
                "constraint": one.measure.constraint,
                "seconds": one.measure.seconds,
                "concurrency": one.measure.concurrency,
                "tasks": one.measure.tasks,
                "partial": one.measure.partial,
                "estimate": one.seconds,
                "chosen": one.measure is choice.measure,
            }
            for one in estimates
        ],
    }


def _judge(entry: Learned, asked: _Asked) -> tuple[list[Estimate], Choice]:
    from penstock.tuning.epochs import highest_constraint
    from penstock.tuning.objective import choose, estimate

    there = (entry.bandwidth, entry.executors)
    estimates = [estimate(measure, entry.measures, asked.tasks, 1, *there) for measure in entry.measures]
    most = highest_constraint(entry.auto, entry.bandwidth, entry.ceiling)
    return estimates, choose(entry.measures, asked.tasks, 1, *there, most=most, tie=asked.tolerance)


def _show(console: Console, record: Record[Learned], asked: _Asked) -> None:
    from rich.markup import escape
    from rich.padding import Padding

    from penstock.tuning.spec import shown
    from penstock.units import format_rate

    entry = record.entry
    estimates, choice = _judge(entry, asked)
    learned = record.learned.astimezone().strftime("%Y-%m-%d %H:%M")
    ceiling = f", at most {format_rate(entry.ceiling)}" if entry.ceiling is not None else ""
    console.print(f"[bold]{escape(entry.function)}[/] on [bold]{escape(entry.layer)}[/]", soft_wrap=True)
    console.print(
        f"[dim]{shown(entry.auto)}{ceiling} · {format_rate(entry.bandwidth)}, {entry.executors} I/O executors · "
        f"learned {learned}[/]"
    )
    console.print(Padding(_table(estimates, choice, asked.tasks), (0, 0, 0, 1)))
    console.print(f"→ {_why(entry, estimates, choice, asked)}\n")


def _table(estimates: list[Estimate], choice: Choice, tasks: int) -> Table:
    from rich.table import Table

    from penstock.units import format_count, format_duration, format_rate

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("")
    for heading in ("constraint", "tasks", "at a time", "mean time", f"{format_count(tasks)} tasks"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for one in estimates:
        measure = one.measure
        chosen = measure is choice.measure
        table.add_row(
            "▸" if chosen else "",
            format_rate(measure.constraint),
            format_count(measure.tasks),
            format_count(measure.concurrency),
            format_duration(measure.seconds),
            format_duration(one.seconds),
            "partial" if measure.partial else "",
            style="green" if chosen else "",
        )
    return table


def _why(entry: Learned, estimates: list[Estimate], choice: Choice, asked: _Asked) -> str:
    """The choice in words: how its time comes about, and what decided between near ones."""
    from penstock.units import format_count, format_duration, format_rate

    tasks = asked.tasks
    chosen = next(one for one in estimates if one.measure is choice.measure)
    best = min(estimates, key=lambda one: one.seconds)
    parts = []
    if chosen.groups:
        mean, together = format_duration(chosen.measure.seconds), format_count(chosen.concurrency)
        several = f"{format_count(chosen.groups)} groups of {together}, {mean} each"
        parts.append(several if chosen.groups > 1 else f"a group of {together}, {mean}")
    if chosen.rest:
        left = "left over" if chosen.groups else "at a time"
        parts.append(f"{format_count(chosen.rest)} {left}, {format_duration(chosen.rest_seconds)}")
    sentence = (
        f"{format_rate(choice.constraint)} for {format_count(tasks)} {'task' if tasks == 1 else 'tasks'}: "
        f"{'; '.join(parts)}."
    )
    if len(entry.measures) == 1:
        return f"{sentence} It is the only value that was tried and paid."
    if best is chosen:
        return f"{sentence} No other value is as quick."
    return (
        f"{sentence} {format_rate(best.measure.constraint)} is estimated at {format_duration(best.seconds)}, "
        f"within {100 * asked.tolerance:.3g}%: of equals the highest constraint is taken, for it congests the device "
        "least."
    )
