"""What was measured and what the simulator says: for each program from its own log, then for runs that are different.

The second kind is what simulating is for: the log of one run tells what another would take. One computing unit in place
of two, or a constraint on what the I/O tasks may take of the device. Those other runs are then made, and compared.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from benchmarks.validation.programs import PROGRAMS, write
from penstock.runtime.recorded import Recorded, workload_of

TIMEOUT = 120.0
#: MB/s of the constraint that is put on I/O tasks which had none
BANDWIDTH = 8.0


@dataclass(frozen=True)
class Setting:
    """What a run is made with."""

    cpus: int = 2
    #: MB/s that each I/O task asks for; 0: nothing, or what the program itself says
    bandwidth: float = 0.0

    def __str__(self) -> str:
        units = f"{self.cpus} computing unit{'s' if self.cpus > 1 else ''}"
        return units + (f", storage_bw={self.bandwidth:g}" if self.bandwidth else "")


USUAL = Setting()
#: programs whose log also has to tell what a run with other settings takes
CHANGED = {
    "compute-bound": Setting(cpus=1),
    "mixed": Setting(cpus=1),
    "staged tree": Setting(cpus=1),
    "I/O-bound": Setting(bandwidth=BANDWIDTH),
}


@dataclass(frozen=True)
class Comparison:
    """A makespan, in seconds, as the simulator told it and as it was."""

    program: str
    logged: Setting
    setting: Setting
    measured: float
    predicted: float

    @property
    def off(self) -> float:
        """Per cent of the measured makespan."""
        return 100 * (self.predicted / self.measured - 1)


def compare() -> Iterator[Comparison]:
    """Make all runs; predictions of changed runs come last."""
    with tempfile.TemporaryDirectory(prefix="validation-of-penstock-") as folder:
        for program in PROGRAMS:
            recorded = _read(_run(program, USUAL, folder))
            yield Comparison(program, USUAL, USUAL, recorded.makespan, _predicted(recorded, USUAL))
        for program, setting in CHANGED.items():
            other = _read(_run(program, setting, folder)).makespan
            recorded = _read(_log(program, USUAL, folder), setting)
            yield Comparison(program, USUAL, setting, other, _predicted(recorded, setting))


def _log(program: str, setting: Setting, folder: str) -> str:
    return str(Path(folder) / f"{program.replace('/', '')}, {setting}")


def _run(program: str, setting: Setting, folder: str) -> str:
    """Run a program in a process of its own; gives the directory that has its log."""
    run_dir = _log(program, setting, folder)
    options = ["--cpus", str(setting.cpus), "--bandwidth", str(setting.bandwidth)]
    command = [sys.executable, "-m", "benchmarks.validation.once", program, run_dir, *options]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    if answer.returncode != 0:
        raise RuntimeError(f"{program}: {(answer.stderr.strip().splitlines() or ['(silent)'])[-1]}")
    print(f"{program}, {setting}: ran", file=sys.stderr, flush=True)
    return run_dir


def _read(log: str, setting: Setting = USUAL) -> Recorded:
    """What a log tells, with the constraint of this setting on I/O tasks."""
    constraints = {write.__name__: setting.bandwidth} if setting.bandwidth else {}
    return workload_of(log, constraints=constraints)


def _predicted(recorded: Recorded, setting: Setting) -> float:
    """What the log of a run with the usual settings tells of one with these."""
    nodes = [replace(node, cpus=setting.cpus) for node in recorded.nodes]
    return recorded.simulation(nodes=nodes).run().makespan


def print_table(comparisons: list[Comparison]) -> None:
    table = Table()
    table.add_column("program")
    for header in ("log of a run with", "tells of a run with"):
        table.add_column(header)
    for header in ("predicted s", "measured s", "off"):
        table.add_column(header, justify="right")
    for one in comparisons:
        figures = (f"{one.predicted:.2f}", f"{one.measured:.2f}", f"{one.off:+.1f} %")
        table.add_row(one.program, str(one.logged), str(one.setting), *figures)
    Console(width=130, highlight=False).print("simulated against real makespans", table, sep="\n")
