"""What the library costs a program that never waits: its start, and 2,000 small files, against the plain program.

Both ways in turns in one process. The interposed one is the only step of a workflow, and the files are its outputs.
"""

import sys
from pathlib import Path

from benchmarks.row import Budget, Measurement, Row
from benchmarks.streaming import runs
from benchmarks.streaming.flow import Flow, Step, Stream
from benchmarks.workload import emit

TURNS = 6
STARTS = 100


def _row(name: str, unit: str, figure: str, limit: float) -> Row:
    return Row(name, unit, Measurement(figure, "less", __name__, rounds=1, together=True), Budget(limit))


ROWS = [
    _row("interposed program: longer start", "ms", "stream_start_ms", 5),
    _row("interposed program: 2,000 small files over plain", "×", "stream_files", 2),
]


def starting(programs: Path) -> Flow:
    """The step starts `true` again and again, and every one of them has the library."""
    line = f"{programs}/starts {STARTS} true"
    return Flow("starts", (Step("start", (line,), output=("x",)),), ())


def writing(programs: Path) -> Flow:
    line = f"{programs}/produce file 0 2000 4096 4096 0"
    return Flow("files", (Step("write", (line,), output=("file*",), streams=(Stream(("file*",)),)),), ("file00000",))


def main() -> None:
    turns = 1 if "--quick" in sys.argv else TURNS
    programs = runs.programs()
    starts, files = (runs.in_turns(flow, turns) for flow in (starting(programs), writing(programs)))
    # `first` is the time of one start there.
    begun = [runs.trimmed([ran.first for ran in way]) * 1e3 for way in starts]
    written = [runs.trimmed([ran.seconds for ran in way]) for way in files]
    emit(
        {
            "stream_start_ms": begun[0] - begun[1],
            "start_interposed_ms": begun[0],
            "start_plain_ms": begun[1],
            "stream_files": written[0] / written[1],
            "files_interposed_s": written[0],
            "files_plain_s": written[1],
        }
    )


if __name__ == "__main__":
    main()
