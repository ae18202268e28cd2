"""What one call costs in an interposed program, over the same call in the plain one: blocks of 4 KiB, in memory.

And what it costs in a static program, which a supervisor holds: in microseconds, since the kernel asks another process.

`calls.c` measures the calls. The file that it reads is made by another step and complete; the one that it writes is an
output. Plain and interposed take turns, and the best round of all turns counts: a call is never faster than it is, but
any other program of the machine makes it slower.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks import harness
from benchmarks.row import Budget, Measurement, Row
from benchmarks.streaming import runs
from benchmarks.streaming.flow import Flow, Step
from benchmarks.workload import emit

CALLS = ("open", "read", "write", "stat", "fstat")
TURNS = 5
#: `calls.c` takes the best of so many; where the kernel asks another process, a round takes ten times as long
ROUNDS, ROUNDS_ASKED = 80, 16
MAKE = "head -c 1100000 /dev/zero > in.dat"


def _row(call: str) -> Row:
    measurement = Measurement(f"stream_call_{call}", "less", __name__, rounds=1, together=True)
    return Row(f"interposed {call} over plain, 4 KiB", "×", measurement, Budget(1.10))


def _supervised_row(call: str) -> Row:
    measurement = Measurement(f"stream_supervised_{call}", "less", __name__, rounds=1, together=True)
    return Row(f"supervised {call} of a static program", "µs", measurement, Budget(60))


ROWS = [*(_row(call) for call in CALLS), *(_supervised_row(call) for call in ("open", "stat"))]


def program(*options: str) -> Path:
    made = harness.ROOT / "build" / "-".join(["streaming-calls", *(option.strip("-") for option in options)])
    made.parent.mkdir(exist_ok=True)
    source = Path(runs.__file__).parent / "calls.c"
    subprocess.run(["gcc", "-O2", *options, str(source), "-o", str(made)], check=True)
    return made


def interposed(calls: Path, rounds: int) -> dict[str, float]:
    """Nanoseconds of each call in a step of a workflow."""
    make = Step("make", ("sh make.sh",), output=("in.dat",))
    measure = Step("measure", ("sh measure.sh",), ("in.dat",), ("out.*",))
    with runs.scratch() as folder:
        work = folder / "work"
        work.mkdir()
        (work / "make.sh").write_text(f"{MAKE}\n")
        # It begins when its input is complete, so that no call waits.
        (work / "measure.sh").write_text(f"cat in.dat > /dev/null; exec {calls} . {rounds} > ../found\n")
        runs.run_streamed(Flow("calls", (make, measure), ()), work, dict(os.environ))
        return _read((folder / "found").read_text())


def plain(calls: Path, rounds: int) -> dict[str, float]:
    with runs.scratch() as folder:
        subprocess.run(["sh", "-c", MAKE], cwd=folder, check=True)
        done = subprocess.run([calls, ".", str(rounds)], cwd=folder, check=True, capture_output=True, text=True)
        return _read(done.stdout)


def _read(text: str) -> dict[str, float]:
    found: dict[str, float] = json.loads(text)
    return found


def main() -> None:
    turns = 2 if "--quick" in sys.argv else TURNS
    calls, static = program(), program("-static")
    ways = {
        "plain": lambda: plain(calls, ROUNDS),
        "interposed": lambda: interposed(calls, ROUNDS),
        "static": lambda: plain(static, ROUNDS_ASKED),
        "supervised": lambda: interposed(static, ROUNDS_ASKED),
    }
    found = [(way, measured()) for _ in range(turns) for way, measured in ways.items()]
    figures: dict[str, float] = {}
    for call in (*CALLS, "small_file"):
        for way in ways:
            figures[f"{call}_{way}_ns"] = min(took[call] for name, took in found if name == way)
        figures[f"stream_call_{call}"] = figures[f"{call}_interposed_ns"] / figures[f"{call}_plain_ns"]
        figures[f"stream_supervised_{call}"] = figures[f"{call}_supervised_ns"] / 1000
    emit(figures)


if __name__ == "__main__":
    main()
