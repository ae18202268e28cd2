"""A 1 GB array of the main program, shared and read by twenty tasks, in units of one memory copy."""

from benchmarks.row import PEERS, Budget, Measurement, Row

ROWS = [
    Row(
        "1 GB array shared, 20 readers",
        "copies",
        Measurement("array_shared_copies", better="less", peers=PEERS),
        Budget(1.2),
    )
]
