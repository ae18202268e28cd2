"""Who holds which computing units, how much memory, which executors and what else is counted, on which node;
devices.py adds storage.

Tokens belong to attempts: what an attempt takes is exactly what it gives back, however it ends. An attempt queued
behind another on a lane holds nothing; it *inherits* when the one before it ends, so short tasks follow one another
without the tokens ever being free in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from penstock.engine.devices import DeviceRecord, LayerRecord
from penstock.engine.nodes import Hosts, Kept, Lane, NodeRecord, can_ever_fit, most_processes
from penstock.errors import InternalError
from penstock.model.resources import GPUS, Node, Requirements, StorageLayer
from penstock.scheduling.view import NodeWatcher

if TYPE_CHECKING:
    from penstock.engine.state import IOTaskRecord, TaskRecord
    from penstock.model.events import BudgetChanged

__all__ = ["Lane", "Ledger", "NodeRecord", "can_ever_fit"]


class Ledger:
    """Nodes, and who holds what on them. The ready set is told of every change."""

    def __init__(self, watcher: NodeWatcher) -> None:
        self._node_changed: Callable[[NodeRecord], None] = watcher.node_changed
        self._node_gone: Callable[[NodeRecord], None] = watcher.node_gone
        self.nodes: dict[str, NodeRecord] = {}
        self.now = 0.0
        #: nodes that ever joined
        self.joined = 0
        #: a node was lost: what was possible before may not be any more
        self.shrunk = False
        #: a node of each kind that ever joined, and how many of the kind are here; a kind is a node without its name
        self._kinds: dict[Node, Node] = {}
        self._here: Counter[Node] = Counter()
        #: how many of each kind have been here at once
        self._most: Counter[Node] = Counter()
        self._possible: dict[Requirements, bool] = {}
        self._devices: list[DeviceRecord] | None = None
        self._mounts: list[DeviceRecord] | None = None
        #: nodes where something could start
        self.open: dict[NodeRecord, None] = {}
        #: nodes with an idle I/O executor
        self.open_io: dict[NodeRecord, None] = {}
        #: holder → the node it holds tokens of; of a gang, the one where its lane is
        self.holders: dict[int, NodeRecord] = {}
        #: holder → numbers of the units that it holds of each of its countable resources, if it needs any
        self.numbers: dict[int, tuple[tuple[int, ...], ...]] = {}
        #: gang → all nodes it holds tokens of, and for how many processes
        self.gangs: dict[int, Hosts] = {}
        #: devices that several nodes share, by the name of their layer
        self.shared: dict[str, DeviceRecord] = {}
        #: storage layers by name, whatever node has them
        self.layers: dict[str, LayerRecord] = {}
        #: what this program has of layers that it shares with others
        self.budgets: dict[str, BudgetChanged] = {}
        #: attempts of I/O tasks that hold no bandwidth of any device
        self.unlayered = 0
        #: devices that said they are full
        self.full: dict[DeviceRecord, None] = {}
        #: devices that said so, and on which perhaps nothing was deleted since
        self.doubted: dict[DeviceRecord, None] = {}
        #: nodes of which something changed that concerns I/O tasks, or that joined or left, since these were looked at
        self.touched: dict[NodeRecord, None] = {}

    def watch(self, changed: Callable[[NodeRecord], None], gone: Callable[[NodeRecord], None]) -> None:
        """Tell somebody else too of every change, beginning with the nodes there are."""
        first_changed, first_gone = self._node_changed, self._node_gone

        def both_changed(node: NodeRecord) -> None:
            first_changed(node)
            changed(node)

        def both_gone(node: NodeRecord) -> None:
            first_gone(node)
            gone(node)

        for node in self.nodes.values():
            changed(node)
        self._node_changed, self._node_gone = both_changed, both_gone

    def join(self, node: Node) -> NodeRecord:
        """Add a node with all its tokens."""
        if node.name in self.nodes:
            raise InternalError(f"node {node.name!r} joined twice")
        devices = [self._device(layer) for layer in node.storage]
        record = self.nodes[node.name] = NodeRecord(node, self.joined, devices)
        for device in devices:
            device.common.nodes += 1
            device.node = None if device.shared else record
        self.touched[record] = None
        self.joined += 1
        kind = replace(node, name="")
        self._kinds.setdefault(kind, node)
        self._here[kind] += 1
        self._most[kind] = max(self._most[kind], self._here[kind])
        self._possible.clear()
        self._devices = self._mounts = None
        self._note_capacity(record)
        return record

    def _device(self, layer: StorageLayer) -> DeviceRecord:
        common = self.layers.setdefault(layer.name, LayerRecord())
        device = DeviceRecord(layer, common, self.touched)
        if (budget := self.budgets.get(layer.name)) is not None:
            device.set_budget(budget)
        return self.shared.setdefault(layer.name, device) if layer.shared else device

    def devices(self) -> list[DeviceRecord]:
        """Every device once."""
        if self._devices is None:
            self._devices = list(dict.fromkeys(device for node in self.nodes.values() for device in node.devices))
        return self._devices

    def mounts(self) -> list[DeviceRecord]:
        """One device for each layer and mount: all of a kind of node have the same."""
        if self._mounts is None:
            self._mounts = list({(device.name, device.mount): device for device in reversed(self.devices())}.values())
        return self._mounts

    def leave(self, name: str) -> NodeRecord:
        """Remove a node; its holders must have given back before."""
        record = self.nodes.pop(name)
        self.touched[record] = None
        for device in record.devices:
            device.common.nodes -= 1
            if not device.shared:
                self.full.pop(device, None)
                self.doubted.pop(device, None)
        self.open.pop(record, None)
        self.open_io.pop(record, None)
        self.shrunk = True
        self._here[replace(record.node, name="")] -= 1
        self._possible.clear()
        self._devices = self._mounts = None
        self._node_gone(record)
        return record

    def is_possible(self, need: Requirements) -> bool:
        """Whether the nodes, if they were empty, could run an attempt with these requirements."""
        known = self._possible.get(need)
        if known is None:
            known = self._possible[need] = self._could_host(need, ever=False)
        return known

    def was_possible(self, need: Requirements) -> bool:
        """The same of all nodes that ever joined: one like those that left may come again."""
        return self._could_host(need, ever=True)

    def examples(self) -> list[Node]:
        """A node of each kind that ever joined."""
        return list(self._kinds.values())

    def _could_host(self, need: Requirements, *, ever: bool) -> bool:
        if need.processes > 1:
            return self.room_for_gang(need, ever=ever) >= need.processes
        nodes = self._most if ever else self._here
        return any(can_ever_fit(kind, need) for kind, count in nodes.items() if count)

    def room_for_gang(self, need: Requirements, *, ever: bool) -> int:
        """How many processes of a gang the nodes could run if they were empty: those here, or all there ever were."""
        nodes = self._most if ever else self._here
        return sum(count * most_processes(kind, need) for kind, count in nodes.items())

    def take(self, task: TaskRecord, node: NodeRecord) -> Lane:
        """Give an attempt its tokens and an idle lane."""
        need = task.requirements
        if need.processes > 1:
            return self.take_gang(task, [(node, need.processes)])
        if need.cpus > node.free_cpus or need.memory > node.free_memory or task.task in self.holders:
            raise InternalError(f"task {task.task} cannot take {need} of node {node.name}")
        node.free_cpus -= need.cpus
        node.free_memory -= need.memory
        if need.countable:
            self._take_countable(task, node)
        self.holders[task.task] = node
        lane = (node.idle_io if need.io else node.idle).pop()
        if need.io or need.memory or need.countable:
            self.touched[node] = None
        self._note_capacity(node)
        return lane

    def _take_countable(self, task: TaskRecord, node: NodeRecord) -> None:
        need = task.requirements
        if not node.has_countable(need):
            raise InternalError(f"task {task.task} cannot take {need.countable} of node {node.name}")
        free = node.free_countable
        self.numbers[task.task] = tuple(tuple(free[name].pop() for _ in range(count)) for name, count in need.countable)

    def gpus(self, holder: TaskRecord) -> tuple[int, ...]:
        """Which of a node's GPUs an attempt holds."""
        held = zip(holder.requirements.countable, self.numbers[holder.task], strict=True)
        return next((tuple(sorted(numbers)) for (name, _), numbers in held if name == GPUS), ())

    def take_gang(self, task: TaskRecord, hosts: Hosts) -> Lane:
        """Give a gang its tokens on all its nodes, and an idle lane on the first."""
        need = task.requirements
        if sum(processes for _, processes in hosts) != need.processes or task.task in self.holders:
            raise InternalError(f"gang {task.task} cannot take {need} of {len(hosts)} nodes")
        first = hosts[0][0]
        lane = first.idle.pop()
        self.holders[task.task] = first
        self.gangs[task.task] = hosts
        for node, processes in hosts:
            if need.cpus * processes > node.free_cpus or need.memory * processes > node.free_memory:
                raise InternalError(f"gang {task.task} cannot take {need} {processes} times of node {node.name}")
            if node is not first:
                node.guests[task.task] = task
            self._take_of(node, need, processes)
        return lane

    def _take_of(self, node: NodeRecord, need: Requirements, processes: int) -> None:
        """Take what so many processes of a gang need; what fewer than none need is given back."""
        node.free_cpus -= need.cpus * processes
        node.free_memory -= need.memory * processes
        if need.memory:
            self.touched[node] = None
        self._note_capacity(node)

    def hosts(self, gang: TaskRecord) -> tuple[tuple[str, int], ...]:
        """Where a gang runs."""
        return tuple((node.name, processes) for node, processes in self.gangs[gang.task])

    def take_storage(self, task: IOTaskRecord, node: NodeRecord, device: DeviceRecord | None, bandwidth: float) -> None:
        """Give the attempt of an I/O task its bandwidth, and its room."""
        if device is None:
            node.unlayered += 1
            self.unlayered += 1
        else:
            device.set_aside(task)
            device.take(task, bandwidth, self.now)

    def give_back(self, task: TaskRecord, lane: Lane) -> None:
        """Return an attempt's tokens; its lane is idle again, unless its process is ending."""
        node = self.holders.pop(task.task)
        need = task.requirements
        if need.processes > 1:
            self._give_back_gang(task, lane)
            return
        node.free_cpus += need.cpus
        node.free_memory += need.memory
        if need.countable:
            for (name, _), numbers in zip(need.countable, self.numbers.pop(task.task), strict=True):
                node.free_countable[name].extend(reversed(numbers))
        if need.io:
            self._give_back_storage(task, node)  # type: ignore[arg-type]
        if lane.open and not lane.dying:
            node.pool(lane).append(lane)
        if need.io or need.memory or need.countable:
            self.touched[node] = None
        self._note_capacity(node)

    def _give_back_gang(self, task: TaskRecord, lane: Lane) -> None:
        if lane.open and not lane.dying:
            lane.node.idle.append(lane)
        for node, processes in self.gangs.pop(task.task):
            node.guests.pop(task.task, None)
            self._take_of(node, task.requirements, -processes)

    def dismiss_guests(self, node: NodeRecord) -> list[TaskRecord]:
        """Free a node that is lost of the gangs that have their lane elsewhere; these are returned."""
        guests = list(node.guests.values())
        for task in guests:
            hosts = self.gangs[task.task]
            processes = next(processes for host, processes in hosts if host is node)
            self.gangs[task.task] = [(host, count) for host, count in hosts if host is not node]
            self._take_of(node, task.requirements, -processes)
        node.guests.clear()
        return guests

    def keep(self, node: NodeRecord, kept: Kept | None) -> None:
        """From now on keep this of a node, or nothing."""
        node.kept = kept
        self._note_capacity(node)

    def _give_back_storage(self, task: IOTaskRecord, node: NodeRecord) -> None:
        if task.device is None:
            node.unlayered -= 1
            self.unlayered -= 1
        else:
            device = task.device
            device.give_back(task, self.now)
            device.pay()
        if task.room is not None:
            task.room.release(task)

    def inherit(self, ended: TaskRecord, heir: TaskRecord) -> None:
        """Pass the tokens of an ended attempt to the one behind it, which needs exactly the same."""
        self.holders[heir.task] = self.holders.pop(ended.task)
        if ended.requirements.countable:
            self.numbers[heir.task] = self.numbers.pop(ended.task)
        if ended.requirements.io:
            self._inherit_storage(ended, heir)  # type: ignore[arg-type]

    def _inherit_storage(self, ended: IOTaskRecord, heir: IOTaskRecord) -> None:
        device, bandwidth = ended.device, ended.bandwidth
        if device is not None:
            device.give_back(ended, self.now)
            # Those who share a device have shared out what the ended one gave back.
            device.take(heir, min(bandwidth, device.free_bandwidth), self.now)
            device.pay()
        if ended.room is not None:
            ended.room.release(ended)

    def reopen(self, lane: Lane) -> None:
        """A new process serves the lane."""
        if lane.dying and lane.open:
            lane.dying = lane.killed = False
            if not lane.queue:
                lane.node.pool(lane).append(lane)
                self.touched[lane.node] = None
                self._note_capacity(lane.node)

    def seclude(self, lane: Lane) -> None:
        """Use a lane no more until it is reopened: its process is ending."""
        lane.dying = True
        pool = lane.node.pool(lane)
        if lane in pool:
            pool.remove(lane)
            self.touched[lane.node] = None
            self._note_capacity(lane.node)

    def close(self, lane: Lane) -> None:
        """Use a lane no more: its process is gone and none takes its place."""
        self.seclude(lane)
        lane.open = False

    def _note_capacity(self, node: NodeRecord) -> None:
        """What is free on a node changed; it is there, since nothing is held of a node that left."""
        if node.free_cpus > 0 and node.idle:
            self.open[node] = None
        else:
            self.open.pop(node, None)
        if node.idle_io:
            self.open_io[node] = None
        else:
            self.open_io.pop(node, None)
        self._node_changed(node)
