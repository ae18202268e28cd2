"""MareNostrum 4 as the I/O experiments used it, and the ways in which they ran each program.

12 nodes of 48 cores, each with the SSD of `ssd.py`. A *way* says what the checkpoints of a program are: ordinary tasks
("unaware"), I/O tasks ("unconstrained"), or I/O tasks with a bandwidth constraint, which is a number of MB/s or one
of the spellings of a learned one. Those are learned in epochs, as published, but for "steered", which is our default.
The working directory is shared, so results need no transfer between nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

from benchmarks.papers.figure import Figure
from benchmarks.papers.ssd import BANDWIDTH, MB, Ssd, layer
from penstock.engine.state import StorageRules
from penstock.model.resources import Node
from penstock.sim.simulation import Outcome, Simulation
from penstock.sim.workloads import Job, Normal, Workload

__all__ = [
    "BOUNDED",
    "EXECUTORS",
    "NODES",
    "STATIC",
    "STEERED",
    "UNAWARE",
    "UNBOUNDED",
    "UNCONSTRAINED",
    "Checkpoint",
    "Program",
    "Way",
    "about",
    "epochs",
    "learned",
    "run",
    "saved",
    "steered",
    "sweep",
    "written",
]

NODES = 12
CORES = 48
MEMORY = 370 * 10**9
#: of compute times, as a share of their mean: parts of equal size on nodes that nobody else uses
SPREAD = 0.005

#: as published: what is learned is learned in epochs
RULES = StorageRules(tuner="published")

UNAWARE, UNCONSTRAINED, UNBOUNDED, BOUNDED = "unaware", "unconstrained", "auto", "auto(2,256,2)"
#: "auto" by what devices deliver, which nobody has published
STEERED = "steered"
#: MB/s
STATIC = (2, 4, 8, 16, 32, 64, 128, 256)
#: I/O executors of a node with static and learned constraints: as many as 2 MB/s admit
EXECUTORS = BANDWIDTH // STATIC[0]

Way = str | int

#: adds a checkpoint: workload, name of the function, file, MB, the task whose result it writes
Checkpoint = Callable[[Workload, str, str, int, Job], Job]
Program = Callable[[Checkpoint], Workload]


class _Checkpoints(Struct, frozen=True):
    way: Way

    def __call__(self, workload: Workload, name: str, file: str, size: int, after: Job) -> Job:
        details: dict[str, Any] = {"writes": [(f"/ssd/{file}", size * MB)], "after": [after]}
        if self.way == UNAWARE:
            return workload.task(name, **details)
        constraint = {UNCONSTRAINED: None, STEERED: "auto"}.get(str(self.way), self.way)
        return workload.io_task(name, constraint=constraint, **details)


def about(seconds: float) -> Normal:
    """A compute time with the spread that all programs here have."""
    return Normal(seconds, SPREAD * seconds)


def run(program: Program, way: Way, executors: int = EXECUTORS) -> Outcome:
    """A program on the whole cluster, with its checkpoints done in one way."""
    ssd = layer()
    nodes = [Node(f"n{number:02}", CORES, MEMORY, (), (ssd,), executors) for number in range(1, NODES + 1)]
    rules = StorageRules() if way == STEERED else RULES
    return Simulation(
        nodes, program(_Checkpoints(way)), scheduler="load_balance", device=Ssd, seed=1, rules=rules
    ).run()


def sweep(program: Program, ways: Iterable[Way], unconstrained_executors: int = EXECUTORS) -> dict[Way, Outcome]:
    """A program in many ways; without constraints with as many I/O executors as was published."""
    return {way: run(program, way, unconstrained_executors if way == UNCONSTRAINED else EXECUTORS) for way in ways}


def saved(outcome: Outcome, unaware: Outcome) -> float:
    """Per cent of the time of the unaware run."""
    return 100 * (1 - outcome.makespan / unaware.makespan)


def steered(outcomes: Mapping[Way, Outcome]) -> Figure:
    """What our default saves, as a part of what the best static constraint does; the aim is nine tenths."""
    unaware = outcomes[UNAWARE]
    best = max(saved(outcomes[way], unaware) for way in STATIC)
    ours = saved(outcomes[STEERED], unaware)
    note = f"{ours / best:.0%} of the {best:.1f} % of the best static constraint; ours, not published; aim 90 %"
    return Figure("saved against unaware, adaptive auto", "", ours, "%", False, None, note)


def learned(outcome: Outcome) -> dict[str, float]:
    """MB/s chosen last, by function."""
    return {choice.function: choice.constraint / MB for choice in outcome.chosen}


def epochs(outcome: Outcome, function: str) -> list[float]:
    """MB/s of each epoch of a function's learning phase."""
    return [epoch.constraint / MB for epoch in outcome.epochs if epoch.function == function]


def written(outcome: Outcome, megabytes: float) -> float:
    """MB/s on one device, on the average over the time in which any stream was active there."""
    return megabytes / sum(device.busy for device in outcome.devices.values())
