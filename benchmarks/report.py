"""What a person and what a program get: one table on the terminal, the same records as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.table import Table

from benchmarks.origin import Origin
from benchmarks.row import PEERS, Record

MARKS = {True: "[green]✓[/]", False: "[bold red]✗[/]", None: "–"}


def table(records: Sequence[Record], caption: str) -> Table:
    view = Table(title="Penstock and its peers", caption=caption)
    view.add_column("benchmark", min_width=24)
    view.add_column("ours", justify="right", style="bold")
    view.add_column("unit")
    for peer in PEERS:
        view.add_column(peer, justify="right")
    for header in ("ratio", "budget", "met", "took"):
        view.add_column(header, justify="right")
    for record in records:
        figures = [number(record.peers.get(peer)) for peer in PEERS]
        ratio = "" if record.ratio is None else f"{record.ratio:.3g} ×"
        took = f"{record.seconds:.0f} s" if record.seconds >= 0.5 else ""
        judged = (ratio, record.budget, MARKS[record.met], took)
        view.add_row(record.name, number(record.ours), record.unit, *figures, *judged)
    return view


def write_json(records: Sequence[Record], origin: Origin, quick: bool, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    told = {**origin.told(), "quick": quick, "records": [asdict(record) for record in records]}
    text = json.dumps(told, indent=2, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def number(value: float | None) -> str:
    """As the tables show it; empty for what was not taken."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
