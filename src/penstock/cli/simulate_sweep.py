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
from contextlib import closing
from typing import Any

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from penstock.observe.analysis import Analysis
from penstock.runtime.machine import this_machine
from penstock.sim.sweeps import Point, combinations, sweep
from penstock.units import format_duration

__all__ = ["SweepInterrupted", "Trial", "run_sweep", "words"]

#: exit status of a process that was interrupted, by itself or by the signal
_INTERRUPTED = (130, -2)
_COMMAND = (sys.executable, "-m", "penstock.cli", "simulate")


class Trial(Struct, frozen=True):
    """What came of one combination: an analysis, or the reason why there is none."""

    analysis: Analysis | None = None
    problem: str = ""


class _Report(Struct):
    analysis: Analysis
    error: str = ""


class SweepInterrupted(KeyboardInterrupt):
    """Somebody did not want to wait; with what was finished, in the order of the grid."""

    def __init__(self, finished: list[Point[Trial]]) -> None:
        self.finished = finished


def run_sweep(
    command: Sequence[str], args: Sequence[str], grid: Mapping[str, Sequence[str]], console: Console
) -> list[Point[Trial]]:
    """Simulate all combinations; ``command`` is what is the same in all of them, ``args`` are the program's own."""
    with closing(_Runner(command, args)) as runner:
        return _run_all(runner, grid, console)


def _run_all(runner: _Runner, grid: Mapping[str, Sequence[str]], console: Console) -> list[Point[Trial]]:
    order = combinations(grid)
    total = len(order)
    finished: list[Point[Trial]] = []
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.fields[last]}"))
    progress = Progress(
        TextColumn("simulating"), *columns, console=console, transient=True, disable=not console.is_terminal
    )
    with progress, ThreadPoolExecutor(max(1, min(total, this_machine().cpus))) as executor:
        bar = progress.add_task("", total=total, last="")

        def done(settings: dict[str, Any], trial: Trial) -> None:
            if runner.stopped:
                return  # it did not end by itself
            finished.append(Point(settings, trial))
            said = f"{words(settings)}: {_makespan(trial)}"
            progress.update(bar, advance=1, last=said)
            if progress.disable:
                console.print(said, markup=False)

        try:
            return sweep(runner.run, grid, executor=executor, done=done)
        except KeyboardInterrupt:
            runner.stop()
            raise SweepInterrupted(sorted(finished, key=lambda point: order.index(point.settings))) from None
        except BaseException:
            runner.stop()
            raise


class _Runner:
    """Starts the processes, and ends those that are left when the sweep is given up."""

    def __init__(self, command: Sequence[str], args: Sequence[str]) -> None:
        self._command = command
        self._args = args
        self._running: set[subprocess.Popen[str]] = set()
        self.stopped = False
        self._lock = threading.Lock()
        #: the processes end when the other end of this is closed, be it that this process is killed
        self._lifeline, self._held = os.pipe()

    def run(self, **settings: str) -> Trial:
        """One combination, in a process of its own."""
        flags = [flag for name, value in settings.items() for flag in _flags(name, value)]
        # A file without a name is gone with the last process that has it, however that ends.
        with tempfile.TemporaryFile(prefix="penstock-sweep-") as file:
            command = [*_COMMAND, *self._command, *flags, "--quiet", "--json", f"/dev/fd/{file.fileno()}"]
            command += ["--lifeline", str(self._lifeline)]
            said = self._wait([*command, "--", *self._args] if self._args else command, file.fileno())
            written = file.read()
        if not written:
            return Trial(problem=said or "it ended without a result")
        report = msgspec.json.decode(written, type=_Report)
        return Trial(problem=report.error) if report.error else Trial(report.analysis)

    def stop(self) -> None:
        """Begin no more, and end what runs."""
        with self._lock:
            self.stopped = True
            for process in self._running:
                process.terminate()

    def close(self) -> None:
        """All processes have ended."""
        os.close(self._lifeline)
        os.close(self._held)

    def _wait(self, command: list[str], report: int) -> str:
        """Run a process to its end; the last line that it complained with. It may write to ``report``."""
        with self._lock:
            if self.stopped:
                return "it was not begun"
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(report, self._lifeline),
                text=True,
            )
            self._running.add(process)
        with process:
            _, errors = process.communicate()
        with self._lock:
            self._running.discard(process)
        if process.returncode in _INTERRUPTED:
            raise KeyboardInterrupt  # they hear of it as we do
        return errors.strip().rpartition("\n")[2]


def _flags(name: str, value: str) -> list[str]:
    if name.startswith("layer."):
        return ["--layer", f"{name.removeprefix('layer.')}={value}"]
    return [f"--{name.replace('_', '-')}", value]


def words(settings: Mapping[str, str]) -> str:
    """A combination in one line."""
    return " ".join(f"{name}={value}" for name, value in settings.items())


def _makespan(trial: Trial) -> str:
    return format_duration(trial.analysis.makespan) if trial.analysis is not None else "failed"
