"""100,000 trivial calls in bulk: `f.map(items)` against what each peer does best."""

from benchmarks.row import PEERS, Budget, Measurement, Row

MAP = Measurement("map_per_second", better="more", peers=PEERS)

ROWS = [
    Row("map", "calls/s", MAP, Budget(100_000)),
    Row("map against joblib", "calls/s", MAP, Budget(1, against=("joblib",))),
]
