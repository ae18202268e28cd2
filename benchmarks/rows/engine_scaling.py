"""Does a decision of the engine cost the same with a million ready tasks, and with ten thousand nodes?

The engine alone is driven here, without a runtime: every attempt is said to have taken a second, so nothing is sent
ahead and each end of a task leads to exactly one new launch. The figure is the cost of such a step in the large case
over its cost in the small one, both taken in the same process. A cluster is measured full (one node at a time has
room) and idle (every node has room for every task): searching is dear in different places. For policies that follow
the data, each task reads an object that lies on one of the nodes, so that it scores higher there.
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
CHUNKS = 9
STEPS = 400

POLICIES = ("fifo", "locality", "load_balance")


def _figure(case: str, policy: str) -> str:
    return f"engine_{case}_ratio_{policy}"


def _row(name: str, case: str, policy: str) -> Row:
    # One round: to fill a cluster takes longer than to measure it, and CPU time hardly varies.
    return Row(f"{name}, {policy}", "×", Measurement(_figure(case, policy), "less", __name__, rounds=1), Budget(2))


ROWS = [
    _row(name, case, policy)
    for case, name in (
        ("ready_tasks", "decision, 10⁶ ready tasks over 10³"),
        ("full_nodes", "decision, 10⁴ full nodes over 10"),
        ("idle_nodes", "decision, 10⁴ idle nodes over 10"),
    )
    for policy in POLICIES
] + [_row("decision beside a gang that waits, 10⁴ nodes over 10", "waiting_gang", "fifo")]


class Drive:
    """An engine with nodes, and the tasks it has launched, oldest first."""

    def __init__(self, policy_name: str, nodes: int) -> None:
        from penstock.engine.engine import Engine
        from penstock.model.events import NodeJoined
        from penstock.model.resources import Node
        from penstock.model.tasks import TaskSpec
        from penstock.scheduling.ready_queues import ready_set
        from penstock.scheduling.registry import policy

        follows_data = policy_name != "fifo"
        self.engine = Engine(ready_set(policy(policy_name)), follows_data=follows_data)
        self.spec = TaskSpec(function=1, name="empty")
        self.running: deque[tuple[int, int]] = deque()
        self.submitted = 0
        #: versions that tasks read in turn, each on another node
        self.objects: list[int] = []
        for i in range(nodes):
            self.handle(NodeJoined(Node(f"node{i}", CPUS_PER_NODE, 10**9)))
        if follows_data:
            self._spread_objects(nodes)

    def _spread_objects(self, nodes: int) -> None:
        """An object on each node: tasks fill the cluster and leave one each."""
        from penstock.model.data import Value
        from penstock.model.events import Finished, Submitted
        from penstock.model.tasks import TaskCall

        where: dict[str, int] = {}
        for i in range(1, nodes * CPUS_PER_NODE + 1):
            call = TaskCall(-i, self.spec, Value(b""), writes=(i,), returns=1)
            self.handle(Submitted(call))
            lane = self.engine.state.tasks[-i].lane
            assert lane is not None
            where.setdefault(lane.node.name, i)
        for task, attempt in self.running:
            self.handle(Finished(task, attempt, [Value(b"object")], seconds=1.0))
        self.running.clear()
        self.objects = list(where.values())

    def submit(self) -> None:
        from penstock.model.data import Value
        from penstock.model.events import Submitted
        from penstock.model.tasks import TaskCall

        self.submitted += 1
        if self.objects:
            read = (self.objects[self.submitted % len(self.objects)],)
            self.handle(Submitted(TaskCall(self.submitted, self.spec, Value(b""), slots=read, reads=read)))
        else:
            self.handle(Submitted(TaskCall(self.submitted, self.spec, Value(b""))))

    def finish(self) -> None:
        from penstock.model.events import Finished

        task, attempt = self.running.popleft()
        self.handle(Finished(task, attempt, [], seconds=1.0))

    def handle(self, event: object) -> None:
        from penstock.model.commands import Launch

        for command in self.engine.handle(event, 0.0):  # type: ignore[arg-type]
            if type(command) is Launch:
                self.running.append((command.task, command.attempt))


def full(policy: str, nodes: int, ready: int) -> float:
    """Seconds of one step on a full cluster: a task ends, another takes its place, a new one joins the ready."""
    drive = Drive(policy, nodes)
    for _ in range(nodes * CPUS_PER_NODE + ready):
        drive.submit()

    def step() -> None:
        drive.finish()
        drive.submit()

    seconds = _seconds_per_step(step)
    if len(drive.running) != nodes * CPUS_PER_NODE or drive.engine.unfinished != nodes * CPUS_PER_NODE + ready:
        raise AssertionError("the cluster did not stay full")
    return seconds


def idle(policy: str, nodes: int) -> float:
    """Seconds of one step on an idle cluster: a task comes, is placed, and ends."""
    drive = Drive(policy, nodes)

    def step() -> None:
        drive.submit()
        drive.finish()

    return _seconds_per_step(step)


def waiting_gang(policy: str, nodes: int) -> float:
    """Seconds of one step on a cluster that is idle but for one task, for the end of which a gang waits."""
    from penstock.model.data import Value
    from penstock.model.events import Submitted
    from penstock.model.resources import Requirements
    from penstock.model.tasks import TaskCall, TaskSpec

    drive = Drive(policy, nodes)
    drive.submit()
    need = Requirements(processes=nodes * CPUS_PER_NODE)
    drive.handle(Submitted(TaskCall(-1, TaskSpec(2, "gang", need), Value(b""))))

    def step() -> None:
        drive.submit()
        drive.running.rotate()
        drive.finish()

    seconds = _seconds_per_step(step)
    if len(drive.running) != 1 or drive.engine.unfinished != 2:
        raise AssertionError("the gang did not wait")
    return seconds


def _seconds_per_step(step: Callable[[], None]) -> float:
    gc.collect()
    means = []
    for _ in range(CHUNKS + 1):
        began = time.process_time()  # what others on the machine do must not count
        for _ in range(STEPS):
            step()
        means.append((time.process_time() - began) / STEPS)
    return statistics.median(means[1:])


def main() -> None:
    scale = 10 if "--quick" in sys.argv else 1
    cases: dict[str, Callable[[str], tuple[float, float]]] = {
        "ready_tasks": lambda policy: (full(policy, 10, 10**6 // scale), full(policy, 10, 10**3)),
        "full_nodes": lambda policy: (full(policy, 10**4 // scale, 10**3), full(policy, 10, 10**3)),
        "idle_nodes": lambda policy: (idle(policy, 10**4 // scale), idle(policy, 10)),
        "waiting_gang": lambda policy: (waiting_gang(policy, 10**4 // scale), waiting_gang(policy, 10)),
    }
    figures = {_figure(case, policy): (case, policy) for case in cases for policy in POLICIES}
    figure = next(argument for argument in sys.argv[1:] if argument in figures)
    case, policy = figures[figure]
    large, small = cases[case](policy)
    emit({figure: large / small, "large_us": large * 1e6, "small_us": small * 1e6})


if __name__ == "__main__":
    main()
