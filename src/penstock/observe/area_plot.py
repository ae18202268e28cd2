"""A quantity over time for the terminal, as a filled area of block characters.

``plot`` draws curves through a few points; this draws what has a value at every moment, such as tasks that run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.text import Text

from penstock.units import format_count, format_duration

__all__ = ["area_plot"]

_EIGHTHS = " ▁▂▃▄▅▆▇█"
_COARSE = " ..::||##"


def area_plot(
    values: Sequence[float],
    *,
    span: float,
    width: int,
    height: int = 6,
    top: float = 0.0,
    style: str = "cyan",
    ascii_only: bool = False,
) -> Text:
    """Draw the means of equal spans of time, from 0 to ``span`` seconds; the axis reaches at least to ``top``."""
    top = max(top, *values, 1e-9)
    labels = {0: format_count(top), height - 1: "0"}
    if height > 4:
        labels[height // 2] = format_count(top * (height - height // 2 - 0.5) / height)
    gutter = max(map(len, labels.values()))
    columns = max(8, width - gutter - 2)
    heights = [_eighths(value / top, height) for value in _resampled(values, columns)]
    glyphs = _COARSE if ascii_only else _EIGHTHS
    side, tick, corner, floor = ("|", "+", "+", "-") if ascii_only else ("│", "┤", "└", "─")
    lines = []
    for row in range(height):
        base = 8 * (height - 1 - row)
        line = Text(f"{labels.get(row, ''):>{gutter}} {tick if row in labels else side}", style="dim")
        lines.append(line.append("".join(glyphs[max(0, min(8, high - base))] for high in heights).rstrip(), style))
    lines.append(Text(" " * (gutter + 1) + corner + floor * columns, style="dim"))
    lines.append(Text(" " * (gutter + 2) + _time_labels(span, columns), style="dim"))
    return Text("\n").join(lines)


def _eighths(share: float, height: int) -> int:
    """How high in eighths of a line; what is not nothing is seen."""
    return max(1, round(share * height * 8)) if share > 0 else 0


def _resampled(values: Sequence[float], columns: int) -> list[float]:
    """One mean for each column."""
    means = []
    per_column = len(values) / columns
    for column in range(columns):
        first, last = column * per_column, (column + 1) * per_column
        total = 0.0
        for index in range(int(first), min(len(values), math.ceil(last - 1e-9))):
            total += values[index] * (min(index + 1, last) - max(index, first))
        means.append(total / per_column)
    return means


def _time_labels(span: float, columns: int) -> str:
    """Times at equal distances, as many as there is room for."""
    parts = max(1, min(4, columns // 14))
    line = "0"
    for part in range(1, parts + 1):
        label = format_duration(span * part / parts)
        end = columns * part // parts
        start = end - len(label) if part == parts else end - len(label) // 2
        line = line.ljust(start) + label
    return line
