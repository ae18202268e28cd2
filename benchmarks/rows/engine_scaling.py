"""Does a decision of the engine cost the same with a million ready tasks, and with ten thousand nodes?

The engine alone is driven here, without a runtime: every attempt is said to have taken a second, so nothing is sent
ahead and each end of a task leads to exactly one new launch. The figure is the cost of such a step in the large case
over its cost in the small one, both taken in the same process. A cluster is measured full (one node at a time has
room) and idle (every node has room for every task): searching is dear in different places.
"""

import gc
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable

from benchmarks.row import Budget, Measurement, Row
from benchmarks.workload import emit

CPUS_PER_NODE = 4
CHUNKS = 5
STEPS = 400

READY = "engine_ready_tasks_ratio"
FULL = "engine_full_nodes_ratio"
IDLE = "engine_idle_nodes_ratio"


def _row(name: str, figure: str) -> Row:
    return Row(name, "×", Measurement(figure, "less", __name__), Budget(2))


ROWS = [
    _row("decision, 10⁶ ready tasks over 10³", READY),
    _row("decision, 10⁴ full nodes over 10", FULL),
    _row("decision, 10⁴ idle nodes over 10", IDLE),
]


class Drive:
    """An engine with nodes, and the tasks it has launched, oldest first."""

    def __init__(self, nodes: int) -> None:
        from penstock.engine.engine import Engine
        from penstock.model.events import NodeJoined
        from penstock.model.resources import Node
        from penstock.model.tasks import TaskSpec
        from penstock.scheduling.ready_queues import ready_set
        from penstock.scheduling.registry import policy

        self.engine = Engine(ready_set(policy("fifo")))
        self.spec = TaskSpec(function=1, name="empty")
        self.running: deque[tuple[int, int]] = deque()
        self.submitted = 0
        for i in range(nodes):
            self.engine.handle(NodeJoined(Node(f"node{i}", CPUS_PER_NODE, 10**9)), 0.0)

    def submit(self) -> None:
        from penstock.model.data import Value
        from penstock.model.events import Submitted
        from penstock.model.tasks import TaskCall

        self.submitted += 1
        self._handle(Submitted(TaskCall(self.submitted, self.spec, Value(b""))))

    def finish(self) -> None:
        from penstock.model.events import Finished

        task, attempt = self.running.popleft()
        self._handle(Finished(task, attempt, [], seconds=1.0))

    def _handle(self, event: object) -> None:
        from penstock.model.commands import Launch

        for command in self.engine.handle(event, 0.0):  # type: ignore[arg-type]
            if type(command) is Launch:
                self.running.append((command.task, command.attempt))


def full(nodes: int, ready: int) -> float:
    """Seconds of one step on a full cluster: a task ends, another takes its place, a new one joins the ready."""
    drive = Drive(nodes)
    for _ in range(nodes * CPUS_PER_NODE + ready):
        drive.submit()

    def step() -> None:
        drive.finish()
        drive.submit()

    seconds = _seconds_per_step(step)
    if len(drive.running) != nodes * CPUS_PER_NODE or drive.engine.unfinished != nodes * CPUS_PER_NODE + ready:
        raise AssertionError("the cluster did not stay full")
    return seconds


def idle(nodes: int) -> float:
    """Seconds of one step on an idle cluster: a task comes, is placed, and ends."""
    drive = Drive(nodes)

    def step() -> None:
        drive.submit()
        drive.finish()

    return _seconds_per_step(step)


def _seconds_per_step(step: Callable[[], None]) -> float:
    gc.collect()
    means = []
    for _ in range(CHUNKS + 1):
        began = time.perf_counter()
        for _ in range(STEPS):
            step()
        means.append((time.perf_counter() - began) / STEPS)
    return statistics.median(means[1:])


def main() -> None:
    scale = 10 if "--quick" in sys.argv else 1
    figures: dict[str, Callable[[], tuple[float, float]]] = {
        READY: lambda: (full(10, 10**6 // scale), full(10, 10**3)),
        FULL: lambda: (full(10**4 // scale, 10**3), full(10, 10**3)),
        IDLE: lambda: (idle(10**4 // scale), idle(10)),
    }
    figure = next(argument for argument in sys.argv[1:] if argument in figures)
    large, small = figures[figure]()
    emit({figure: large / small, "large_us": large * 1e6, "small_us": small * 1e6})


if __name__ == "__main__":
    main()
