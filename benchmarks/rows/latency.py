"""How long one task takes from submission to result, and one link of a chain of dependent tasks."""

from benchmarks.row import PEERS, Budget, Measurement, Row

ROUND_TRIP = Measurement("roundtrip_us", better="less", peers=PEERS)
CHAIN = Measurement("chain_us_per_link", better="less", peers=PEERS)

ROWS = [
    Row("round trip of one task", "µs", ROUND_TRIP, Budget(150)),
    Row("chain of dependent tasks", "µs/link", CHAIN, Budget(100)),
]
