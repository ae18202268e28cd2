"""Cold start: wall time from starting `penstock run tiny.py` until its first result is printed.

The peers start a plain Python that brings their system up and runs one task.
"""

import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.row import PEERS, Budget, Measurement, Row
from benchmarks.system import seconds_to_first_line
from benchmarks.workload import emit

FIGURE = "first_result_ms"
PROGRAM = """\
from penstock import task, wait_on

@task(returns=1)
def answer():
    return 42

print("first result", wait_on(answer()), flush=True)
"""

ROWS = [Row("first result of a cold run", "ms", Measurement(FIGURE, "less", __name__, PEERS), Budget(500))]


def main() -> None:
    command = Path(sys.executable).with_name("penstock")
    with tempfile.TemporaryDirectory() as directory:
        program = Path(directory) / "tiny.py"
        program.write_text(PROGRAM, encoding="utf-8")
        # The first start compiles bytecode, as an installation would have done.
        times = [seconds_to_first_line([str(command), "run", str(program)]) for _ in range(6)]
    emit({FIGURE: statistics.median(times[1:]) * 1e3})


if __name__ == "__main__":
    main()
