"""Charts of replayed experiments: as PNG files where matplotlib is installed, and as text for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from math import log10
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from benchmarks.papers.figure import Bars, Chart, Lines
from penstock.observe.plot import Series, linear, plot

__all__ = ["save", "shown"]

_WIDTH = 50
_STYLES = ("cyan", "magenta", "yellow", "green", "red", "blue")


def save(charts: Sequence[Chart], directory: Path, stem: str) -> list[Path]:
    """Write one PNG per chart; none where matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        return []
    matplotlib.use("agg")
    from matplotlib import pyplot

    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for number, chart in enumerate(charts, 1):
        figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
        if isinstance(chart, Bars):
            _draw_bars(axes, chart)
        else:
            _draw_lines(axes, chart)
        axes.set_title(chart.title)
        path = directory / (f"{stem}.png" if len(charts) == 1 else f"{stem}-{number}.png")
        figure.savefig(path, dpi=120)
        pyplot.close(figure)
        written.append(path)
    return written


def _draw_bars(axes: Any, chart: Bars) -> None:
    names = list(chart.ours)
    width = 0.4 if chart.published else 0.7
    places = range(len(names))
    axes.bar([place - width / 2 * bool(chart.published) for place in places], chart.ours.values(), width, label="ours")
    if chart.published:
        known = [(place, chart.published[name]) for place, name in enumerate(names) if name in chart.published]
        axes.bar([p + width / 2 for p, _ in known], [v for _, v in known], width, label="published", color="0.6")
        axes.legend()
    axes.set_xticks(
        list(places), names, rotation=30 if len(names) > 5 else 0, ha="right" if len(names) > 5 else "center"
    )
    axes.set_ylabel(chart.unit)


def _draw_lines(axes: Any, chart: Lines) -> None:
    for name, points in chart.curves.items():
        axes.plot([x for x, _ in points], [y for _, y in points], marker="o", label=name)
    if chart.log_x:
        axes.set_xscale("log", base=2)
    if chart.log_y:
        axes.set_yscale("log")
    axes.set_xlabel(chart.x)
    axes.set_ylabel(chart.y)
    axes.grid(alpha=0.3)
    axes.legend()


def shown(chart: Chart) -> RenderableType:
    """A chart as text."""
    return _bars_as_text(chart) if isinstance(chart, Bars) else _lines_as_text(chart)


def _bars_as_text(chart: Bars) -> RenderableType:
    longest = max([*chart.ours.values(), *chart.published.values()], default=0.0) or 1.0
    table = Table(box=None, show_header=False, padding=(0, 1))
    for name, value in chart.ours.items():
        table.add_row(name, Text("█" * max(1, round(value / longest * _WIDTH)), style="cyan"), f"{value:,.4g}")
        if name in chart.published:
            stated = chart.published[name]
            bar = Text("░" * max(1, round(stated / longest * _WIDTH)))
            table.add_row("", bar, f"{stated:,.4g} published")
    return Group(Text(f"{chart.title} ({chart.unit})"), table)


def _lines_as_text(chart: Lines) -> RenderableType:
    series = [
        Series(name, list(points), _STYLES[number % len(_STYLES)])
        for number, (name, points) in enumerate(chart.curves.items())
    ]
    drawn = plot(series, x_label=chart.x, x_scale=log10 if chart.log_x else linear, y_format=lambda y: f"{y:,g}")
    return Group(Text(f"{chart.title} ({chart.y})"), drawn)
