"""What a decision of a scheduler costs: the real engine, driven by a ready set, timed at several queue lengths.

Every attempt is said to have taken a second, so nothing is sent ahead and each end of a task leads to a decision. The
costs are those of `Engine.handle` as a whole, in seconds of this machine: for a task that becomes ready, and for a task
that ends and whose place another one takes.
"""

from __future__ import annotations

import gc
import sys
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from statistics import median

from msgspec import Struct

from benchmarks.generations import MaintainedLists, PersistentLists, Rescoring
from penstock.engine.engine import Engine
from penstock.model.commands import Launch
from penstock.model.data import Value
from penstock.model.events import Event, Finished, NodeJoined, Submitted
from penstock.model.resources import Node, Requirements
from penstock.model.tasks import TaskCall, TaskSpec
from penstock.scheduling.compute import Fifo
from penstock.scheduling.ready_queues import ready_set
from penstock.scheduling.view import ReadySet

__all__ = ["CPUS", "SCHEDULERS", "Cost", "Course", "Make", "clock", "measured", "scheduler"]

CPUS = 48
#: how long other threads may hold up the one that decides; the default of 5 ms would be most of what V2 costs
_SWITCH = 1e-4

Make = Callable[[], ReadySet]

#: all with the same policy, for which all of them decide alike
SCHEDULERS: dict[str, Make] = {
    "V0": lambda: Rescoring(Fifo()),
    "V0, linear duplicate test": lambda: Rescoring(Fifo(), linear_duplicates=True),
    "V1": lambda: PersistentLists(Fifo()),
    "V2": lambda: MaintainedLists(Fifo()),
    "ours": lambda: ready_set(Fifo()),
}


@contextmanager
def scheduler(name: str) -> Iterator[ReadySet]:
    """A new ready set of that name; its threads, if any, end with the block.

    Python's cyclic garbage collector rests meanwhile: V0, which makes a new queue for each decision, would wake it all
    the time, and what it costs then depends on everything else that is in memory.
    """
    ready = SCHEDULERS[name]()
    before = sys.getswitchinterval()
    gc.collect()
    gc.disable()
    try:
        sys.setswitchinterval(_SWITCH)
        yield ready
    finally:
        gc.enable()
        sys.setswitchinterval(before)
        if isinstance(ready, MaintainedLists):
            ready.close()


def clock(name: str) -> Callable[[], float]:
    """Time of the processor, so that what others use of the machine does not count.

    Of V2, that of all its threads: one runs at a time, and the one that decides waits for the others.
    """
    return time.process_time if name == "V2" else time.thread_time


class Cost(Struct, frozen=True):
    """Seconds by number of ready tasks, shortest queue first; between two of them along a straight line.

    Beyond what was measured nothing is extrapolated: the nearest counts.
    """

    #: of a task that becomes ready while there is room, and is placed
    start: float
    #: of a task that becomes ready while nothing is free
    adds: tuple[tuple[int, float], ...]
    #: of a task that ends, with one placed on what it gives back
    releases: tuple[tuple[int, float], ...]

    def add(self, ready: int) -> float:
        return _between(self.adds, ready)

    def release(self, ready: int) -> float:
        return _between(self.releases, ready)


def _between(points: Sequence[tuple[int, float]], x: int) -> float:
    at = bisect_left(points, (x, 0.0))
    if at == 0 or at == len(points):
        return points[min(at, len(points) - 1)][1]
    (x0, y0), (x1, y1) = points[at - 1], points[at]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


class Course:
    """An engine, and the tasks that it has launched, oldest first."""

    def __init__(self, ready: ReadySet, nodes: int, cpus: int = CPUS) -> None:
        self.engine = Engine(ready)
        self.ready = ready
        self.running: deque[tuple[int, int]] = deque()
        self._specs: dict[int, TaskSpec] = {}
        self._submitted = 0
        for index in range(nodes):
            self._handle(NodeJoined(Node(f"node{index}", cpus, 10**12)))

    def submit(self, cpus: int) -> None:
        spec = self._specs.get(cpus)
        if spec is None:
            spec = self._specs[cpus] = TaskSpec(len(self._specs), f"f{cpus}", Requirements(cpus))
        self._submitted += 1
        self._handle(Submitted(TaskCall(self._submitted, spec, Value(b""))))

    def finish(self) -> None:
        """The oldest of the running tasks ends."""
        task, attempt = self.running.popleft()
        self._handle(Finished(task, attempt, [], seconds=1.0))

    def _handle(self, event: Event) -> None:
        for command in self.engine.handle(event, 0.0):
            if type(command) is Launch:
                self.running.append((command.task, command.attempt))


def measured(
    name: str, nodes: int, lengths: Sequence[int], *, cpus: int = CPUS, steps: int = 50, patience: float = 2.0
) -> Cost:
    """Costs with queues of these lengths; at each length as many steps as there is patience for, at least three."""
    adds: list[tuple[int, float]] = []
    releases: list[tuple[int, float]] = []
    now = clock(name)

    def timed(act: Callable[[], None]) -> float:
        began = now()
        act()
        return now() - began

    with scheduler(name) as ready:
        course = Course(ready, nodes, cpus)
        submit = partial(course.submit, 1)
        starting = [timed(submit) for _ in range(nodes * cpus)]
        for length in sorted(lengths):
            adding = [timed(submit) for _ in range(length - len(ready))]
            releasing: list[float] = []
            while len(releasing) < 3 or (len(releasing) < steps and sum(releasing) < patience):
                releasing.append(timed(course.finish))
                submit()
            adds.append((length, median(adding[-1000:])))
            releases.append((length, median(releasing)))
    return Cost(median(starting), tuple(adds), tuple(releases))
