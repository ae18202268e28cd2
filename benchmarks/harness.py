"""Who runs when: every figure in a fresh process, ours and the peers' in turn, the median of the rounds.

The machines are noisy, so a peer is never compared with a figure of ours from another time: a round measures us and
then each peer, and the rounds follow each other. A process that fails costs its figure, not the run.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.row import Measurement

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT = 600.0
OURS = "penstock"


class MeasurementFailed(Exception):
    """A measuring process that did not print its figures; the text is its last word."""


@dataclass
class Taken:
    """What the rounds of one measurement gave."""

    samples: dict[str, list[float]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    #: the other figures that our process printed in the last round
    details: dict[str, float] = field(default_factory=dict)
    #: how long all of that took; next to nothing where another measurement's processes printed it
    seconds: float = 0.0

    def median(self, system: str) -> float | None:
        return statistics.median(self.samples[system]) if self.samples.get(system) else None

    def peers(self) -> dict[str, float]:
        return {name: statistics.median(values) for name, values in self.samples.items() if name != OURS and values}


def interpreter(system: str) -> Path:
    """The Python that measures a system: its own environment, or ours."""
    if system in (OURS, "futures"):
        return Path(sys.executable)
    return ROOT / "build" / "peers" / system / "bin" / "python"


def installed(peers: Iterable[str]) -> list[str]:
    return [peer for peer in peers if interpreter(peer).exists()]


def take(measurement: Measurement, peers: list[str], quick: bool, say: Callable[[str], None]) -> Taken:
    """All rounds of one measurement. `peers`: those that may be used; a failure takes a system out of later rounds."""
    taken = Taken()
    began = time.perf_counter()
    systems = [OURS, *(peer for peer in measurement.peers if peer in peers)]
    rounds = 1 if quick else measurement.rounds
    for number in range(1, rounds + 1):
        for system in list(systems):
            module = measurement.ours if system == OURS else f"benchmarks.peers.{system}"
            try:
                figures = _figures(measurement, system, module, number, quick, say)
            except MeasurementFailed as failure:
                taken.problems[system] = str(failure)
                systems.remove(system)
                say(f"{measurement.figure}  round {number}/{rounds}  {system}: failed, {failure}")
                continue
            value = figures.get(measurement.figure)
            if value is None:  # the system has no such facility
                systems.remove(system)
                continue
            taken.samples.setdefault(system, []).append(value)
            if system == OURS:
                taken.details = {name: other for name, other in figures.items() if name != measurement.figure}
            say(f"{measurement.figure}  round {number}/{rounds}  {system}: {value:,.4g}")
    taken.seconds = time.perf_counter() - began
    return taken


# What the processes printed that measure all figures of a module, by module and round.
_together: dict[tuple[str, int], dict[str, float] | MeasurementFailed] = {}


def _figures(
    measurement: Measurement, system: str, module: str, number: int, quick: bool, say: Callable[[str], None]
) -> dict[str, float]:
    if not measurement.together:
        return run(interpreter(system), module, measurement.figure, quick, say)
    key = (module, number)
    if key not in _together:
        try:
            _together[key] = run(interpreter(system), module, measurement.figure, quick, say)
        except MeasurementFailed as failure:
            _together[key] = failure
    found = _together[key]
    if isinstance(found, MeasurementFailed):
        raise found
    return found


def run(python: Path, module: str, figure: str, quick: bool, say: Callable[[str], None]) -> dict[str, float]:
    """One measuring process, with a temporary directory of its own that goes with it: peers leave files behind.

    What it prints before its figures, a table maybe, is said.
    """
    command = [str(python), "-m", module, figure, *(["--quick"] if quick else [])]
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    # A short name: sockets are made below it, and their paths may not be long.
    with tempfile.TemporaryDirectory(prefix="pb-", ignore_cleanup_errors=True) as scratch:
        output = _output(command, os.environ | {"PYTHONPATH": os.pathsep.join(paths), "TMPDIR": scratch})
    told = output.strip().splitlines() or ["(silent)"]
    for line in told[:-1]:
        say(line)
    figures: dict[str, float] = json.loads(told[-1])
    return figures


def _output(command: list[str], environment: dict[str, str]) -> str:
    """What the command prints; whatever it left running is ended, so that it cannot disturb the next."""
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            raise MeasurementFailed(f"no answer within {TIMEOUT:.0f} s") from None
        finally:
            _end_session(process.pid)
    if process.returncode != 0:
        raise MeasurementFailed(f"exit {process.returncode}: {_last_line(errors)}")
    return output


def _end_session(session: int) -> None:
    try:
        os.killpg(session, signal.SIGKILL)
    except ProcessLookupError:
        pass  # all of it has ended, as it should


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["(silent)"])[-1]
