"""One moment of the storage, and what I/O schedulers ask about it: where a task fits, and how long things will take.

Nothing is reserved here: a task that a scheduler places but would rather not launch has taken nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

from penstock.scheduling.io_view import Demand, DeviceView, IONodeView, IOTask, Placement

__all__ = ["Moment"]


class Moment:
    """The nodes as they are now, and what tasks would have to take of them."""

    __slots__ = ("_demand", "_nodes", "now")

    def __init__(self, nodes: Sequence[IONodeView], now: float, demand: Demand) -> None:
        self._nodes = nodes
        self._demand = demand
        self.now = now

    def place(self, task: IOTask) -> Placement | None:
        """Where the task should go, if it fits anywhere: each node with an idle executor offers its highest layer
        that fits, and the highest layer of all is taken.

        On equal layers: more bytes of the task's inputs on the node; more free bandwidth on the device; the node that
        joined first.
        """
        need = task.requirements
        if not need.layered:
            return self._place_off_layers(task)
        best: Placement | None = None
        best_rank = (inf, 0.0, 0.0, 0)
        capacity, anchor, locality, demand = need.capacity, task.anchor, task.locality, self._demand
        for node in self._nodes:
            if not node.io_open:
                continue
            for layer, device in enumerate(node.devices):
                if (anchor and device.name != anchor) or not _has_room(device, capacity, anchor):
                    continue
                bandwidth = demand(task, node, device)
                free = device.free_bandwidth
                if bandwidth is None or bandwidth > free:
                    continue
                rank = (layer, -locality.get(node.name, 0), -free, node.index)
                if rank < best_rank:
                    best, best_rank = Placement(task, node, device, bandwidth), rank
                break
        return best

    def _place_off_layers(self, task: IOTask) -> Placement | None:
        nodes = (node for node in self._nodes if node.io_open and self._demand(task, node, None) is not None)
        locality = task.locality
        node = min(nodes, key=lambda node: (-locality.get(node.name, 0), node.index), default=None)
        return None if node is None else Placement(task, node, None, 0.0)

    def waits_for_storage(self, task: IOTask) -> bool:
        """Whether a task that is not placed waits for something that others hold.

        If not, it may not start anywhere whatever is free (it waits for a learning phase), and nobody helps it by
        waiting with it.
        """
        return next(self._demands(task), None) is not None

    def bandwidth(self, task: IOTask) -> float:
        """The bandwidth by which the task takes its place in the order."""
        need = task.requirements
        if need.bandwidth > 0 or not need.layered:
            return need.bandwidth
        return max(self._demands(task), default=0.0)

    def _demands(self, task: IOTask) -> Iterator[float]:
        """What the task would take of each device it may use, or of each node if it says nothing of storage."""
        layered, anchor = task.requirements.layered, task.anchor
        for node in self._nodes:
            for device in node.devices if layered else (None,):
                if device is not None and anchor and device.name != anchor:
                    continue
                bandwidth = self._demand(task, node, device)
                if bandwidth is not None:
                    yield bandwidth

    def can_maximize(self, placement: Placement) -> bool:
        """Whether the task would end sooner if it waited for a higher layer than the one it is given.

        Waiting helps only on a layer where something runs, where the task may start and has room, and of which it is
        known how long the task takes there. Without measured times the answer is no.
        """
        task, given = placement.task, placement.device
        here = None if given is None else given.seconds(task.function)
        if here is None:
            return False
        layer = next(i for i, device in enumerate(placement.node.devices) if device is given)
        return any(
            self._is_usable(task, node, device) and self._seconds_if_waiting(task, device) < here
            for node in self._nodes
            for device in node.devices[:layer]
        )

    def _is_usable(self, task: IOTask, node: IONodeView, device: DeviceView) -> bool:
        """Whether the task could start there if there were bandwidth."""
        return (
            task.anchor in ("", device.name)
            and _has_room(device, task.requirements.capacity, task.anchor)
            and self._demand(task, node, device) is not None
        )

    def _seconds_if_waiting(self, task: IOTask, device: DeviceView) -> float:
        """Until the task would end if it waited for the next attempt there to end, as far as that is known."""
        there = device.seconds(task.function)
        if there is None:
            return inf
        known = (left for left in self._remaining(device) if left is not None)
        return min(known, default=inf) + there

    def anything_runs(self) -> bool:
        """Whether any attempt holds bandwidth, so that some will be given back."""
        return any(True for node in self._nodes for device in node.devices for _ in device.running())

    def seconds_to_next_end(self) -> float:
        """Until the first attempt on any device ends: 0 if that may be at once, infinite if nothing runs."""
        soonest = inf
        seen: set[int] = set()
        for node in self._nodes:
            for device in node.devices:
                if id(device) in seen:  # shared by nodes, and perhaps by many
                    continue
                seen.add(id(device))
                for left in self._remaining(device):
                    soonest = min(soonest, left or 0.0)
        return soonest

    def _remaining(self, device: DeviceView) -> Iterator[float | None]:
        """Seconds until each attempt on a device ends, as its function's mean says; ``None`` if that is unknown."""
        for function, start in device.running():
            mean = device.seconds(function)
            yield None if mean is None else max(0.0, mean - (self.now - start))

    def duration(self, placement: Placement) -> float:
        """Seconds that a placed task will take: measured, else its bytes at its bandwidth, else infinite."""
        task, _, device, bandwidth = placement
        measured = None if device is None else device.seconds(task.function)
        if measured is not None:
            return measured
        capacity = task.requirements.capacity
        return capacity / bandwidth if capacity > 0 and bandwidth > 0 else inf


def _has_room(device: DeviceView, capacity: int, anchor: str) -> bool:
    """A full device takes nothing, not even a task that says it needs no room; but who only reads there needs none."""
    free = device.free_capacity
    return bool(anchor) or (free > 0 and capacity <= free)
