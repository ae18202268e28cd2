"""Bounds, step and number of I/O executors of learned constraints, on HMMER and on the variants pipeline.

Six times were published for HMMER, but not which bar is which. Both readings that fit the text agree on the first two.
Compute times are unknown, so it is not times that are compared but orders: both readings, and what the text says.
"""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.papers import hmmer, variants
from benchmarks.papers.figure import Bars, Figure, Replay
from benchmarks.papers.marenostrum import BOUNDED, EXECUTORS, UNBOUNDED, Program, run

TITLE = "Hyper-parameters of learned constraints, 12 × 48 cores"

WIDE_STEP, NARROW, SPARSE = "auto(4,256,4)", "auto(4,16,2)", "auto(2,256,4)"
#: from the slowest to the fastest
READING_A = (WIDE_STEP, BOUNDED, "auto, 225", "auto, 112", "auto, 56", NARROW)
READING_B = (WIDE_STEP, BOUNDED, NARROW, "auto, 225", "auto, 112", "auto, 56")


def replay() -> Replay:
    hmmer_times = _times(hmmer.program, (WIDE_STEP, BOUNDED, NARROW), (EXECUTORS, 112, 56))
    variants_times = _times(variants.program, (SPARSE, BOUNDED, NARROW), (EXECUTORS, 112))
    order = sorted(hmmer_times, key=lambda way: -hmmer_times[way])
    cheaper = "learning begins with fewer streams, or has fewer epochs; that saves more than a worse choice costs later"
    figures = [
        _order("HMMER, slowest first, reading A", READING_A, order),
        _order("HMMER, slowest first, reading B", READING_B, order),
        _faster("HMMER", hmmer_times, NARROW, BOUNDED),
        _faster("HMMER", hmmer_times, BOUNDED, WIDE_STEP, cheaper),
        _faster("HMMER", hmmer_times, "auto, 225", BOUNDED),
        _faster("HMMER", hmmer_times, "auto, 112", "auto, 225"),
        _faster("HMMER", hmmer_times, "auto, 56", "auto, 112"),
        _faster("variants", variants_times, NARROW, BOUNDED),
        _faster("variants", variants_times, BOUNDED, SPARSE, cheaper),
        _faster("variants", variants_times, "auto, 225", BOUNDED),
        _faster("variants", variants_times, "auto, 112", "auto, 225"),
    ]
    charts = [
        Bars("Hyper-parameters, HMMER: total time", "s", hmmer_times),
        Bars("Hyper-parameters, variants: total time", "s", variants_times),
    ]
    return Replay(figures, charts, ["“auto, 112” is an unbounded search with 112 I/O executors on each node"])


def _times(program: Program, bounded: tuple[str, ...], executors: tuple[int, ...]) -> dict[str, float]:
    times = {way: run(program, way).makespan for way in bounded}
    return times | {f"auto, {many}": run(program, UNBOUNDED, many).makespan for many in executors}


def _order(name: str, published: tuple[str, ...], ours: list[str]) -> Figure:
    return Figure(name, " > ".join(published), " > ".join(ours), "", False, list(published) == ours)


def _faster(program: str, times: Mapping[str, float], fast: str, slow: str, why_not: str = "") -> Figure:
    gain = 100 * (1 - times[fast] / times[slow])
    note = "" if gain > 0 else f"{times[fast]:.0f} s against {times[slow]:.0f} s. {why_not}".strip()
    return Figure(f"{program}: {fast} saves against {slow}", "> 0", gain, "%", False, gain > 0, note)
