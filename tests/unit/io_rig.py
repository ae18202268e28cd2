"""I/O tasks, devices and nodes as plain values, and a world in which what an I/O scheduler launches takes its time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf

from msgspec import Struct, field

from penstock.model.resources import Requirements
from penstock.scheduling.io import DeviceView, IONodeView, IOReadySet, IOTask, Placement, Rate

NOWHERE: Mapping[str, int] = {}


class Task(Struct, eq=False):
    serial: int
    requirements: Requirements
    function: int = 0
    priority: int = 0
    ready_since: float = 0.0
    anchor: str = ""
    locality: Mapping[str, int] = NOWHERE

    @property
    def task(self) -> int:
        return self.serial


class Device(Struct, eq=False):
    name: str
    free_bandwidth: float
    free_capacity: float = inf
    #: serial → function, start
    attempts: dict[int, tuple[int, float]] = field(default_factory=dict)
    #: function → mean seconds; the same dict in all devices of that name, if there are several
    means: dict[int, float] = field(default_factory=dict)
    shared: bool = False

    def oldest(self) -> Iterator[tuple[int, float]]:
        for function in {function for function, _ in self.attempts.values()}:
            yield function, min(start for other, start in self.attempts.values() if other == function)

    def seconds(self, function: int) -> float | None:
        return self.means.get(function)


class Node(Struct, eq=False):
    name: str
    index: int
    devices: list[Device]
    executors: int = 1_000_000

    @property
    def io_open(self) -> bool:
        return self.executors > 0


def need(bandwidth: float = 0, capacity: int = 0) -> Requirements:
    return Requirements(cpus=0, io=True, bandwidth=bandwidth, capacity=capacity)


UNLAYERED = need()


def as_declared(task: IOTask, node: IONodeView, device: DeviceView | None) -> Rate | None:
    return task.requirements.bandwidth


class World:
    """Nodes on virtual time: attempts take what was proposed, and give it back when they end.

    A test may change nodes, devices and demands as it likes: all is told anew before each proposal. One that tells of
    changes itself is ``exact``.
    """

    def __init__(
        self, nodes: Sequence[Node], scheduler: str = "fcfs", ageing: float | None = None, *, exact: bool = False
    ) -> None:
        self.nodes = list(nodes)
        self.ready = IOReadySet(scheduler, ageing)
        self.now = 0.0
        self.demand: Callable[[IOTask, IONodeView, DeviceView | None], Rate | None] = as_declared
        self.running: dict[int, Placement] = {}
        self.exact = exact
        self.told(*nodes)

    def told(self, *nodes: Node) -> None:
        """The ready set hears that nodes changed."""
        for node in nodes:
            self.ready.node_changed(node)

    def oldest(self) -> Iterator[tuple[float | None, float]]:
        for node in self.nodes:
            for device in node.devices:
                for function, start in device.oldest():
                    yield device.seconds(function), start

    def add(self, *tasks: Task) -> None:
        for task in tasks:
            self.ready.add(task)

    def propose(self) -> Placement | None:
        if not self.exact:
            self.told(*self.nodes)
            self.ready.demands_changed()
        return self.ready.propose(self.now, self)

    def launch(self, placement: Placement) -> None:
        task, node, device, bandwidth = placement
        self.ready.remove(task)
        assert isinstance(node, Node) and node.executors > 0
        node.executors -= 1
        if device is not None:
            assert isinstance(device, Device)
            device.free_bandwidth -= bandwidth
            device.free_capacity -= task.requirements.capacity
            assert device.free_bandwidth >= 0 and (device.free_capacity >= 0 or task.anchor)
            device.attempts[task.serial] = (task.function, self.now)
        self.running[task.serial] = placement
        self.told(node)

    def round(self) -> list[int]:
        """Launch what the scheduler wants to launch now; the serials, in order."""
        launched = []
        while (placement := self.propose()) is not None:
            self.launch(placement)
            launched.append(placement.task.serial)
        return launched

    def finish(self, serial: int) -> None:
        """An attempt ends; what it wrote stays."""
        _, node, device, bandwidth = self.running.pop(serial)
        assert isinstance(node, Node)
        node.executors += 1
        if device is not None:
            assert isinstance(device, Device)
            device.free_bandwidth += bandwidth
            del device.attempts[serial]
        self.told(node)

    def run(self, durations: Mapping[int, float]) -> list[tuple[float, list[int]]]:
        """Run to the end, each attempt for its function's duration: when was what launched."""
        story = []
        ends: dict[int, float] = {}
        while True:
            launched = self.round()
            if launched:
                story.append((self.now, launched))
            for serial in launched:
                ends[serial] = self.now + durations[self.running[serial].task.function]
            if not ends:
                return story
            self.now = min(ends.values())
            for serial in [serial for serial, end in ends.items() if end == self.now]:
                del ends[serial]
                self.finish(serial)
