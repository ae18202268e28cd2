"""A sweep of ``penstock simulate``: one process per combination, as many at a time as there are cores, then a table.

--sweep nodes=10,50 --sweep scheduler=fifo,lifo ──▶ 4 × penstock simulate … --json ──▶ table, plot
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from penstock.observe.analysis import Analysis
from penstock.runtime.machine import this_machine
from penstock.sim.sweeps import Point, combinations, sweep
from penstock.units import format_duration

__all__ = ["Trial", "run_sweep", "words"]

_COMMAND = (sys.executable, "-m", "penstock.cli", "simulate")


class Trial(Struct, frozen=True):
    """What came of one combination: an analysis, or the reason why there is none."""

    analysis: Analysis | None = None
    problem: str = ""


class _Report(Struct):
    analysis: Analysis


def run_sweep(
    command: Sequence[str], args: Sequence[str], grid: Mapping[str, Sequence[str]], console: Console
) -> list[Point[Trial]]:
    """Simulate all combinations; ``command`` is what is the same in all of them, ``args`` are the program's own."""
    runner = _Runner(command, args)
    total = len(combinations(grid))
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.fields[last]}"))
    progress = Progress(
        TextColumn("simulating"), *columns, console=console, transient=True, disable=not console.is_terminal
    )
    with progress, ThreadPoolExecutor(max(1, min(total, this_machine().cpus))) as executor:
        bar = progress.add_task("", total=total, last="")

        def done(settings: dict[str, Any], trial: Trial) -> None:
            said = f"{words(settings)}: {_makespan(trial)}"
            progress.update(bar, advance=1, last=said)
            if progress.disable:
                console.print(said, markup=False)

        try:
            return sweep(runner.run, grid, executor=executor, done=done)
        except BaseException:
            runner.stop()
            raise


class _Runner:
    """Starts the processes, and ends those that are left when the sweep is given up."""

    def __init__(self, command: Sequence[str], args: Sequence[str]) -> None:
        self._command = command
        self._args = args
        self._running: set[subprocess.Popen[str]] = set()
        self._stopped = False
        self._lock = threading.Lock()

    def run(self, **settings: str) -> Trial:
        """One combination, in a process of its own."""
        flags = [flag for name, value in settings.items() for flag in _flags(name, value)]
        with tempfile.TemporaryDirectory(prefix="penstock-sweep-") as folder:
            path = os.path.join(folder, "report.json")
            command = [*_COMMAND, *self._command, *flags, "--quiet", "--json", path]
            said = self._wait([*command, "--", *self._args] if self._args else command)
            try:
                with open(path, "rb") as file:
                    return Trial(msgspec.json.decode(file.read(), type=_Report).analysis)
            except OSError:
                return Trial(problem=said or "it ended without a result")

    def stop(self) -> None:
        """Begin no more, and end what runs."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                process.terminate()

    def _wait(self, command: list[str]) -> str:
        """Run a process to its end; the last line that it complained with."""
        with self._lock:
            if self._stopped:
                return "it was not begun"
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
            self._running.add(process)
        with process:
            _, errors = process.communicate()
        with self._lock:
            self._running.discard(process)
        return errors.strip().rpartition("\n")[2]


def _flags(name: str, value: str) -> list[str]:
    if name.startswith("layer."):
        return ["--layer", f"{name.removeprefix('layer.')}={value}"]
    return [f"--{name.replace('_', '-')}", value]


def words(settings: Mapping[str, str]) -> str:
    """A combination in one line."""
    return " ".join(f"{name}={value}" for name, value in settings.items())


def _makespan(trial: Trial) -> str:
    return format_duration(trial.analysis.makespan) if trial.analysis is not None else f"failed: {trial.problem}"
