"""What files of an earlier run cost the next one: the whole command with 10,000 old outputs in its directory and
without them, in turns. The steps touch none of them.
"""

import os
import sys
import time

from benchmarks.row import Budget, Measurement, Row
from benchmarks.streaming import runs
from benchmarks.streaming.flow import Flow, Step, Stream
from benchmarks.workload import emit

TURNS = 12
OLD = 10_000

ROWS = [
    Row(
        f"streaming with {OLD:,} old outputs: longer run",
        "ms",
        Measurement("stream_earlier_ms", "less", __name__, rounds=1, together=True),
        Budget(50),
    )
]

FLOW = Flow("earlier", (Step("make", ("true",), output=("out*",), streams=(Stream(("out*",)),)),), ())


def run(old: int) -> float:
    with runs.scratch() as work:
        for number in range(old):
            (work / f"out{number}").write_bytes(b"old")
        began = time.perf_counter()
        runs.run_streamed(FLOW, work, dict(os.environ))
        return time.perf_counter() - began


def main() -> None:
    turns = 2 if "--quick" in sys.argv else TURNS
    with_old, without = list[float](), list[float]()
    for _ in range(turns):
        without.append(run(0) * 1e3)
        with_old.append(run(OLD) * 1e3)
    more = runs.trimmed(with_old) - runs.trimmed(without)
    emit({"stream_earlier_ms": more, "with_old_ms": runs.trimmed(with_old), "without_ms": runs.trimmed(without)})


if __name__ == "__main__":
    main()
