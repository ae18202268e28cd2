"""A program run in every way, one process each, and what the ways are worth against each other.

The whole sweep is run once. The ways that are compared, unaware, the best static constraint and both learned ones, are
then run again in turn, so that noise of the machine falls on all of them alike; medians count.
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log2
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.storage import ways
from benchmarks.storage.device import BANDWIDTH, EXECUTORS

TIMEOUT = 120.0


@dataclass
class Way:
    """What the runs of one way gave."""

    seconds: list[float] = field(default_factory=list)
    #: of each run, the learned constraint of each function in MB/s
    constraints: list[dict[str, float]] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


class Sweep:
    """The runs of one program."""

    def __init__(self, program: str) -> None:
        self.program = program
        self.runs: dict[str, Way] = {}

    def run(self, chosen: Sequence[str]) -> None:
        for way in chosen:
            told = self._run_once(way)
            taken = self.runs.setdefault(way, Way())
            taken.seconds.append(told["seconds"])
            taken.constraints.append(told["constraints"])
            learned = ", ".join(f"{name} {value:g}" for name, value in told["constraints"].items())
            print(f"{self.program}, {way}: {told['seconds']:.2f} s  {learned}", file=sys.stderr, flush=True)

    def _run_once(self, way: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "benchmarks.storage.once", self.program, way]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
        if answer.returncode != 0:
            raise RuntimeError(f"{self.program}, {way}: {(answer.stderr.strip().splitlines() or ['(silent)'])[-1]}")
        told: dict[str, Any] = json.loads(answer.stdout.splitlines()[-1])
        return told

    @property
    def best(self) -> str:
        """The static constraint with the shortest time."""
        return min((way for way in self.runs if way in ways.STATIC), key=lambda way: self.runs[way].median)

    def seconds(self, way: str) -> float:
        return self.runs[way].median

    def saved(self, way: str) -> float:
        """Per cent of the time of the I/O-unaware program that a way saves."""
        return 100 * (1 - self.seconds(way) / self.seconds(ways.UNAWARE))

    def doublings_off(self, way: str) -> float:
        """How many doublings a learned constraint lies from the best static one, for the function farthest off."""
        best = float(self.best)
        farthest = [
            max((abs(log2(value / best)) for value in constraints.values()), default=float("inf"))
            for constraints in self.runs[way].constraints
        ]
        return statistics.median_high(farthest)

    def figures(self) -> dict[str, float]:
        """Seconds of every way, for the record."""
        return {f"{self.program} {way}, s": taken.median for way, taken in self.runs.items()}

    def print_table(self) -> None:
        table = Table()
        table.add_column("storage_bw")
        for header in ("seconds", "saved", "runs"):
            table.add_column(header, justify="right")
        table.add_column("learned, MB/s")
        for way, taken in self.runs.items():
            learned = ", ".join(f"{name} {value:.3g}" for name, value in taken.constraints[-1].items())
            table.add_row(way, f"{taken.median:.2f}", f"{self.saved(way):.0f} %", str(len(taken.seconds)), learned)
        title = f"{self.program}: an emulated device of {BANDWIDTH} MB/s, {EXECUTORS} I/O executors, 2 computing units"
        Console(width=150, highlight=False).print(title, table, sep="\n")


def whole_sweep(program: str, rounds: int) -> Sweep:
    """Every way once, the compared ones `rounds` times."""
    sweep = Sweep(program)
    sweep.run(ways.ALL)
    for _ in range(rounds - 1):
        sweep.run((ways.UNAWARE, sweep.best, *ways.AUTOS))
    return sweep
