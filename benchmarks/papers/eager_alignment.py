"""Pairwise alignment of 55, 110 and 220 GB: a stream of reads, against parts of 55 GB read one after the other.

Out of core, a reader gives all reads of a part at its end, and the next part is read when the part is aligned, since
the memory does not hold two. As a stream, one reader hands over what each of 2,000 to 8,000 tasks aligns. Published are
those numbers, that the stream is always faster, and that the gain grows with the size.
"""

from __future__ import annotations

from benchmarks.papers.early import Both, grows, machine, seconds, times
from benchmarks.papers.figure import Figure, Lines, Replay
from penstock.sim.workloads import Job, Workload

__all__ = ["TITLE", "measure", "out_of_core", "replay", "stream"]

TITLE = "Sequence alignment: a stream instead of out of core, 8 nodes"

NODES = 8
#: published: GB of a part, tasks that align it, and how many parts there are
PART, ALIGNS = 55, 2_000
PARTS = (1, 2, 4)
#: seconds of one task that aligns; everything else is relative to it
ALIGN = 60.0
#: seconds to read a part, fitted to the headline: as long as 384 cores need to align it
READ = ALIGNS / (NODES * 48) * ALIGN
#: seconds to read a part for which the gain is shown, relative to the above
SHARES = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)


def stream(parts: int, read: float = READ, aligns: int = ALIGNS) -> Workload:
    """One reader hands over the reads of each task as it has them."""
    workload = Workload()
    count = parts * aligns
    reader = workload.task("get_reads", seconds=parts * read, ready=[read / aligns * (n + 1) for n in range(count)])
    for number in range(count):
        workload.task("align", seconds=ALIGN, after=[reader[number]])
    return workload


def out_of_core(parts: int, read: float = READ, aligns: int = ALIGNS) -> Workload:
    """A reader for each part, which begins when the part before it is aligned."""
    workload = Workload()
    before: list[Job] = []
    for _ in range(parts):
        reader = workload.task("get_reads", seconds=read, ready=[read] * aligns, after=before)
        before = [workload.task("align", seconds=ALIGN, after=[reader[number]]) for number in range(aligns)]
    return workload


def measure(parts: int, read: float = READ) -> Both:
    """Seconds of both ways."""
    nodes = machine(NODES)
    return Both(seconds(stream(parts, read), nodes), seconds(out_of_core(parts, read), nodes))


def replay() -> Replay:
    runs = {parts: measure(parts) for parts in PARTS}
    saved = [run.saved for run in runs.values()]
    share = {share: measure(PARTS[-1], share * READ).saved for share in SHARES}
    faster = all(run.early < run.late for run in runs.values())
    figures = [
        Figure("stream is faster", "at all sizes", "at all sizes" if faster else "not always", "", False, faster),
        grows("saved, with 55, 110 and 220 GB", runs.values()),
        Figure("saved at most, of all programs", "> 50", max(saved), "%", True, max(saved) > 50),
    ]
    sizes = {parts * PART: run for parts, run in runs.items()}
    charts = [
        times("alignment: time by size", "GB", sizes, ("stream", "out of core")),
        Lines("alignment, 220 GB: saved", "reading over aligning", "%", {"saved": list(share.items())}, log_x=True),
    ]
    return Replay(figures, charts, _REMARKS)


_REMARKS = (
    "fitted: reading a part takes as long as 384 cores need to align it, where the gain is largest; the chart shows it "
    "for others. No times were published, and not which program saved more than 50 %: this one or the decomposition",
    "read so: the next part is read when the one before it is aligned. If readers ran at the same time as the tasks of "
    "other parts, only the first part would gain",
    "more than half is saved because each part ends with cores that have nothing to align: 2,000 tasks on 384 cores",
)
