"""The published I/O scheduling algorithms with their corrections, over a plain list, task by task: the oracle.

Written for likeness to the algorithms, not for speed. As published, placing a task reserves; what is placed but not
launched gives back. Numbers refer to the algorithms: 1 placement, 2 first come, 3 priority, 4 can-maximize, 5
backfilling.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import NamedTuple

from tests.unit.io_rig import Device, Node, Task

from penstock.model.resources import Requirements
from penstock.scheduling.io import Rate

AskDemand = Callable[[Task, Node, Device | None], Rate | None]


class Spot(NamedTuple):
    task: Task
    node: Node
    device: Device | None
    bandwidth: float


class NaiveIOScheduler:
    def __init__(self, scheduler: str, ageing: float | None) -> None:
        self.scheduler = scheduler
        self.ageing = ageing
        self.tasks: list[Task] = []
        self.waiting: Task | None = None
        self.nodes: list[Node] = []
        self.now = 0.0
        self.ask: AskDemand = lambda task, node, device: None
        self.launched: list[Spot] = []

    def iterate(self, nodes: list[Node], now: float, demand: AskDemand) -> list[Spot]:
        """One iteration: launch all that should be launched; the nodes given are changed."""
        self.nodes, self.now, self.ask, self.launched = nodes, now, demand, []
        {"fcfs": self.fcfs, "priority": self.priority, "backfilling": self.backfilling}[self.scheduler]()
        return self.launched

    # --- the algorithms -----------------------------------------------------------------------------------------------

    def schedule(self, task: Task) -> Spot | None:
        """Algorithm 1."""
        candidates = []
        for node in self.nodes:
            if node.executors <= 0:
                continue
            for layer, device in enumerate(self.layers(task, node)):
                bandwidth = self.demand(task, node, device)
                if self.usable(task, node, device) and bandwidth is not None:
                    free = inf if device is None else device.free_bandwidth
                    if bandwidth <= free:
                        rank = (layer, -task.locality.get(node.name, 0), -free, node.index)
                        candidates.append((rank, Spot(task, node, device, bandwidth if device else 0.0)))
                        break
        if not candidates:
            return None
        spot = min(candidates, key=lambda candidate: candidate[0])[1]
        self.reserve(spot, +1)
        return spot

    def fcfs(self) -> None:
        """Algorithm 2."""
        for task in sorted(self.tasks, key=lambda task: (-task.priority, task.serial)):
            spot = self.schedule(task)
            if spot is not None:
                self.launch(spot)

    def priority(self) -> None:
        """Algorithm 3."""
        blocked = False
        for task in self.by_bandwidth():
            if blocked and self.something_runs():
                return
            spot = self.schedule(task)
            if spot is None:
                blocked = blocked or (self.may_start_somewhere(task) and self.an_executor_is_idle())
            elif self.can_maximize(spot):
                self.reserve(spot, -1)
                return
            else:
                self.launch(spot)

    def can_maximize(self, spot: Spot) -> bool:
        """Algorithm 4."""
        if spot.device is None:
            return False
        assigned = spot.device.means.get(spot.task.function)
        higher = [d.name for d in spot.node.devices].index(spot.device.name)
        for node in self.nodes:
            for device in node.devices[:higher]:
                there = device.means.get(spot.task.function)
                remaining = [left for left in self.remaining(device) if left is not None]
                if assigned is None or there is None or not remaining:
                    continue
                if not self.usable(spot.task, node, device) or self.demand(spot.task, node, device) is None:
                    continue
                if min(remaining) + there < assigned:
                    return True
        return False

    def backfilling(self) -> None:
        """Algorithm 5, begun anew after each launch."""
        if not self.an_executor_is_idle():
            return
        if self.waiting is not None and not self.may_start_somewhere(self.waiting):
            self.waiting = None
        self.waiting_time: float | None = None
        while self.backfill_one() and self.an_executor_is_idle():
            pass

    def backfill_one(self) -> bool:
        waited = self.waiting
        refused: set[tuple[int, Requirements, str]] = set()
        for task in sorted(self.by_bandwidth(), key=lambda task: (-task.priority, task is not waited)):
            kind = (task.function, task.requirements, task.anchor)
            if kind in refused:
                continue  # what is refused to one is refused to those behind it that are alike
            held_back = self.waiting is not None and task.priority <= self.waiting.priority
            spot = self.schedule(task)
            if spot is None:
                if not held_back and self.may_start_somewhere(task):
                    self.waiting, self.waiting_time = task, None
            elif task is self.waiting or not held_back or self.ends_in_time(spot):
                self.launch(spot)
                return True
            else:
                self.reserve(spot, -1)
                if task is not waited:
                    refused.add(kind)
        return False

    def ends_in_time(self, spot: Spot) -> bool:
        if self.waiting_time is None:
            everywhere = [left or 0.0 for node in self.nodes for d in node.devices for left in self.remaining(d)]
            self.waiting_time = min(everywhere, default=inf)
        return self.waiting_time == inf or self.estimate(spot) < self.waiting_time

    # --- what they rest on --------------------------------------------------------------------------------------------

    def by_bandwidth(self) -> list[Task]:
        def rank(task: Task) -> tuple[int, int, float, int]:
            if self.ageing is not None and task.ready_since + self.ageing <= self.now:
                return -task.priority, 0, 0.0, task.serial
            return -task.priority, 1, -self.wanted(task), task.serial

        return sorted(self.tasks, key=rank)

    def demand(self, task: Task, node: Node, device: Device | None) -> float | None:
        rate = self.ask(task, node, device)
        return rate() if callable(rate) else rate

    def layers(self, task: Task, node: Node) -> list[Device] | list[None]:
        return node.devices if task.requirements.layered else [None]

    def usable(self, task: Task, node: Node, device: Device | None) -> bool:
        if device is None:
            return True
        if task.anchor:
            return task.anchor == device.name  # it reads there, and needs no room
        return device.free_capacity > 0 and device.free_capacity >= task.requirements.capacity

    def demands(self, task: Task) -> list[float]:
        asked = [
            self.demand(task, node, device)
            for node in self.nodes
            for device in self.layers(task, node)
            if device is None or task.anchor in ("", device.name)
        ]
        return [bandwidth for bandwidth in asked if bandwidth is not None]

    def may_start_somewhere(self, task: Task) -> bool:
        return bool(self.demands(task))

    def wanted(self, task: Task) -> float:
        if not task.requirements.layered:
            return 0.0
        return task.requirements.bandwidth or max(self.demands(task), default=0.0)

    def an_executor_is_idle(self) -> bool:
        return any(node.executors > 0 for node in self.nodes)

    def something_runs(self) -> bool:
        return any(device.attempts for node in self.nodes for device in node.devices)

    def remaining(self, device: Device) -> list[float | None]:
        times: list[float | None] = []
        for function, start in device.attempts.values():
            mean = device.means.get(function)
            times.append(None if mean is None else max(mean - (self.now - start), 0.0))
        return times

    def estimate(self, spot: Spot) -> float:
        known = spot.device.means.get(spot.task.function) if spot.device else None
        if known is not None:
            return known
        capacity = spot.task.requirements.capacity
        return capacity / spot.bandwidth if capacity and spot.bandwidth else inf

    def reserve(self, spot: Spot, sign: int) -> None:
        spot.node.executors -= sign
        if spot.device is not None:
            spot.device.free_bandwidth -= sign * spot.bandwidth
            spot.device.free_capacity -= sign * spot.task.requirements.capacity

    def launch(self, spot: Spot) -> None:
        if spot.device is not None:
            spot.device.attempts[spot.task.serial] = (spot.task.function, self.now)
        if spot.task is self.waiting:
            self.waiting = None
        self.tasks.remove(spot.task)
        self.launched.append(spot)
