"""CTE-Power as the experiments with storage layers used it, and the ways in which they ran each program.

12 nodes of 40 cores with three layers each. The parallel file system is accounted per node, as in the source's resource
files; 12 × 900 MB/s is what a file system of that size bears. Devices share their bandwidth fairly among streams. In a
program's tasks the bandwidth asked for and the bytes written are the same number, in MB/s and MB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from penstock.engine.state import StorageRules
from penstock.model.commands import Launch, Move
from penstock.model.events import Event, Finished
from penstock.model.resources import Node, StorageLayer
from penstock.sim.simulation import Simulation
from penstock.sim.workloads import Job, Normal, Workload

__all__ = ["BASELINE", "NODES", "Measured", "Setting", "about", "measure", "write"]

MB = 10**6
NODES = 12
CORES = 40
MEMORY = 512 * 10**9
IO_EXECUTORS = 64
SPREAD = 0.03

NVRAM = StorageLayer("nvram", "/nvram", 6026.0 * MB, 10**12)
SSD = StorageLayer("ssd", "/ssd", 2743.0 * MB, 1_900 * 10**9)
PFS = StorageLayer("pfs", "/pfs", 900.0 * MB)


class Setting(Struct, frozen=True):
    """Which layers are used, and how."""

    scheduler: str
    flushing: bool = False
    layers: tuple[StorageLayer, ...] = (NVRAM, SSD, PFS)

    def __str__(self) -> str:
        if len(self.layers) == 1:
            return "PFS only"
        return self.scheduler + (" + flushing" if self.flushing else "")


BASELINE = Setting("fcfs", layers=(PFS,))


class Measured(Struct, frozen=True):
    """What came of one run."""

    total: float
    #: seconds in which any I/O task ran on a node, mean of the nodes
    io: float


def about(seconds: float) -> Normal:
    """A compute time with the spread that all programs here have."""
    return Normal(seconds, SPREAD * seconds)


def write(workload: Workload, name: str, file: str, size: int, after: Job) -> Job:
    """Add an I/O task that writes `size` MB to the parallel file system, or to a faster layer for now."""
    return workload.io_task(
        name, writes=[(f"/pfs/{file}", size * MB)], constraint=size, capacity=size * MB, after=[after]
    )


def measure(program: Callable[[], Workload], settings: Iterable[Setting]) -> dict[Setting, Measured]:
    """A program in several settings. It is built once: a simulation leaves the workload as it was."""
    measured = {}
    workload = program()
    for setting in settings:
        nodes = [Node(f"n{n:02}", CORES, MEMORY, (), setting.layers, IO_EXECUTORS) for n in range(1, NODES + 1)]
        rules = StorageRules(scheduler=setting.scheduler, data_movement=setting.flushing)
        clock = _IOClock()
        outcome = Simulation(nodes, workload, rules=rules, observer=clock, seed=1).run()
        measured[setting] = Measured(outcome.makespan, sum(clock.seconds.values()) / NODES)
    return measured


class _IOClock:
    """Sums up, for each node, the time in which any I/O task runs there."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._running: dict[str, int] = {}
        self._since: dict[str, float] = {}
        self._node: dict[int, str] = {}

    def launched(self, command: Launch, now: float) -> None:
        if command.call.spec.requirements.io:
            node = self._node[command.task] = command.node
            if not self._running.get(node):
                self._since[node] = now
            self._running[node] = self._running.get(node, 0) + 1

    def event(self, event: Event, now: float) -> None:
        node = self._node.pop(event.task, None) if isinstance(event, Finished) else None
        if node is not None:
            self._running[node] -= 1
            if not self._running[node]:
                self.seconds[node] = self.seconds.get(node, 0.0) + now - self._since[node]

    def reports(self, now: float) -> None: ...

    def notes(self, now: float) -> None: ...

    def fetched(self, task: int, attempt: int, seconds: float, size: int, now: float) -> None: ...

    def moved(self, command: Move, size: int, seconds: float, error: str, now: float) -> None: ...

    def published(self, version: int, path: str, now: float) -> None: ...

    def draining(self, now: float) -> None: ...
