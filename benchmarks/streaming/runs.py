"""Runs a `Flow` for real, streamed or one after the other, and tells when its programs began, had something, and ended.

Streamed is `penstock stream run`; batch has no part of Penstock in it: a step starts when all producers of its inputs
have ended, independent ones at once. Each run has a fresh folder in memory. Its time is from the first program's first
instruction to the last one's end, as the programs themselves note it; the time of the whole command is told too.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import harness
from benchmarks.streaming.flow import Flow, Step

__all__ = [
    "BATCH",
    "STREAMED",
    "Ran",
    "in_turns",
    "programs",
    "results_of",
    "run",
    "run_in_order",
    "run_streamed",
    "scratch",
    "times_of",
    "trimmed",
]

STREAMED, BATCH = "streamed", "batch"
SOURCES = Path(__file__).parent / "programs"
TIMEOUT = 120.0


@dataclass(frozen=True)
class Ran:
    """One run: seconds from beginning to end, to the first result, and of the whole command."""

    seconds: float
    first: float
    command: float


def programs() -> Path:
    """The folder of the compiled programs; made anew when a source has changed."""
    sources = sorted(SOURCES.iterdir())
    known = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    folder = harness.ROOT / "build" / f"streaming-benchmarks-{known}"
    if not folder.exists():
        folder.parent.mkdir(exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=folder.parent))
        for source in sources:
            if source.suffix == ".c":
                command = ["gcc", "-std=gnu11", "-O2", str(source), "-o", str(made / source.stem)]
                subprocess.run(command, check=True)
        try:
            made.rename(folder)
        except OSError:  # made by another process meanwhile
            shutil.rmtree(made)
    return folder


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder in memory, so that no disk is measured; where there is none, wherever temporary files go."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="bench-", dir=memory if memory.is_dir() else None) as name:
        yield Path(name)


def run(flow: Flow, way: str) -> tuple[Ran, dict[str, bytes]]:
    """One run and its results; a program that fails is an error."""
    with scratch() as folder:
        work, times = folder / "work", folder / "times"
        for path in (times, work, *(work / name for name in flow.folders)):
            path.mkdir()
        environment = os.environ | {"BENCH_TIMES": str(times)}
        began = time.perf_counter()
        if way == BATCH:
            run_in_order(flow, work, environment)
        else:
            run_streamed(flow, work, environment)
        took = time.perf_counter() - began
        return times_of(times, took), results_of(flow, work)


def run_streamed(flow: Flow, work: Path, environment: dict[str, str], *options: str) -> None:
    """`penstock stream run` in a folder that is there."""
    (work / "workflow.toml").write_text(flow.toml(), encoding="utf-8")
    command = [sys.executable, "-m", "penstock.cli", "stream", "run", "--no-log", *options, "workflow.toml"]
    done = subprocess.run(
        command, cwd=work, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{flow.name}: exit {done.returncode}\n{done.stdout[-1000:]}\n{done.stderr[-1000:]}")


def run_in_order(flow: Flow, work: Path, environment: dict[str, str]) -> None:
    """The steps as batch starts them, in a folder that is there.

    A step reads what a step before it writes where both name the same pattern: the shapes are written so.
    """
    waiting, running = list(flow.steps), dict[int, Step]()
    while waiting or running:
        open_outputs = {name for step in (*waiting, *running.values()) for name in step.output}
        ready = [step for step in waiting if not open_outputs & set(step.input)]
        for step in ready:
            waiting.remove(step)
            running[os.posix_spawnp("env", ["env", "-C", str(work), *step.command], environment)] = step
        process, status = os.wait()
        if process not in running:
            continue  # an orphan that was left to us
        if status:
            raise RuntimeError(f"{flow.name}: {running[process].name} ended with {os.waitstatus_to_exitcode(status)}")
        del running[process]


def times_of(folder: Path, command: float) -> Ran:
    notes: dict[str, list[float]] = {}
    for file in folder.iterdir():
        for line in file.read_text().splitlines():
            what, when = line.split()
            notes.setdefault(what, []).append(float(when))
    start = min(notes["began"])
    return Ran(max(notes["ended"]) - start, min(notes.get("first", notes["ended"])) - start, command)


def results_of(flow: Flow, work: Path) -> dict[str, bytes]:
    """The files that a workflow was run for."""
    found = sorted(path for pattern in flow.results for path in work.glob(pattern))
    if flow.results and not found:
        raise RuntimeError(f"{flow.name}: no results")
    return {str(path.relative_to(work)): path.read_bytes() for path in found}


def in_turns(flow: Flow, turns: int) -> tuple[list[Ran], list[Ran]]:
    """So many runs of both ways, streamed and batch in turn; all must have the same results."""
    streamed: list[Ran] = []
    batch: list[Ran] = []
    expected: dict[str, bytes] | None = None
    for _ in range(turns):
        for way, found in ((STREAMED, streamed), (BATCH, batch)):
            ran, results = run(flow, way)
            expected = results if expected is None else expected
            if results != expected:
                raise AssertionError(f"{flow.name}: {way} has other results than the run before")
            found.append(ran)
    return streamed, batch


def trimmed(values: Sequence[float]) -> float:
    """The mean without the best and the worst."""
    kept = sorted(values)[1:-1] if len(values) > 2 else values
    return statistics.fmean(kept)
