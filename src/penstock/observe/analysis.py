"""What a run came to, from its event log: how long, how busy, what it waited for, what determined its end.

    records ──▶ history ──▶ critical path, waiting times ──▶ Analysis ──▶ terminal, JSON, plots

``analyse`` takes the records of a real run or of a simulated one; it cannot tell them apart.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable

from msgspec import Struct

from penstock.observe.critical_path import Segment, critical_path
from penstock.observe.history import Attempt, DeviceHistory, History, NodeHistory
from penstock.observe.history_reader import read_history
from penstock.observe.over_time import OverTime
from penstock.observe.records import Record
from penstock.observe.task_failures import TaskFailure
from penstock.observe.waiting import waiting_times

__all__ = [
    "Analysis",
    "CriticalPath",
    "DeviceUse",
    "FunctionUse",
    "Gaps",
    "NodeUse",
    "analyse",
    "analyse_history",
    "ideal_speedup",
]


class NodeUse(Struct, frozen=True):
    """How busy a node was."""

    name: str
    cpus: int
    #: share of its computing units that tasks held
    utilisation: float
    tasks: int
    #: computing units times seconds
    busy: float


class DeviceUse(Struct, frozen=True):
    """How busy a storage device was."""

    layer: str
    #: empty: all nodes share it
    node: str
    #: bytes per second that it can bear
    limit: float
    #: share of its bandwidth that tasks held
    held: float
    #: share of the time in which tasks used it
    busy: float
    #: bytes that tasks wrote, and that were moved to it
    written: int
    moved: int
    #: bytes per second while it was used
    rate: float


class FunctionUse(Struct, frozen=True):
    """What the calls of one function came to."""

    name: str
    #: calls that ran, and how often they did: those that failed may have been tried again
    tasks: int
    attempts: int
    #: seconds of all attempts, and of one that delivered in the mean
    seconds: float
    mean: float
    io: bool
    #: seconds on the critical path
    critical: float


class CriticalPath(Struct, frozen=True):
    """The chain that determined the end; the lengths of its parts add up to the makespan."""

    #: seconds by what went on: running, fetching data, waiting, program
    seconds: dict[str, float]
    #: running, by function
    functions: dict[str, float]
    #: waiting, by what for
    reasons: dict[str, float]
    segments: list[Segment]


class Gaps(Struct, frozen=True):
    """Seconds between the end of a task and the beginning of the next one on the same lane."""

    count: int
    mean: float
    median: float
    most: float


class Analysis(Struct, frozen=True):
    """A run, looked at. Times in seconds."""

    #: when the last task was over
    makespan: float
    #: when the run was: files were home
    end: float
    #: tasks by how they ended; attempts that were not the last of theirs
    done: int
    failed: int
    cancelled: int
    retried: int
    #: computing units of all nodes, and the share of them that tasks held
    cpus: int
    utilisation: float
    nodes: list[NodeUse]
    devices: list[DeviceUse]
    functions: list[FunctionUse]
    critical_path: CriticalPath
    #: seconds of all tasks together before they ran, by what they waited for
    waiting: dict[str, float]
    over_time: OverTime
    gaps: Gaps
    tasks_per_core: float
    #: seconds in which I/O tasks ran, and in which more than one task did
    io_seconds: float
    parallel_seconds: float
    #: the first of the tasks that failed
    failures: list[TaskFailure] = []
    #: records that the log lacks
    dropped: int = 0

    @property
    def complete(self) -> bool:
        """Whether nothing failed, was cancelled or is missing."""
        return not (self.failed or self.cancelled or self.dropped)

    def ideal_speedup(self, times: float) -> float:
        """How much sooner it would be over with so many times the cores, if only what ran in parallel profits."""
        return ideal_speedup(self.makespan, self.parallel_seconds, times)


def ideal_speedup(total: float, parallel: float, times: float) -> float:
    """The bound that the part without parallelism sets, of ``total`` seconds with ``parallel`` of them in parallel."""
    left = total - parallel + parallel / times
    return total / left if left > 0 else 1.0


def analyse(run: Iterable[Record]) -> Analysis:
    """Look at a run, by the records of its log."""
    return analyse_history(read_history(run))


def analyse_history(history: History) -> Analysis:
    """The same of a run whose records were read already."""
    chain = critical_path(history)
    waits = waiting_times(history, chain.waits())
    path = chain.with_reasons(waits.of)
    nodes = _nodes(history)
    cpus = sum(node.cpus for node in nodes)
    offered = sum(_offered(node, history.makespan) for node in history.nodes.values())
    busy = sum(node.busy for node in nodes)
    computed = sum(attempt.count for attempt in history.attempts if not attempt.group.io)
    return Analysis(
        makespan=history.makespan,
        end=max(history.end, history.makespan),
        done=sum(attempt.count for attempt in history.attempts if attempt.ok),
        failed=history.failed,
        cancelled=history.cancelled,
        retried=history.retried,
        cpus=cpus,
        utilisation=busy / offered if offered else 0.0,
        nodes=nodes,
        devices=[_device_use(device, history.makespan) for device in history.devices.values()],
        functions=_functions(history, path),
        critical_path=_sum_up(path),
        waiting=waits.seconds,
        over_time=waits.over_time,
        gaps=_gaps(history.attempts),
        tasks_per_core=computed / cpus if cpus else 0.0,
        io_seconds=waits.transferring,
        parallel_seconds=waits.parallel,
        failures=history.failures,
        dropped=history.dropped,
    )


def _nodes(history: History) -> list[NodeUse]:
    busy: defaultdict[str, float] = defaultdict(float)
    tasks: Counter[str] = Counter()
    for attempt in history.attempts:
        tasks[attempt.node] += attempt.count
        if attempt.group.cpus:
            for host, processes in attempt.holdings():
                busy[host] += attempt.group.cpus * processes * (attempt.ended - attempt.begun)
    uses = []
    for name, node in history.nodes.items():
        offered = _offered(node, history.makespan)
        uses.append(NodeUse(name, node.cpus, busy[name] / offered if offered else 0.0, tasks[name], busy[name]))
    return uses


def _offered(node: NodeHistory, until: float) -> float:
    """Computing units times seconds that a node was there for."""
    return node.cpus * max(0.0, (until if node.lost is None else min(until, node.lost)) - node.joined)


def _device_use(device: DeviceHistory, makespan: float) -> DeviceUse:
    there = makespan if makespan > 0 else 1.0
    rate = device.written / device.busy if device.busy else 0.0
    held = device.held / (device.limit * there)
    return DeviceUse(
        device.layer,
        device.node,
        device.limit,
        min(1.0, held),
        min(1.0, device.busy / there),
        device.written,
        device.moved,
        rate,
    )


def _functions(history: History, path: list[Segment]) -> list[FunctionUse]:
    critical: defaultdict[str, float] = defaultdict(float)
    for segment in path:
        if segment.kind == "running":
            critical[segment.name] += segment.seconds
    sums: dict[str, _Sum] = {}
    for attempt in history.attempts:
        name = attempt.group.name
        one = sums.get(name)
        if one is None:
            one = sums[name] = _Sum(io=attempt.group.io)
        one.add(attempt, again=attempt.after >= 0 and history.attempts[attempt.after].task == attempt.task)
    return [one.use(name, critical[name]) for name, one in sums.items()]


class _Sum:
    """What the attempts of a function add up to."""

    def __init__(self, *, io: bool) -> None:
        self._io = io
        self._tasks = self._attempts = self._ok = 0
        self._seconds = self._ok_seconds = 0.0

    def add(self, attempt: Attempt, *, again: bool) -> None:
        seconds = attempt.ended - attempt.begun
        self._attempts += attempt.count
        self._tasks += 0 if again else attempt.count
        self._seconds += seconds
        if attempt.ok:
            self._ok += attempt.count
            self._ok_seconds += seconds

    def use(self, name: str, critical: float) -> FunctionUse:
        mean = self._ok_seconds / self._ok if self._ok else self._seconds / self._attempts
        return FunctionUse(name, self._tasks, self._attempts, self._seconds, mean, self._io, critical)


def _sum_up(path: list[Segment]) -> CriticalPath:
    kinds: defaultdict[str, float] = defaultdict(float)
    functions: defaultdict[str, float] = defaultdict(float)
    reasons: defaultdict[str, float] = defaultdict(float)
    for segment in path:
        kinds[segment.kind] += segment.seconds
        if segment.kind == "running":
            functions[segment.name] += segment.seconds
        for reason, seconds in segment.reasons.items():
            reasons[reason] += seconds
    return CriticalPath(_largest_first(kinds), _largest_first(functions), _largest_first(reasons), path)


def _largest_first(seconds: dict[str, float]) -> dict[str, float]:
    return dict(sorted(seconds.items(), key=lambda entry: -entry[1]))


def _gaps(attempts: list[Attempt]) -> Gaps:
    computed = (index for index, attempt in enumerate(attempts) if not attempt.group.io)
    order = sorted(computed, key=lambda index: (attempts[index].node, attempts[index].lane, index))
    gaps = sorted(
        max(0.0, attempts[after].begun - attempts[before].ended)
        for before, after in itertools.pairwise(order)
        if attempts[before].lane == attempts[after].lane and attempts[before].node == attempts[after].node
    )
    if not gaps:
        return Gaps(0, 0.0, 0.0, 0.0)
    return Gaps(len(gaps), sum(gaps) / len(gaps), gaps[len(gaps) // 2], gaps[-1])
