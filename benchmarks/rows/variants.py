"""Variants-like: checkpoints of five sizes, each learned for itself, on an emulated device; 43 % was published."""

from benchmarks.storage import sweep_rows

ROWS = sweep_rows.rows("variants shape", "variants", __name__, at_least=35)

if __name__ == "__main__":
    sweep_rows.measure("variants")
