"""Benchmarks: our figures next to those of the peers, in one run, against the budgets of the design.

Reading order: `row` (what a line of the table is), `rows/` (one module per benchmark), `system` (how any system is
measured), `ours` and `peers/` (the systems), `harness` (who runs when), `report` (the table and the JSON).
Nothing here is imported by the package itself.
"""
