"""Alignment against two references on three storage layers: I/O tasks of 200 and of 800 MB.

2,400 inputs a node in iterations of aligning, then writing; the next iteration begins when all is written.
"""

from __future__ import annotations

from benchmarks.papers import layered
from benchmarks.papers.cte_power import BASELINE, NODES, Setting, about, measure, write
from benchmarks.papers.figure import Replay
from penstock.sim.workloads import Job, Workload

TITLE = "Storage layers, alignment on 12 × 40 cores: I/O tasks of two sizes"

INPUTS = 2400 * NODES
#: inputs of one iteration: one alignment for each core
BATCH = 20 * NODES
#: reference, MB
REFERENCES = (("1", 200), ("2", 800))
#: seconds of one alignment: the best run then saves what was published
ALIGN = 19.5


def program() -> Workload:
    """The published graph, in iterations."""
    workload = Workload()
    before: list[Job] = []
    for first in range(0, INPUTS, BATCH):
        written = []
        for number in range(first, first + BATCH):
            for reference, size in REFERENCES:
                aligned = workload.task(f"align_ref{reference}", seconds=about(ALIGN), after=before)
                written.append(write(workload, f"write_res{reference}", f"{number}-{reference}", size, aligned))
        before = [workload.task("next_iteration", after=written)]
    return workload


def replay() -> Replay:
    fcfs, priority, backfilling = (Setting(name) for name in ("fcfs", "priority", "backfilling"))
    flushed, best = Setting("priority", True), Setting("backfilling", True)
    runs = layered.Runs(measure(program, (BASELINE, fcfs, priority, backfilling, flushed, best)))
    why = (
        "a task gets the rate that it asked for on whichever layer it runs, so what counts is how much bandwidth is in "
        "use: first come, first served never waits, and has no reason to fall behind"
    )
    return Replay(
        [
            runs.saves(best, 48.0, fitted=True),
            runs.speeds_up(best, "up to 5"),
            runs.is_faster("priority's I/O against fcfs", priority, fcfs, why),
            runs.is_faster("backfilling's I/O against priority", backfilling, priority),
            runs.is_faster("backfilling's I/O against fcfs", backfilling, fcfs, "as above"),
            runs.is_faster("flushing speeds up priority", flushed, priority),
            runs.is_faster("flushing speeds up backfilling", best, backfilling),
        ],
        runs.charts("Alignment, 200 and 800 MB"),
        [f"fitted: an alignment takes {ALIGN:g} s", layered.MEANING],
    )
