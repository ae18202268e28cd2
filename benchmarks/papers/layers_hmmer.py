"""HMMER with checkpoints of 400 MB on three storage layers: all I/O tasks alike."""

from __future__ import annotations

from benchmarks.papers import layered
from benchmarks.papers.cte_power import BASELINE, NODES, Setting, about, measure, write
from benchmarks.papers.figure import Figure, Replay
from penstock.sim.workloads import Workload

TITLE = "Storage layers, HMMER on 12 × 40 cores: homogeneous I/O"

SEQUENCES = 48 * NODES
FRAGMENTS = 96
#: MB
SIZE = 400
#: seconds of one search: the best run then saves what was published
SEARCH = 10.0


def program() -> Workload:
    """The published graph, without its gathering."""
    workload = Workload()
    for sequence in range(SEQUENCES):
        for fragment in range(FRAGMENTS):
            found = workload.task("hmmpfam", seconds=about(SEARCH))
            write(workload, "checkpointFrag", f"{sequence}-{fragment}", SIZE, found)
    return workload


def replay() -> Replay:
    best, plain = Setting("fcfs", True), Setting("fcfs")
    runs = layered.Runs(measure(program, (BASELINE, plain, Setting("priority"), Setting("backfilling"), best)))
    return Replay(
        [
            runs.saves(best, 44.0, fitted=True),
            runs.speeds_up(best, "almost 3"),
            _alike(runs, Setting("priority")),
            _alike(runs, Setting("backfilling")),
            runs.is_faster("flushing speeds I/O up", best, plain),
        ],
        runs.charts("HMMER, 400 MB"),
        [f"fitted: a search takes {SEARCH:g} s", layered.MEANING],
    )


def _alike(runs: layered.Runs, setting: Setting) -> Figure:
    against = Setting("fcfs")
    ratio = runs[setting].io / runs[against].io
    return Figure(f"I/O time of {setting} against {against}", "≈ 1", ratio, "×", False, 0.97 <= ratio <= 1.1)
