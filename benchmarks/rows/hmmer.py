"""HMMER-like: many checkpoints of one size on an emulated device; over 38 % was published for it."""

from benchmarks.storage import sweep_rows

ROWS = sweep_rows.rows("HMMER shape", "hmmer", __name__, at_least=30)

if __name__ == "__main__":
    sweep_rows.measure("hmmer")
