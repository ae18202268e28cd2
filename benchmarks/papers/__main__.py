"""`python -m benchmarks.papers [names]`: replay published experiments, print a table of each, write build/papers.json.

A figure that is not met is a ✗ in the table, not a failure of the run. Charts are printed, and written to build/papers/
where matplotlib is installed. Each experiment has a process of its own, and two run at a time, but for those that
measure what decisions cost; tables come in the same order however long each takes.
"""

import argparse
import os
import sys
from collections.abc import Sequence

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.harness import ROOT
from benchmarks.origin import Origin
from benchmarks.papers import EXPERIMENTS, drawing
from benchmarks.papers.figure import Figure, Replay
from benchmarks.papers.side_by_side import replayed

_MARKS = {True: "[green]✓[/]", False: "[red]✗[/]", None: "–"}


def main() -> int:
    options = _parse()
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    origin = Origin()
    records = []
    replays = []
    took: dict[str, float] = {}
    for name, title, replay, seconds in replayed(options.names or EXPERIMENTS, options.jobs):
        took[name] = seconds
        replays.append(replay)
        console.print(table(title, replay, seconds))
        if not options.no_charts:
            drawing.save(replay.charts, ROOT / "build" / "papers", name)
            for chart in replay.charts:
                console.print(drawing.shown(chart), "")
        records += [{"experiment": name, **msgspec.to_builtins(figure)} for figure in replay.figures]
    if not options.names:
        path = ROOT / "build" / "papers.json"
        path.parent.mkdir(exist_ok=True)
        told = {**origin.told(), "took": took, "figures": records}
        path.write_bytes(msgspec.json.format(msgspec.json.encode(told)) + b"\n")
    console.print("; ".join(f"{name} {seconds:.0f} s" for name, seconds in took.items()))
    console.print(f"{headline([figure for replay in replays for figure in replay.figures])}, {origin}")
    return 0


def headline(figures: Sequence[Figure]) -> str:
    """How many are met; those to which the model was fitted apart, since they prove nothing by themselves."""
    judged = [figure for figure in figures if figure.met is not None]
    parts = []
    for name, fitted in (("predicted", False), ("fitted", True)):
        kind = [figure for figure in judged if figure.fitted is fitted]
        parts.append(f"{sum(figure.met is True for figure in kind)} of {len(kind)} {name}")
    return f"{' and '.join(parts)} figures met"


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(EXPERIMENTS)}; all if none is given")
    parser.add_argument("--no-charts", action="store_true", help="tables only")
    parser.add_argument(
        "--jobs", type=int, default=min(2, os.cpu_count() or 1), metavar="N", help="experiments at a time (%(default)s)"
    )
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(EXPERIMENTS))
    if unknown:
        parser.error(f"no experiment {', '.join(unknown)}; there are {', '.join(EXPERIMENTS)}")
    return options


def table(title: str, replay: Replay, seconds: float) -> Table:
    """What was published beside what came out, and below it what the reader must know."""
    caption = "\n".join(f"· {remark}" for remark in (*replay.remarks, f"replayed in {seconds:.1f} s"))
    shown = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    shown.add_column("figure")
    shown.add_column("published", justify="right")
    shown.add_column("ours", justify="right")
    shown.add_column("unit")
    shown.add_column("how")
    shown.add_column("met", justify="center")
    shown.add_column("note", max_width=60)
    for figure in replay.figures:
        shown.add_row(
            figure.name,
            _value(figure.published),
            _value(figure.ours),
            figure.unit,
            "fitted" if figure.fitted else "predicted",
            _MARKS[figure.met],
            figure.note,
        )
    return shown


def _value(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,.4g}"


if __name__ == "__main__":
    sys.exit(main())
