"""What the master hears late when many generators hand over outputs: 100 integers each, nobody computes with them.

Five nodes of 48 cores. The time from a hand-over to the moment at which the master takes it up is compared with the
same for the ends of the generators when outputs come with those. Published is that the first is longer, that it grows
with the number of generators, and that total time grows with it.
"""

from __future__ import annotations

from itertools import pairwise

from msgspec import Struct

from benchmarks.papers.early import machine
from benchmarks.papers.figure import Figure, Lines, Replay
from penstock.engine.engine import Engine
from penstock.model import events
from penstock.sim.simulation import Simulation
from penstock.sim.workloads import Workload

__all__ = ["TITLE", "Reception", "measure", "replay"]

TITLE = "Messages of early outputs: reception by the master, 5 nodes"

#: published
NODES, OUTPUTS = 5, 100
#: assumed: how many generators there are
GENERATORS = (1, 5, 20, 80, 200)
#: assumed: seconds of the master for each message, and of a generator for each output
MASTER, EACH = 0.001, 0.01


class Reception(Struct, frozen=True):
    """How long the master took to hear of outputs, as a mean, and how long all took."""

    seconds: float
    total: float


class _Watch:
    """Notes how long after a generator has said something the master takes it up.

    All of them begin at the start: there is a core for each, and calls cost nothing here.
    """

    def __init__(self, generators: int) -> None:
        self._generators = generators
        self._cost = 0.0
        self.late: list[float] = []

    def __call__(self, now: float, event: events.Event) -> None:
        self._cost = 0.0 if isinstance(event, events.Submitted) else MASTER
        match event:
            case events.OutputReady(index=index):
                self.late.append(now - EACH * (index + 1))
            case events.Finished(task=task, seconds=seconds) if task <= self._generators and not self._early(event):
                self.late.append(now - seconds)

    def cost(self, engine: Engine) -> float:
        """Seconds of the master for the event that it was told last."""
        return self._cost

    @staticmethod
    def _early(event: events.Finished) -> bool:
        """Whether all outputs came before the end, which nobody waits for then."""
        return event.outputs[0] is None


def program(generators: int, *, early: bool) -> Workload:
    """Each output of each generator has a task that does nothing with it."""
    workload = Workload()
    ready = [EACH * (index + 1) for index in range(OUTPUTS)] if early else []
    made = [workload.task("generate", seconds=EACH * OUTPUTS, ready=ready) for _ in range(generators)]
    for generator in made:
        for index in range(OUTPUTS):
            workload.task("consume", after=[generator[index] if early else generator])
    return workload


def measure(generators: int, *, early: bool) -> Reception:
    """Run it with a master that needs its time for every message."""
    watch = _Watch(generators)
    workload = program(generators, early=early)
    outcome = Simulation(machine(NODES), workload, decision_seconds=watch.cost, watch=watch).run()
    if outcome.done != len(workload.jobs):
        raise AssertionError(f"{outcome.done} of {len(workload.jobs)} tasks were done")
    return Reception(sum(watch.late) / len(watch.late), outcome.makespan)


def replay() -> Replay:
    early = {generators: measure(generators, early=True) for generators in GENERATORS}
    late = {generators: measure(generators, early=False) for generators in GENERATORS}
    received = [run.seconds * 1e3 for run in early.values()]
    grows = all(after > before for before, after in pairwise(received))
    longer = all(early[generators].seconds > late[generators].seconds for generators in GENERATORS[1:])
    slower = early[GENERATORS[-1]].total / late[GENERATORS[-1]].total
    figures = [
        Figure("reception of an early output", "grows", _shown(received), "ms", False, grows),
        Figure("longer than of an end", "yes", "yes" if longer else "not always", "", False, longer),
        Figure("total, many generators: early over late", "> 1", slower, "×", False, slower > 1),
    ]
    names = {"early outputs": early, "ends": late}
    curves = {name: [(count, run.seconds * 1e3) for count, run in runs.items()] for name, runs in names.items()}
    return Replay(figures, [Lines("reception by the master", "generators", "ms", curves, log_x=True)], _REMARKS)


def _shown(values: list[float]) -> str:
    return " ".join(f"{value:,.0f}" for value in values)


_REMARKS = (
    f"assumed: the master needs {MASTER * 1e3:g} ms for a message, a generator {EACH * 1e3:g} ms for an output; there "
    f"are {', '.join(map(str, GENERATORS))} generators",
    "calls cost the master nothing. If each costs as much as a message, generators start one after the other, "
    "reception stays near half a second from 20 generators on, and is not always longer than that of an end",
    "nothing is hidden behind computing here, which is where early outputs cost most",
)
