"""Early against late outputs at the published scale: the machine, the master, and a program run both ways.

Late outputs are those of the same task, all handed over when it ends; the tasks, their times and their order are the
same in both. Decisions cost nothing, or what published times of that runtime imply: its master looks at every ready
task again whenever one ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

from benchmarks.generations.charged import Charged
from benchmarks.generations.cost import Cost
from benchmarks.papers.figure import Figure, Lines
from penstock.model.resources import Node, Requirements
from penstock.sim.simulation import Simulation
from penstock.sim.workloads import Workload

__all__ = [
    "COMPUTE",
    "CORES",
    "FREE",
    "IO",
    "MASTER",
    "Both",
    "HandOver",
    "both",
    "grows",
    "machine",
    "seconds",
    "shown",
    "times",
]

CORES = 48
MEMORY = 370 * 10**9

#: seconds for each ready task at each end of a task, as published times of that runtime imply; see `geospatial`
PER_READY = 6.9e-6
FREE = Cost(0.0, ((0, 0.0), (1, 0.0)), ((0, 0.0), (1, 0.0)))
#: a straight line
MASTER = Cost(0.0, ((0, 0.0), (1, 0.0)), ((0, 0.0), (100_000, 100_000 * PER_READY)))

#: what pins tasks to one kind of nodes
IO = Requirements(1, properties=(("processor_name", "io"),))
COMPUTE = Requirements(1, properties=(("processor_name", "compute"),))


class Both(Struct, frozen=True):
    """Seconds of a program with early outputs, and with all of them at the end of their task."""

    early: float
    late: float

    @property
    def saved(self) -> float:
        """Per cent of the time with late outputs."""
        return 100 * (1 - self.early / self.late)


#: a program, told when each of a task's outputs is there and how long the task takes: when it hands them over
HandOver = Callable[[Sequence[float], float], Sequence[float]]
Program = Callable[[HandOver], Workload]


def both(program: Program, nodes: Iterable[Node], cost: Cost = FREE) -> Both:
    """A program run both ways on the same nodes."""
    there = list(nodes)
    early = seconds(program(lambda ready, _: ready), there, cost)
    late = seconds(program(lambda ready, end: [end] * len(ready)), there, cost)
    return Both(early, late)


def machine(nodes: int, kind: Requirements | None = None) -> list[Node]:
    """Nodes of 48 cores, of one kind if they are told apart."""
    properties = () if kind is None else kind.properties
    name = "node" if kind is None else properties[0][1]
    return [Node(f"{name}{number:02}", CORES, MEMORY, properties) for number in range(nodes)]


def seconds(workload: Workload, nodes: Iterable[Node], cost: Cost = FREE) -> float:
    """How long a program takes with a master whose decisions cost this much."""
    ready = Charged(cost)
    deciding = 0.0 if cost is FREE else ready.seconds
    outcome = Simulation(nodes, workload, scheduler=ready, decision_seconds=deciding).run()
    if outcome.done != len(workload.jobs):
        raise AssertionError(f"{outcome.done} of {len(workload.jobs)} tasks were done")
    return outcome.makespan


def grows(name: str, runs: Iterable[Both]) -> Figure:
    """Whether the gain rises from case to case."""
    saved = [run.saved for run in runs]
    rising = all(after > before for before, after in pairwise(saved))
    return Figure(name, "grows", shown(saved), "%", False, rising)


def shown(saved: Iterable[float]) -> str:
    """Per cent from case to case."""
    return " ".join(f"{value:.0f}" for value in saved)


def times(title: str, x: str, runs: Mapping[int, Both], names: tuple[str, str] = ("early", "late")) -> Lines:
    """A chart of both ways over the cases."""
    curves = {
        names[0]: [(count, run.early) for count, run in runs.items()],
        names[1]: [(count, run.late) for count, run in runs.items()],
    }
    return Lines(title, x, "s", curves, log_x=True)
