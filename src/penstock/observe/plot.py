"""A plot for the terminal: a few curves over one axis, drawn with the dots of braille characters.

``plot`` gives a ``rich`` text of a stated width, which any verb can print; colours are names of rich styles and vanish
where there are none, so curves are told apart by their marks too. Where only ASCII can be shown, it is drawn in that.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich.text import Text

__all__ = ["Series", "linear", "plot"]

#: dots of a braille character by (row, column)
_BRAILLE = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_ROWS_PER_CELL, _COLUMNS_PER_CELL = 4, 2
_STEPS = (1, 2, 2.5, 5, 10)
_TICKS = 4
_MARGIN = 2


class Series(NamedTuple):
    """One curve: its name in the legend, its points from left to right, its rich style."""

    name: str
    points: Sequence[tuple[float, float]]
    style: str


class _Alphabet(NamedTuple):
    marks: str
    #: where points of several curves fall together
    shared: str
    tick_y: str
    side: str
    corner: str
    floor: str
    tick_x: str
    #: shown for any dots of a curve; empty for braille
    dot: str


_UNICODE = _Alphabet("●○◆◇■□", "◉", "┤", "│", "└", "─", "┬", "")
_ASCII = _Alphabet("*o#x%+", "@", "+", "|", "+", "-", "+", ".")


def linear(value: float) -> float:
    """A scale on which equal steps are equally far apart."""
    return value


def plot(
    series: Sequence[Series],
    *,
    width: int = 72,
    height: int = 12,
    x_label: str = "",
    x_scale: Callable[[float], float] = linear,
    y_format: Callable[[float], str] = str,
    ascii_only: bool = False,
) -> Text:
    """Draw curves whose values start at zero. Ticks of the x axis are the positions of the points themselves."""
    alphabet = _ASCII if ascii_only else _UNICODE
    step, top = _nice_axis(max(y for one in series for _, y in one.points))
    labels = {_row(tick * step / top, height): y_format(tick * step) for tick in range(round(top / step) + 1)}
    gutter = max(map(len, labels.values()))
    canvas = _Canvas(max(8, width - gutter - 3), height, alphabet)
    xs = sorted({x for one in series for x, _ in one.points})
    column = _columns(xs, x_scale, canvas.columns)
    for number, one in enumerate(series):
        canvas.draw([(column[x], y / top) for x, y in one.points], number)

    lines = []
    for row in range(height):
        tick = alphabet.tick_y if row in labels else alphabet.side
        line = Text(f"{labels.get(row, ''):>{gutter}} {tick}", style="dim")
        lines.append(line.append_text(canvas.line(row, [one.style for one in series])))
    indent = " " * (gutter + 1)
    lines += [Text(indent + line, style="dim") for line in _x_axis(xs, column, canvas.columns, alphabet)]
    if x_label:
        lines.append(Text(indent + x_label.center(canvas.columns).rstrip(), style="dim"))
    lines.append(_legend(series, indent, alphabet))
    return Text("\n").join(lines)


class _Canvas:
    """Cells of the terminal, each with dots of curves and perhaps a mark."""

    def __init__(self, columns: int, rows: int, alphabet: _Alphabet) -> None:
        self.columns = columns
        self._rows = rows
        self._alphabet = alphabet
        self._dots: dict[tuple[int, int], int] = {}
        self._owner: dict[tuple[int, int], int] = {}
        self._marks: dict[tuple[int, int], tuple[str, int]] = {}

    def draw(self, points: Sequence[tuple[int, float]], number: int) -> None:
        """Draw a curve through points given as column and height from 0 to 1."""
        places = [(column * _COLUMNS_PER_CELL, self._dot_row(height)) for column, height in points]
        for start, end in itertools.pairwise(places):
            self._line(start, end, number)
        for x, y in places:
            cell = (y // _ROWS_PER_CELL, x // _COLUMNS_PER_CELL)
            mark = self._alphabet.marks[number % len(self._alphabet.marks)]
            if cell in self._marks and self._marks[cell][1] != number:
                mark = self._alphabet.shared
            self._marks[cell] = (mark, number)

    def line(self, row: int, styles: Sequence[str]) -> Text:
        """The cells of a row from left to right, without the empty ones at its end."""
        text = Text()
        filled = [column for line, column in (*self._dots, *self._marks) if line == row]
        for column in range(max(filled, default=-1) + 1):
            cell = (row, column)
            if cell in self._marks:
                mark, number = self._marks[cell]
                text.append(mark, styles[number])
            elif cell in self._dots:
                text.append(self._alphabet.dot or chr(0x2800 + self._dots[cell]), styles[self._owner[cell]])
            else:
                text.append(" ")
        return text

    def _dot_row(self, height: float) -> int:
        return round((1 - height) * (self._rows * _ROWS_PER_CELL - 1))

    def _line(self, start: tuple[int, int], end: tuple[int, int], number: int) -> None:
        steps = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
        for step in range(steps + 1):
            x = round(start[0] + (end[0] - start[0]) * step / steps)
            y = round(start[1] + (end[1] - start[1]) * step / steps)
            cell = (y // _ROWS_PER_CELL, x // _COLUMNS_PER_CELL)
            bit = _BRAILLE[y % _ROWS_PER_CELL][x % _COLUMNS_PER_CELL]
            self._dots[cell] = self._dots.get(cell, 0) | bit
            self._owner[cell] = number


def _nice_axis(peak: float) -> tuple[float, float]:
    """Distance between ticks, and the end of an axis from zero to at least ``peak``."""
    rough = peak / _TICKS
    if rough <= 0:  # also where a number is too small to be divided
        return 1.0, 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next((factor * power for factor in _STEPS if factor * power >= rough), 10 * power)
    return step, math.ceil(peak / step - 1e-9) * step


def _row(height: float, rows: int) -> int:
    return round((1 - height) * (rows * _ROWS_PER_CELL - 1)) // _ROWS_PER_CELL


def _columns(xs: Sequence[float], scale: Callable[[float], float], columns: int) -> dict[float, int]:
    """The column of each position, with a little air at both ends."""
    first, last = scale(xs[0]), scale(xs[-1])
    room = columns - 1 - 2 * _MARGIN
    span = last - first
    return {x: _MARGIN + (round((scale(x) - first) / span * room) if span else room // 2) for x in xs}


def _x_axis(xs: Sequence[float], column: dict[float, int], columns: int, alphabet: _Alphabet) -> tuple[str, str]:
    """The floor with its ticks, and their labels; labels that would touch are left out."""
    ticks = {column[x] for x in xs}
    floor = alphabet.corner + "".join(alphabet.tick_x if at in ticks else alphabet.floor for at in range(columns))
    labels = ""
    for x in xs:
        label = f"{x:g}"
        start = max(0, column[x] + 1 - len(label) // 2)
        if not labels or start > len(labels):
            labels = labels.ljust(start) + label
    return floor, labels


def _legend(series: Sequence[Series], indent: str, alphabet: _Alphabet) -> Text:
    line = Text(indent + " " * (_MARGIN + 1))
    for number, one in enumerate(series):
        line.append(f"{alphabet.marks[number % len(alphabet.marks)]} {one.name}", one.style)
        line.append("   ")
    line.rstrip()
    return line
