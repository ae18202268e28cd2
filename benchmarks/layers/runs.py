"""A program run under every I/O scheduler, one process each, and how fast its writing is against the others.

The I/O time of a run is the sum over its iterations of the time from the end of the computing to the end of the last
write: what the program waits for I/O. Speed is the inverse. Computing is the same in all variants and never beside
writing, so it is left out; where nothing moves meanwhile it is cut short as well.
"""

import json
import statistics
import subprocess
import sys
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.layers.devices import DEVICES
from benchmarks.layers.once import BASELINE, FLUSH

TIMEOUT = 120.0
SCHEDULERS = ("fcfs", "priority", "backfilling")
#: runs of which the mean counts: those without flushing are short, and one file more or less on a full layer decides
REPETITIONS = 2


class Runs:
    """The runs of one program."""

    def __init__(self, shape: str, flushed: tuple[str, ...], *, quick: bool) -> None:
        self.shape = shape
        self._told: dict[str, list[dict[str, Any]]] = {}
        for variant in (BASELINE, *SCHEDULERS, *(scheduler + FLUSH for scheduler in flushed)):
            once = quick or variant == BASELINE or variant.endswith(FLUSH)
            self._told[variant] = [self._run(variant) for _ in range(1 if once else REPETITIONS)]

    def _run(self, variant: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "benchmarks.layers.once", self.shape, variant]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
        if answer.returncode != 0:
            raise RuntimeError(f"{self.shape}, {variant}: {(answer.stderr.strip().splitlines() or ['(silent)'])[-1]}")
        told: dict[str, Any] = json.loads(answer.stdout.splitlines()[-1])
        print(f"{self.shape}, {variant}: {sum(told['phases']):.2f} s of I/O", file=sys.stderr, flush=True)
        return told

    def seconds(self, variant: str) -> float:
        """I/O time, in seconds of the machine that is emulated."""
        return float(statistics.mean(sum(told["phases"]) for told in self._told[variant]))

    def faster(self, one: str, other: str = BASELINE) -> float:
        """How many times faster the I/O of one variant is than that of another."""
        return self.seconds(other) / self.seconds(one)

    def figures(self) -> dict[str, float]:
        """The I/O time of every variant, for the record."""
        return {f"{self.shape} {variant}, s": self.seconds(variant) for variant in self._told}

    def print_table(self) -> None:
        table = Table()
        table.add_column("I/O scheduler")
        for header in ("I/O seconds", "speed-up", *(f"on {device.name}" for device in DEVICES)):
            table.add_column(header, justify="right")
        table.add_column("seconds of each iteration")
        for variant, told in self._told.items():
            phases = " ".join(f"{seconds:.2f}" for seconds in told[-1]["phases"])
            placed = [_placed(told[-1]["layers"], device.name) for device in DEVICES]
            table.add_row(variant, f"{self.seconds(variant):.2f}", f"{self.faster(variant):.2f} ×", *placed, phases)
        Console(width=150, highlight=False).print(f"{self.shape}: I/O time in seconds of CTE-Power", table, sep="\n")


def _placed(layers: dict[str, int], layer: str) -> str:
    """Results that were written to a layer, and of which size."""
    found = {name.rsplit("_")[-1]: count for name, count in layers.items() if name.split()[0] == layer}
    return ", ".join(f"{count}·{size}" for size, count in found.items())
