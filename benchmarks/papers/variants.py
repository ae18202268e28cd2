"""The variants discovery pipeline: 1,728 independent pipelines with checkpoints of five sizes.

Neither the order of all steps nor their times were published. Known: the checkpoints of `merge` and of `group` come
last, and `bwa_map` and `sort` share one checkpoint function. Every step takes the same time here.
"""

from __future__ import annotations

from benchmarks.papers.figure import Bars, Figure, Lines, Replay
from benchmarks.papers.marenostrum import (
    BOUNDED,
    STATIC,
    STEERED,
    UNAWARE,
    UNBOUNDED,
    UNCONSTRAINED,
    Checkpoint,
    Way,
    about,
    learned,
    saved,
    steered,
    sweep,
)
from benchmarks.papers.ssd import throughput
from penstock.sim.simulation import Outcome
from penstock.sim.workloads import Job, Workload

TITLE = "Variants discovery on 12 × 48 cores: checkpoints of five sizes"

INPUTS = 1728
#: step, its checkpoint function, MB
STEPS = (
    ("convertSAMtoFASTQ", "checkpoint_fastq", 162),
    ("bwa_map", "checkpoint_mapped", 290),
    ("sort", "checkpoint_mapped", 290),
    ("mark_duplicates", "checkpoint_marked", 596),
    ("merge", "checkpoint_merged", 330),
    ("group", "checkpoint_grouped", 615),
)
#: seconds of each step: computing then takes about as long as writing, where the gain is largest
STEP = 42.0
#: I/O executors where there are no constraints, as published
UNCONSTRAINED_EXECUTORS = 325
#: MB/s
LEARNED = {
    "checkpoint_fastq": 16,
    "checkpoint_mapped": 8,
    "checkpoint_merged": 4,
    "checkpoint_marked": 4,
    "checkpoint_grouped": 4,
}


def program(checkpoint: Checkpoint) -> Workload:
    """All pipelines, called one after the other."""
    workload = Workload()
    for number in range(INPUTS):
        before: list[Job] = []
        for step, name, size in STEPS:
            before = [workload.task(step, seconds=about(STEP), after=before)]
            checkpoint(workload, name, f"{step}-{number}", size, before[0])
    return workload


def replay() -> Replay:
    ways: tuple[Way, ...] = (UNAWARE, UNCONSTRAINED, *STATIC, UNBOUNDED, BOUNDED, STEERED)
    outcomes = sweep(program, ways, UNCONSTRAINED_EXECUTORS)
    sizes = sorted({size for _, _, size in STEPS})
    streams = [450 // constraint for constraint in STATIC]
    curves = {f"{size} MB": [(float(n), throughput(n, size)) for n in streams[::-1]] for size in sizes}
    return Replay(
        [*_gains(outcomes), steered(outcomes), *_picks(outcomes)],
        [
            Bars(
                "Variants: total time",
                "s",
                {str(way): outcome.makespan for way, outcome in outcomes.items() if way != 256},
            ),
            Lines("The SSD: rate of files of five sizes", "streams", "MB/s", curves, log_x=True),
        ],
        [
            f"fitted: every step takes {STEP:g} s",
            "the chart leaves 256 MB/s out, which takes far longer than all others",
        ],
    )


def _gains(outcomes: dict[Way, Outcome]) -> list[Figure]:
    unaware = outcomes[UNAWARE]
    best = min(STATIC, key=lambda way: outcomes[way].makespan)
    gain = saved(outcomes[best], unaware)
    short = (
        f"{43 - gain:.0f} points short. Checkpoints and next steps of independent pipelines become ready in turn, so "
        "the unaware run overlaps them too: while half of the cores write, the others compute"
    )
    low: tuple[Way, ...] = (UNAWARE, UNCONSTRAINED, 2, 4, 8, UNBOUNDED, BOUNDED)
    slowest = max(low, key=lambda way: outcomes[way].makespan)
    figures = [
        Figure(
            "saved against unaware, best static",
            "43",
            gain,
            "%",
            True,
            abs(gain - 43) <= 2,
            "" if gain >= 41 else short,
        ),
        Figure("best static constraint", 4, best, "MB/s", False, best == 4),
        Figure("slowest but for high constraints", UNCONSTRAINED, slowest, "", False, slowest == UNCONSTRAINED),
    ]
    for name, way in (("unbounded", UNBOUNDED), ("bounded", BOUNDED)):
        ours = saved(outcomes[way], unaware)
        near = abs(ours - gain) <= 10
        note = "" if near else f"{gain - ours:.0f} points behind: each of five functions learns on one node, in turn"
        figures.append(Figure(f"saved against unaware, {name}", "close to static 4", ours, "%", False, near, note))
    return figures


def _picks(outcomes: dict[Way, Outcome]) -> list[Figure]:
    figures = []
    for name, way in (("unbounded", UNBOUNDED), ("bounded", BOUNDED)):
        found = learned(outcomes[way])
        figures += [
            Figure(f"{name}: {function}", value, found.get(function, 0.0), "MB/s", True, found.get(function) == value)
            for function, value in LEARNED.items()
        ]
    return figures
