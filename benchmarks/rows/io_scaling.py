"""Does a decision of the I/O schedulers cost the same with a million ready I/O tasks, and with ten thousand nodes?

The engine alone is driven here, without a runtime: every attempt is said to have taken about a second, so nothing is
sent ahead. Nodes have a layer of their own, and one that all share. Two functions write, one of declared bandwidth and
one whose bandwidth was learned by an earlier run. In a full cluster an attempt ends, another takes its place and a new
task joins the ready; in an idle one a task comes, is placed and ends. A figure is the cost of such a step in the large
case over its cost in the small one, both taken in the same process: the worst of the three schedulers.
"""

import gc
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable

from benchmarks.row import Budget, Measurement, Row
from benchmarks.workload import emit

EXECUTORS = 4
#: bytes per second of a node's own layer: fewer attempts than executors, or as many
SCARCE, AMPLE = 100e6, 1e9
#: seconds of an attempt by how many there are on its device: what was learned stays true
SECONDS = (0.0, 0.4, 0.4, 0.7, 1.0)
CHUNKS = 5
STEPS = 300
SCHEDULERS = ("fcfs", "priority", "backfilling")

READY = "io_ready_tasks_ratio"
FULL = "io_full_nodes_ratio"
IDLE = "io_idle_nodes_ratio"


def _row(name: str, figure: str) -> Row:
    return Row(name, "×", Measurement(figure, "less", __name__, rounds=1), Budget(2))


ROWS = [
    _row("I/O decision, 10⁶ ready tasks over 10³", READY),
    _row("I/O decision, 10⁴ full nodes over 10", FULL),
    _row("I/O decision, 10⁴ idle nodes over 10", IDLE),
]


class Drive:
    """An engine with nodes, and the I/O tasks it has launched, oldest first."""

    def __init__(self, nodes: int, scheduler: str, bandwidth: float = SCARCE) -> None:
        from penstock.engine.engine import Engine
        from penstock.engine.state import StorageRules
        from penstock.model.events import NodeJoined
        from penstock.model.resources import Auto, Node, Requirements, StorageLayer
        from penstock.model.tasks import TaskSpec
        from penstock.scheduling.ready_queues import ready_set
        from penstock.scheduling.registry import policy
        from penstock.tuning.registry import Learned, Measure

        own = StorageLayer("own", "/own", bandwidth)
        common = StorageLayer("common", "/common", 50e6, shared=True)
        measures = (Measure(20e6, SECONDS[4], 4, 4), Measure(40e6, SECONDS[2], 2, 2))
        known = {
            ("learned", layer.name): Learned("learned", layer.name, layer.bandwidth, EXECUTORS, Auto(), measures)
            for layer in (own, common)
        }
        rules = StorageRules(scheduler=scheduler, known=known, tuner="published")
        self.engine = Engine(ready_set(policy("fifo")), storage=rules)
        declared = Requirements(0, io=True, bandwidth=30e6)
        self.specs = (
            TaskSpec(function=1, name="declared", requirements=declared),
            TaskSpec(function=2, name="learned", requirements=Requirements(0, io=True, auto=Auto())),
        )
        self.running: deque[tuple[int, int]] = deque()
        self.submitted = 0
        self.now = 0.0
        for i in range(nodes):
            node = Node(f"node{i}", 1, 10**9, storage=(own, common), io_executors=EXECUTORS)
            self.engine.handle(NodeJoined(node), 0.0)

    def submit(self) -> None:
        from penstock.model.data import Value
        from penstock.model.events import Submitted
        from penstock.model.tasks import TaskCall

        self.submitted += 1
        self._handle(Submitted(TaskCall(self.submitted, self.specs[self.submitted % 2], Value(b""))))

    def finish(self) -> None:
        from penstock.model.events import Finished

        task, attempt = self.running.popleft()
        among = len(self.engine.state.tasks[task].device.holders)  # type: ignore[attr-defined]  # an I/O task
        self._handle(Finished(task, attempt, [], seconds=SECONDS[among]))

    def _handle(self, event: object) -> None:
        from penstock.model.commands import Launch

        self.now += 1e-3
        for command in self.engine.handle(event, self.now):  # type: ignore[arg-type]
            if type(command) is Launch:
                self.running.append((command.task, command.attempt))
        self.engine.state.notes.clear()


def full(nodes: int, ready: int, scheduler: str, bandwidth: float = SCARCE) -> float:
    """Seconds of one step on a full cluster: a task ends, others take its place, as many join the ready."""
    drive = Drive(nodes, scheduler, bandwidth)
    while len(drive.engine.state.io_ready) < ready:
        drive.submit()

    def step() -> None:
        drive.finish()
        while len(drive.engine.state.io_ready) < ready:
            drive.submit()

    return _seconds_per_step(step)


def idle(nodes: int, scheduler: str) -> float:
    """Seconds of one step on an idle cluster: a task comes, is placed, and ends."""
    drive = Drive(nodes, scheduler)

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
    figures: dict[str, Callable[[str], tuple[float, float]]] = {
        READY: lambda scheduler: (full(10, 10**6 // scale, scheduler, AMPLE), full(10, 10**3, scheduler, AMPLE)),
        FULL: lambda scheduler: (full(10**4 // scale, 10**3, scheduler), full(10, 10**3, scheduler)),
        IDLE: lambda scheduler: (idle(10**4 // scale, scheduler), idle(10, scheduler)),
    }
    figure = next(argument for argument in sys.argv[1:] if argument in figures)
    steps = {scheduler: figures[figure](scheduler) for scheduler in SCHEDULERS}
    found = {figure: max(large / small for large, small in steps.values())}
    for scheduler, (large, small) in steps.items():
        found |= {f"{scheduler}_large_us": large * 1e6, f"{scheduler}_small_us": small * 1e6}
    emit(found)


if __name__ == "__main__":
    main()
