"""The I/O schedulers on three emulated layers, with and without flushing, in the order that was published for them.

Multi-reference alignment, which writes 200 and 800 MB: baseline < fcfs < priority < backfilling; flushing makes both
faster, and backfilling with flushing is the fastest. Synthetic, 800 and 500 MB: without flushing backfilling is slower
than priority, with it faster. Checkpoints of HMMER, all of 400 MB: the schedulers are alike, fcfs with flushing is the
fastest. A figure is how many times faster the I/O of one is than that of the other: above 1 the order is as published.
"""

import sys

from benchmarks.layers.runs import Runs
from benchmarks.row import Budget, Measurement, Row
from benchmarks.workload import emit

ALIGNMENT = (
    ("fcfs", "baseline"),
    ("priority", "fcfs"),
    ("backfilling", "priority"),
    ("priority+flush", "priority"),
    ("backfilling+flush", "backfilling"),
    ("backfilling+flush", "priority+flush"),
)
SYNTHETIC = (("priority", "backfilling"), ("backfilling+flush", "priority+flush"))
HMMER = (("fcfs+flush", "fcfs"),)
#: how far from 1 the others may be from fcfs where all results have one size
ALIKE = 0.1
APART = "hmmer_schedulers_apart"


def _figure(shape: str, one: str, other: str) -> str:
    return f"{shape}_{one}_over_{other}"


def _row(name: str, unit: str, figure: str, budget: Budget, *, less: bool = False) -> Row:
    better = "less" if less else "more"
    return Row(name, unit, Measurement(figure, better, __name__, rounds=1, together=True), budget)  # type: ignore[arg-type]


def _orders(title: str, shape: str, pairs: tuple[tuple[str, str], ...]) -> list[Row]:
    return [_row(f"{title}: {one} over {other}", "×", _figure(shape, one, other), Budget(1)) for one, other in pairs]


ROWS = [
    *_orders("alignment I/O", "alignment", ALIGNMENT),
    *_orders("synthetic I/O", "synthetic", SYNTHETIC),
    *_orders("HMMER I/O", "hmmer", HMMER),
    _row("HMMER I/O: other schedulers off fcfs", "", APART, Budget(ALIKE), less=True),
]


def main() -> None:
    quick = "--quick" in sys.argv
    alignment = Runs("alignment", ("priority", "backfilling"), quick=quick)
    synthetic = Runs("synthetic", ("priority", "backfilling"), quick=quick)
    hmmer = Runs("hmmer", ("fcfs",), quick=quick)
    figures: dict[str, float] = {}
    for runs, pairs in ((alignment, ALIGNMENT), (synthetic, SYNTHETIC), (hmmer, HMMER)):
        runs.print_table()
        figures |= {_figure(runs.shape, one, other): runs.faster(one, other) for one, other in pairs} | runs.figures()
    figures[APART] = max(abs(hmmer.faster(other, "fcfs") - 1) for other in ("priority", "backfilling"))
    emit(figures)


if __name__ == "__main__":
    main()
