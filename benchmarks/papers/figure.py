"""What a replayed experiment hands over: figures for the table, and charts.

A figure says what was published, what came out here, and whether our model was fitted to it. A figure that was fitted
proves nothing by itself; the others are predictions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

__all__ = ["Bars", "Chart", "Figure", "Lines", "Replay"]

Point = tuple[float, float]


class Figure(Struct, frozen=True):
    """One line of the table."""

    name: str
    published: float | str
    ours: float | str
    unit: str
    #: a parameter of the model was chosen so that this comes out
    fitted: bool
    #: near to what was published, from above as from below; None where nothing was published that could be missed
    met: bool | None
    #: how far off it is and why, where it is
    note: str = ""


class Bars(Struct, frozen=True):
    """A chart of one value per case; the published ones beside them where they are known."""

    title: str
    unit: str
    ours: Mapping[str, float]
    published: Mapping[str, float] = {}


class Lines(Struct, frozen=True):
    """A chart of curves, by name."""

    title: str
    x: str
    y: str
    curves: Mapping[str, Sequence[Point]]
    log_x: bool = False
    log_y: bool = False


Chart = Bars | Lines


class Replay(Struct, frozen=True):
    """All that came of one experiment."""

    figures: Sequence[Figure]
    charts: Sequence[Chart] = ()
    #: what the reader of the table must know: choices, readings, what was fitted
    remarks: Sequence[str] = ()
