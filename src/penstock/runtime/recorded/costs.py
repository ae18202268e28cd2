"""What executors cost besides the tasks, measured on a run's own log.

An attempt's body began as long before its end was known as it ran. What lies between that and its launch, or the end
of the one before it on its lane, is what sending, waking up and telling took. Means are taken, not medians: their sum
is the time that was really spent.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from penstock.runtime.recorded.run import Attempt, RecordedRun
from penstock.sim.work import Costs

__all__ = ["costs_of"]


#: processes asked for within so many seconds start together
_TOGETHER = 0.01


class _Samples:
    """Times of one kind of lanes."""

    def __init__(self) -> None:
        #: attempts that waited for their process: since when, and when they began
        self.started: list[tuple[float, float]] = []
        self.first: list[float] = []
        self.next: list[float] = []

    def costs(self) -> Costs:
        """Means, and for processes that start together: how long the first takes, and each one after it."""
        start, each = [], []
        for together in self._bursts():
            begun = sorted(time for _, time in together)
            start.append(begun[0] - together[0][0])
            each += [after - before for before, after in pairwise(begun)]
        return Costs(_mean(start), _mean(each), _mean(self.first), _mean(self.next))

    def _bursts(self) -> list[list[tuple[float, float]]]:
        bursts: list[list[tuple[float, float]]] = []
        for one in sorted(self.started):
            if bursts and one[0] - bursts[-1][-1][0] < _TOGETHER:
                bursts[-1].append(one)
            else:
                bursts.append([one])
        return bursts


def costs_of(run: RecordedRun) -> tuple[Costs, Costs]:
    """What lanes that compute cost, and those that serve I/O tasks."""
    compute, io = _Samples(), _Samples()
    for (name, lane), attempts in run.lanes().items():
        node = run.nodes.get(name)
        is_io = node is not None and lane >= node.cpus
        _look(attempts, run.workers.get((name, lane), []), io if is_io else compute, from_launch=is_io)
    if not compute.started:
        # Every process was there before its first attempt: it was sooner than that.
        cpus = {node.name: node.cpus for node in run.nodes.values()}
        compute.started = [(0.0, times[0]) for (name, lane), times in run.workers.items() if lane < cpus.get(name, 0)]
    return compute.costs(), io.costs()


def _look(attempts: Iterable[Attempt], started: list[float], samples: _Samples, *, from_launch: bool) -> None:
    """Go through the attempts of a lane."""
    before: Attempt | None = None
    for attempt in attempts:
        behind = before is not None and attempt.launched < before.ended
        starting = any(attempt.launched <= time <= attempt.ended for time in started)
        if not attempt.timed:
            pass
        elif starting and (before is None or (from_launch and not behind)):
            # Its process was only being started: on demand for I/O, with the run for computing.
            samples.started.append((attempt.launched if from_launch else 0.0, attempt.begun))
        elif before is not None and behind:
            samples.next.append(attempt.ended - before.ended - attempt.seconds)
        else:
            samples.first.append(attempt.begun - attempt.launched)
        before = attempt


def _mean(samples: list[float]) -> float:
    return max(0.0, sum(samples) / len(samples)) if samples else 0.0
