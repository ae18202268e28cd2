"""Runs of one program on storage layers in several settings, and the figures and charts that come of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.papers.cte_power import BASELINE, Measured, Setting
from benchmarks.papers.figure import Bars, Figure

__all__ = ["MEANING", "Runs"]

MEANING = (
    "I/O time: seconds in which any I/O task runs on a node, mean of the nodes; the source does not define its own. "
    "Total time ends with the last task, before files go home"
)


class Runs:
    """What was measured, against the parallel file system alone."""

    def __init__(self, measured: Mapping[Setting, Measured]) -> None:
        self._measured = measured

    def __getitem__(self, setting: Setting) -> Measured:
        return self._measured[setting]

    def saved(self, setting: Setting) -> float:
        return 100 * (1 - self[setting].total / self[BASELINE].total)

    def speed_up(self, setting: Setting) -> float:
        return self[BASELINE].io / self[setting].io

    def saves(self, setting: Setting, published: float, *, fitted: bool) -> Figure:
        """Total time against the parallel file system alone; within three points counts as reached."""
        ours = self.saved(setting)
        off = ours - published
        note = "" if abs(off) <= 3 else f"{off:+.0f} points"
        return Figure(f"total time saved by {setting}", published, ours, "%", fitted, abs(off) <= 3, note)

    def speeds_up(self, setting: Setting, published: str) -> Figure:
        """I/O time against the parallel file system alone; `published` ends with the number; far more is not met."""
        ours = self.speed_up(setting)
        ratio = ours / float(published.rsplit(maxsplit=1)[-1])
        met = abs(ratio - 1) <= 0.1
        note = "more than published: devices here give all their bandwidth to any mix of streams" if ratio > 1.2 else ""
        return Figure(f"I/O speed-up of {setting}", published, ours, "×", False, met, note)

    def is_faster(self, name: str, fast: Setting, slow: Setting, why_not: str = "") -> Figure:
        """Whether one setting has the shorter I/O time."""
        ratio = self[slow].io / self[fast].io
        return Figure(name, "> 1", ratio, "×", False, ratio > 1, "" if ratio > 1 else why_not)

    def charts(self, name: str) -> Sequence[Bars]:
        return [
            Bars(f"{name}: total time", "s", {str(one): run.total for one, run in self._measured.items()}),
            Bars(f"{name}: I/O speed-up", "×", {str(one): self.speed_up(one) for one in self._measured}),
        ]
