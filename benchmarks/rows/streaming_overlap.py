"""1 GiB from one program to the next with 5 ms of compute per MiB on both sides: streamed over batch.

Compute keeps a core busy for that long, so writer and reader need a core each. Perfect overlap is half the batch time.
"""

import sys

from benchmarks.row import Budget, Measurement, Row
from benchmarks.streaming import runs, shapes
from benchmarks.workload import emit

FIGURE = "stream_overlap"
MIB = 1 << 20
PACE = 5_000.0  # microseconds per MiB
TURNS = 3

ROWS = [
    Row(
        "streamed over batch: 1 GiB, 5 ms of compute per MiB on each side",
        "×",
        Measurement(FIGURE, "less", __name__, rounds=1),
        Budget(0.52),
    )
]


def main() -> None:
    quick = "--quick" in sys.argv
    flow = shapes.one_to_one(runs.programs(), 1, (128 if quick else 1024) * MIB, pace=PACE)
    streamed, batch = runs.in_turns(flow, 1 if quick else TURNS)
    times = {
        "streamed_s": runs.trimmed([ran.seconds for ran in streamed]),
        "batch_s": runs.trimmed([ran.seconds for ran in batch]),
        "command_s": runs.trimmed([ran.command for ran in streamed]),
    }
    emit({FIGURE: times["streamed_s"] / times["batch_s"]} | times)


if __name__ == "__main__":
    main()
