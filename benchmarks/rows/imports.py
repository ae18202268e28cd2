"""What `import penstock` costs a program that has imported nothing else."""

from benchmarks.row import PEERS, Budget, Measurement, Row

ROWS = [Row("import", "ms", Measurement("import_ms", better="less", peers=PEERS), Budget(100))]
