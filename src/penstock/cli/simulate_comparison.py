"""What a sweep shows: all combinations side by side, and the makespan over the first setting that is a number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.cli.simulate_settings import read_settings
from penstock.cli.simulate_sweep import Trial, words
from penstock.observe.analysis import Analysis
from penstock.observe.plot import Series, plot
from penstock.sim.sweeps import Point
from penstock.units import format_count, format_duration

__all__ = ["comparison", "comparison_plot", "show_comparison"]

_STYLES = ("cyan", "magenta", "green", "yellow", "blue", "red")
_REMARK = "largest part of the critical path"
#: what a remark needs to say anything
_SHORTEST_REMARK = 24
#: columns that a narrow terminal can do without, the first first
_DISPENSABLE = (_REMARK, "I/O", "in use", "vs best", "vs first")
_GAP = 2


def show_comparison(points: Sequence[Point[Trial]], console: Console) -> None:
    """Print the table, why combinations failed, and the plot."""
    console.print(comparison(points, console))
    for point in points:
        if point.outcome.analysis is None:
            console.print(f"{words(point.settings)}: {point.outcome.problem}", markup=False)
    drawn = comparison_plot(points, console)
    if drawn is not None:
        console.print("\nmakespan", style="bold")
        console.print(drawn)


def comparison(points: Sequence[Point[Trial]], console: Console) -> Table:
    """All combinations side by side, the shortest run marked."""
    made = [point.outcome.analysis for point in points if point.outcome.analysis is not None]
    best = min((analysis.makespan for analysis in made), default=0.0)
    rows = [_row(point, points[0].outcome.analysis, best, console) for point in points]
    columns = _columns(rows, console.width)
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="dim")
    for name, width in columns.items():
        is_text = name == _REMARK or (name in points[0].settings and _axis(points, name) is None)
        justify = "left" if is_text else "right"
        table.add_column(name, justify=justify, width=width, overflow="ellipsis", no_wrap=True)  # type: ignore[arg-type]
    for row, point in zip(rows, points, strict=True):
        style = "red" if point.outcome.analysis is None else "bold green" if row[""] else ""
        table.add_row(*(Text(row.get(name, "")) for name in columns), style=style)
    return table


def _row(point: Point[Trial], first: Analysis | None, best: float, console: Console) -> dict[str, str]:
    """The cells of a combination, by heading."""
    analysis = point.outcome.analysis
    row = {name: str(value) for name, value in point.settings.items()}
    if analysis is None:
        return row | {"makespan": "failed", "": ""}
    is_best = analysis.makespan <= best * (1 + 1e-9)
    return row | {
        "makespan": format_duration(analysis.makespan),
        "": ("<" if console.options.ascii_only else "◀") if is_best else "",
        "vs first": _relative(analysis, first),
        "vs best": "" if is_best or not best else f"{analysis.makespan / best:.2f}×",
        "in use": f"{analysis.utilisation:.0%}",
        "I/O": format_duration(analysis.io_seconds) if analysis.io_seconds else "",
        "failed": format_count(analysis.failed) if analysis.failed else "",
        _REMARK: _largest_part(analysis),
    }


def _columns(rows: Sequence[Mapping[str, str]], room: int) -> dict[str, int]:
    """The headings that are shown, and their widths."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    # A column in which nothing stands (no I/O tasks, no failures) only takes room.
    shown = [name for name in names if any(row.get(name) for row in rows)]
    widths = {name: max(len(text) for text in (name, *(row.get(name, "") for row in rows))) for name in shown}
    for name in _DISPENSABLE:
        others = sum(width + _GAP for other, width in widths.items() if other != name)
        if name in widths and others + widths[name] > room:
            if name == _REMARK and room - others >= _SHORTEST_REMARK:
                widths[name] = room - others
            else:
                del widths[name]
    return widths


def _largest_part(analysis: Analysis) -> str:
    path = analysis.critical_path
    parts = {f"{name} runs": seconds for name, seconds in path.functions.items()}
    parts |= {f"waiting for {reason}": seconds for reason, seconds in path.reasons.items()}
    parts |= {kind: seconds for kind, seconds in path.seconds.items() if kind not in ("running", "waiting")}
    if not parts or not analysis.makespan:
        return ""
    name, seconds = max(parts.items(), key=lambda part: part[1])
    return f"{name} {seconds / analysis.makespan:.0%}"


def _relative(analysis: Analysis, first: Analysis | None) -> str:
    if first is None or analysis is first or not first.makespan:
        return ""
    change = analysis.makespan / first.makespan - 1
    return "=" if abs(change) < 5e-4 else f"{change:+.0%}" if abs(change) >= 0.095 else f"{change:+.1%}"


def comparison_plot(points: Sequence[Point[Trial]], console: Console) -> Text | None:
    """Makespan over the first setting that is a number, a curve for each combination of the others; or nothing."""
    axes = [name for name in points[0].settings if _axis(points, name)]
    if not axes:
        return None
    unit, numbers = _axis(points, axes[0]) or ("", {})
    curves: dict[str, list[tuple[float, float]]] = {}
    for point in points:
        if point.outcome.analysis is not None:
            others = {name: value for name, value in point.settings.items() if name != axes[0]}
            place = (numbers[point.settings[axes[0]]], point.outcome.analysis.makespan)
            curves.setdefault(words(others) or "makespan", []).append(place)
    if not 0 < len(curves) <= len(_STYLES) or not any(len(curve) > 1 for curve in curves.values()):
        return None
    return plot(
        [Series(name, sorted(curve), style) for (name, curve), style in zip(curves.items(), _STYLES, strict=False)],
        width=min(console.width, 100) - 2,
        x_label=f"{axes[0]}{unit}",
        y_format=lambda seconds: format_duration(seconds) if seconds else "0",
        ascii_only=console.options.ascii_only,
    )


def _axis(points: Sequence[Point[Trial]], name: str) -> tuple[str, dict[str, float]] | None:
    """The values of a setting as numbers, and their unit, if they can be an axis."""
    values = list(dict.fromkeys(point.settings[name] for point in points))
    if len(values) < 2 or name in _NO_AXIS:
        return None
    setting = read_settings({name: values[0]})
    if name.startswith("layer."):
        numbers = {value: read_settings({name: value}).layers[0].value for value in values}
        is_rate = setting.layers[0].what == "bandwidth"
        return (" (MB/s)", _scaled(numbers, 1e6)) if is_rate else (" (GB)", _scaled(numbers, 1e9))
    numbers = {value: getattr(read_settings({name: value}), name) for value in values}
    if not all(isinstance(number, int | float) for number in numbers.values()):
        return None
    return (" (GB)", _scaled(numbers, 1e9)) if name == "memory" else ("", numbers)


#: settings that are no quantities
_NO_AXIS = ("seed", "data_movement", "scheduler", "io_scheduler", "network")


def _scaled(numbers: Mapping[str, float], unit: float) -> dict[str, float]:
    return {value: number / unit for value, number in numbers.items()}
