"""How the curve of `ssd.py` comes about: `python -m benchmarks.papers.fitting` prints it.

What was published says between which sizes of files the best number of streams changes. Where it changes, two numbers
of streams write equally fast; with the cost of `fsync` that gives the ratio of their rates. The highest rate of all is
the published 450 MB/s. One stream alone gets what each of 14 does.

Free remain the sizes within their bounds, and the cost of `fsync`. They were chosen so that bounded searches, for which
a difference of two per cent is none, end where unbounded ones do, and learning is as cheap as that allows.
"""

from __future__ import annotations

from itertools import pairwise

from benchmarks.papers.ssd import BANDWIDTH, sync_cost

__all__ = ["SIZES", "TURNS", "curve"]

#: MB of the files that were written
SIZES = (109, 162, 290, 330, 596, 615)
#: streams, and the size in MB from which on twice as many are better; published bounds: below 109, 162 to 290,
#: 290 to 330, above 615
TURNS = ((14, 40), (28, 165), (56, 292), (112, 640))
_MOST = 225
_FEW = (1, 3, 7)
#: the most streams that ran in an experiment; nothing is known beyond 225, so the rate stays as it is there
_LAST = 500


def curve() -> list[tuple[int, float]]:
    """Streams, and MB/s of all of them together while none of them is in `fsync`."""
    streams = [*(few for few, _ in TURNS), _MOST]
    rates = {streams[0]: 1.0}
    for (few, turn), (_, many) in zip(TURNS, pairwise(streams), strict=True):
        rates[many] = rates[few] * (turn + sync_cost(many)) / (turn + sync_cost(few))
    highest = max(rate * size / (size + sync_cost(many)) for many, rate in rates.items() for size in SIZES)
    rates = {many: rate * BANDWIDTH / highest for many, rate in rates.items()}
    alone = rates[streams[0]] / streams[0]
    return [*((few, few * alone) for few in _FEW), *rates.items(), (_LAST, rates[_MOST])]


if __name__ == "__main__":
    for count, rate in curve():
        print(f"{count:4} streams {rate:8.1f} MB/s")
