"""The synthetic workloads of the published evaluation, scaled, without compute: streamed over batch, and over a pipe.

1 to 1 as many, few and one file; small records; 1 to many; one sparse file in partitions; many to 1; many small
files. All is in memory, so batch has no disk to wait for and what is compared is synchronisation.
"""

import sys

from benchmarks.row import Budget, Measurement, Row
from benchmarks.streaming import runs, shapes
from benchmarks.streaming.flow import CLOSE_UPDATE, Flow
from benchmarks.streaming.plain import pipe, slower_side
from benchmarks.workload import emit

MB, MIB = 1_000_000, 1 << 20
TURNS = 5


def _row(name: str, figure: str, limit: float) -> Row:
    return Row(name, "×", Measurement(figure, "less", __name__, rounds=1, together=True), Budget(limit))


ROWS = [
    _row("streamed over the slower side alone: 1 GB in 1 MiB blocks", "stream_slower_side", 1.15),
    _row("streamed over a pipe: 1 GB in 1 MiB blocks", "stream_pipe", 2.0),
    _row("streamed over batch: 1 to 1, 1 GB in 1 file", "stream_one_file", 1.0),
    _row("streamed over batch: 1 to 1, 1 GB in 10 files", "stream_ten_files", 1.0),
    _row("streamed over batch: 1 to 1, 1 GB in 100 files, each at its close", "stream_hundred_files", 1.0),
    _row("streamed over batch: 1 to 1, 4 KiB records", "stream_records", 1.0),
    _row("streamed over batch: 1 to 5", "stream_one_to_many", 1.0),
    _row("streamed over batch: sparse file, 5 writers, 5 readers", "stream_partitions", 1.0),
    _row("streamed over batch: 5 to 1", "stream_many_to_one", 1.0),
    _row("streamed over batch: 10,000 small files, 5 to 1", "stream_small_files", 2.0),
    _row("streamed over batch: 10,000 small files, 5 ms of compute per MiB", "stream_small_files_computed", 1.0),
]


def flows(tenth: int) -> dict[str, Flow]:
    """By figure; `tenth` divides the amounts."""
    bin = runs.programs()
    whole = 1_000 * MB // tenth
    return {
        "stream_one_file": shapes.one_to_one(bin, 1, whole),
        "stream_ten_files": shapes.one_to_one(bin, 10, whole // 10),
        "stream_hundred_files": shapes.one_to_one(bin, 100, whole // 100, rule=CLOSE_UPDATE),
        "stream_records": shapes.one_to_one(bin, 1, whole // 2, block=4096),
        "stream_one_to_many": shapes.one_to_many(bin, 10, whole // 20, readers=5),
        "stream_partitions": shapes.partitions(bin, 500 * MIB // tenth, writers=5, readers=5),
        "stream_many_to_one": shapes.many_to_one(bin, 5, 10, whole // 20),
        "stream_small_files": shapes.many_to_one(bin, 5, 10_000 // tenth, 10_000, block=4096),
        "stream_small_files_computed": shapes.many_to_one(bin, 5, 10_000 // tenth, 10_000, block=4096, pace=5_000),
    }


def main() -> None:
    tenth, turns = (10, 1) if "--quick" in sys.argv else (1, TURNS)
    figures: dict[str, float] = {}
    for figure, flow in flows(tenth).items():
        streamed, batch = runs.in_turns(flow, turns)
        times = {"streamed": streamed, "batch": batch}
        seconds = {way: runs.trimmed([ran.seconds for ran in ran_so]) for way, ran_so in times.items()}
        figures[figure] = seconds["streamed"] / seconds["batch"]
        figures |= {f"{figure}_{way}_s": value for way, value in seconds.items()}
    emit(figures | _against_plain(1_000 * MB // tenth, turns))


def _against_plain(size: int, turns: int) -> dict[str, float]:
    """One file, streamed, each side alone, and through a pipe, in turns."""
    flow = shapes.one_to_one(runs.programs(), 1, size)
    rounds = [(runs.run(flow, runs.STREAMED)[0].seconds, slower_side(size, MIB), pipe(size, MIB)) for _ in range(turns)]
    streamed, alone, piped = (runs.trimmed(column) for column in zip(*rounds, strict=True))
    return {
        "stream_slower_side": streamed / alone,
        "stream_pipe": streamed / piped,
        "slower_side_s": alone,
        "pipe_s": piped,
    }


if __name__ == "__main__":
    main()
