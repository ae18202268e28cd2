"""Domain decomposition: generators hand over sub-domains as they cut them, and a task solves each.

Four generators on 8 nodes of 48 cores with more and more sub-domains each; then 10 × 800 of them on more and more
nodes, and one generator of 800 for each node. Published are those numbers and how the curves lie, but no times.
"""

from __future__ import annotations

from benchmarks.generations.cost import Cost
from benchmarks.papers.early import CORES, FREE, MASTER, Both, HandOver, both, grows, machine, shown, times
from benchmarks.papers.figure import Figure, Replay
from penstock.sim.workloads import Workload

__all__ = ["TITLE", "decomposition", "measure", "replay"]

TITLE = "Domain decomposition: sub-domains handed over as they are cut"

#: published
GENERATORS, NODES = 4, 8
STRONG_GENERATORS, PARTS = 10, 800
#: assumed: sub-domains of a generator; nodes of strong scaling
COUNTS = (24, 96, 200, 400, 800)
STRONG = (1, 2, 4, 8, 12)
WEAK = (1, 2, 4, 8, 12)

#: seconds to solve a sub-domain of mean size; everything else is relative to it
SOLVE = 20.0
#: seconds to cut one; assumed: 4 generators make as many as 8 nodes solve, where early outputs gain most
CUT = GENERATORS / (NODES * CORES) * SOLVE
#: assumed: sub-domains are irregular, from 1 − this to 1 + this of the mean
IRREGULAR = 0.5


def decomposition(generators: int, parts: int, hand_over: HandOver) -> Workload:
    """Each generator cuts its sub-domains, and each of these is solved."""
    workload = Workload()
    sizes = [1 - IRREGULAR + 2 * IRREGULAR * (part * 0.618 % 1) for part in range(parts)]
    took = CUT * parts
    ready = hand_over([CUT * (part + 1) for part in range(parts)], took)
    made = [workload.task("generate", seconds=took, ready=[min(at, took) for at in ready]) for _ in range(generators)]
    for generator in made:
        for part, size in enumerate(sizes):
            workload.task("solve", seconds=SOLVE * size, after=[generator[part]])
    return workload


def measure(generators: int, parts: int, nodes: int, cost: Cost = MASTER) -> Both:
    """Seconds with so many generators of so many sub-domains each."""
    return both(lambda hand_over: decomposition(generators, parts, hand_over), machine(nodes), cost)


def replay() -> Replay:
    runs = {parts: measure(GENERATORS, parts, NODES) for parts in COUNTS}
    strong = {nodes: measure(STRONG_GENERATORS, PARTS, nodes) for nodes in STRONG}
    weak = {nodes: measure(nodes, PARTS, nodes) for nodes in WEAK}
    free = {nodes: measure(STRONG_GENERATORS, PARTS, nodes, FREE) for nodes in STRONG}
    few = runs[COUNTS[0]].saved
    figures = [
        grows("saved, by sub-domains of a generator", runs.values()),
        Figure("saved, fewer sub-domains than cores", "little", few, "%", False, few < 10),
        Figure("saved at most", "≤ 50", max(run.saved for run in runs.values()), "%", False, None, _HEADLINE),
        grows("strong scaling, 8,000 sub-domains: saved", strong.values()),
        Figure("the same, decisions for nothing", "", shown(run.saved for run in free.values()), "%", False, None),
        *_efficiencies(weak),
    ]
    charts = [
        times("decomposition: 4 generators, 8 nodes", "sub-domains of a generator", runs),
        times("decomposition: strong scaling", "nodes", strong),
        times("decomposition: weak scaling", "nodes", weak),
    ]
    return Replay(figures, charts, _REMARKS)


def _efficiencies(weak: dict[int, Both]) -> list[Figure]:
    """How much of the speed of one node is left on twelve."""
    early, late = (run.early for run in weak.values()), (run.late for run in weak.values())
    lost = {name: _largest_loss(list(times)) for name, times in (("early", early), ("late", late))}
    steadier = lost["early"] < lost["late"]
    shown = f"early {lost['early']:.0f}, late {lost['late']:.0f}"
    first, last = weak[WEAK[0]], weak[WEAK[-1]]
    left = f"on 12 nodes {100 * first.early / last.early:.0f} % and {100 * first.late / last.late:.0f} % are left"
    return [Figure("weak scaling: efficiency lost", "early less than late", shown, "%", False, steadier, left)]


def _largest_loss(times: list[float]) -> float:
    """Per cent of the efficiency between the best and the worst case."""
    shares = [times[0] / time for time in times]
    return 100 * (max(shares) - min(shares))


_HEADLINE = "not published which program saved more than half; see the alignment"
_REMARKS = (
    f"assumed: a solver takes {SOLVE:g} s, within ±{IRREGULAR:.0%}, and 4 generators cut as many sub-domains as 8 "
    "nodes solve, where the gain is largest; the counts of sub-domains and nodes between. Nothing is fitted",
    "the same times hold for strong and weak scaling",
    "the master looks at all ready tasks again when one ends, 6.9 µs for each, as published times of it imply: late "
    "outputs make thousands of tasks ready at once",
)
