"""Synthetic tasks on three storage layers: half of the I/O tasks write 800 MB, half 500 MB. No numbers were published.

2,400 compute and 2,400 I/O tasks are taken as those of one node: with fewer, the fast layers never fill.
"""

from __future__ import annotations

from benchmarks.papers import layered
from benchmarks.papers.cte_power import BASELINE, NODES, Setting, about, measure, write
from benchmarks.papers.figure import Replay
from penstock.sim.workloads import Workload

TITLE = "Storage layers, synthetic tasks on 12 × 40 cores: large I/O tasks of two sizes"

TASKS = 2400 * NODES
#: MB
SIZES = (800, 500)
#: seconds of a compute task, as a search of HMMER
COMPUTE = 10.0


def program() -> Workload:
    """Pairs of a compute task and the I/O task that writes its result."""
    workload = Workload()
    for number in range(TASKS):
        size = SIZES[number % 2]
        write(workload, f"write_{size}", str(number), size, workload.task("compute", seconds=about(COMPUTE)))
    return workload


def replay() -> Replay:
    plain = (Setting("priority"), Setting("backfilling"))
    flushed = (Setting("priority", True), Setting("backfilling", True))
    runs = layered.Runs(measure(program, (BASELINE, *plain, *flushed)))
    why = (
        "what is backfilled fills the fast layer, but with bytes that priority would put there a little later: "
        "it is full after 1 TB in either case"
    )
    return Replay(
        [
            runs.is_faster("priority's I/O against backfilling, without flushing", *plain, why),
            runs.is_faster("backfilling's I/O against priority, with flushing", flushed[1], flushed[0]),
        ],
        runs.charts("Synthetic, 800 and 500 MB"),
        [f"chosen: a compute task takes {COMPUTE:g} s", layered.MEANING],
    )
