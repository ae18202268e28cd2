"""k-means-like: with one iteration nearly all checkpoints go into learning, which cannot pay; with six it does.

The figure of one iteration is a time over that of the I/O-unaware program: at least 1, but for noise.
"""

import sys
from statistics import fmean

from benchmarks.row import Budget, Measurement, Row
from benchmarks.storage import ways
from benchmarks.storage.sweep import Sweep
from benchmarks.workload import emit

ROUNDS = 2
NOISE = 0.05
ONCE = "kmeans_once_over_unaware"
SIX = "kmeans_six_saved"


def _row(name: str, unit: str, figure: str, limit: float) -> Row:
    return Row(
        f"k-means shape: {name}", unit, Measurement(figure, "more", __name__, rounds=1, together=True), Budget(limit)
    )


ROWS = [
    _row("1 iteration, both autos over unaware", "×", ONCE, 1 - NOISE),
    _row("6 iterations, saved by auto", "%", f"{SIX}_auto", 100 * NOISE),
    _row("6 iterations, saved by bounded auto", "%", f"{SIX}_bounded", 100 * NOISE),
]


def main() -> None:
    once, six = Sweep("kmeans-1"), Sweep("kmeans-6")
    for sweep in (once, six):
        for _ in range(1 if "--quick" in sys.argv else ROUNDS):
            sweep.run((ways.UNAWARE, *ways.AUTOS))
        sweep.print_table()
    auto, bounded = ways.AUTOS
    figures = {
        ONCE: fmean(map(once.seconds, ways.AUTOS)) / once.seconds(ways.UNAWARE),
        f"{SIX}_auto": six.saved(auto),
        f"{SIX}_bounded": six.saved(bounded),
    }
    emit(figures | once.figures() | six.figures())


if __name__ == "__main__":
    main()
