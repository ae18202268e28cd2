"""What ``penstock tuning`` shows of a layer: its curve as bars, what was chosen, and how sure that is."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from penstock.tuning.registry import Delivery

__all__ = ["plain_delivery", "show_delivery"]

_BAR = 32
_EIGHTHS = " ▏▎▍▌▋▊▉"
#: of what is best: within this, others are as good
_AS_GOOD = 0.02


def show_delivery(console: Console, entry: Delivery, learned: datetime) -> None:
    """The curve, and what it says."""
    from rich.markup import escape
    from rich.padding import Padding

    from penstock.units import format_count, format_rate

    console.print(f"[bold]{escape(entry.layer)}[/]: {escape(entry.function)}", soft_wrap=True)
    when = learned.astimezone().strftime("%Y-%m-%d %H:%M")
    console.print(
        f"[dim]described with {format_rate(entry.bandwidth)}, {entry.executors} I/O executors · "
        f"{format_count(entry.attempts)} tasks · learned {when}[/]"
    )
    console.print(Padding(_table(entry), (0, 0, 0, 1)))
    console.print(f"→ {_why(entry)}\n")


def _table(entry: Delivery) -> Table:
    from rich.table import Table

    from penstock.units import format_rate

    most = max(point.rate for point in entry.curve)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("")
    table.add_column("at a time", justify="right")
    table.add_column("delivered", justify="right")
    table.add_column("±", justify="right")
    table.add_column("")
    for point in entry.curve:
        best = point.concurrency == entry.best
        table.add_row(
            "▸" if best else "",
            str(point.concurrency),
            format_rate(point.rate),
            f"{point.error:.0%}",
            _bar(point.rate / most),
            style="green" if best else "",
        )
    return table


def _bar(part: float) -> str:
    whole, rest = divmod(round(part * _BAR * 8), 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")


def _why(entry: Delivery) -> str:
    from penstock.units import format_rate

    rates = {point.concurrency: point for point in entry.curve}
    best = rates.get(entry.best)
    if best is None:
        return f"{entry.best} at a time; it was not measured again since the device changed."
    sentence = f"{entry.best} at a time, each reserving {format_rate(entry.bandwidth / entry.best)}."
    others = [point for point in entry.curve if point.concurrency != entry.best]
    if not others:
        return f"{sentence} No other number was tried."
    other = max(others, key=lambda point: point.rate)
    unsure = max(best.error, other.error, entry.spread, _AS_GOOD)
    if other.rate > best.rate * (1 - unsure):
        return f"{sentence} {other.concurrency} deliver as much, within {unsure:.0%}."
    return f"{sentence} The next best, {other.concurrency}, deliver {1 - other.rate / best.rate:.0%} less."


def plain_delivery(entry: Delivery, learned: datetime) -> dict[str, Any]:
    """The same for programs."""
    return {
        "layer": entry.layer,
        "access": entry.function,
        "bandwidth": entry.bandwidth,
        "executors": entry.executors,
        "learned": learned,
        "best": entry.best,
        "chosen": entry.bandwidth / entry.best,
        "attempts": entry.attempts,
        "spread": entry.spread,
        "steady": entry.steady,
        "why": _why(entry),
        "curve": [
            {"concurrency": point.concurrency, "delivered": point.rate, "error": point.error} for point in entry.curve
        ],
    }
