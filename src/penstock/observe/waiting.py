"""What ready tasks waited for, second by second, and how much went on meanwhile.

The run is gone through once, in order of time, with what is free on each node and device. Between two changes every
group of waiting tasks has one reason, so the cost grows with changes and groups, not with tasks that wait. The log says
when tasks waited, never why: the reason is what was missing at the time.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from operator import attrgetter
from typing import Any, Generic, TypeVar

from msgspec import Struct

from penstock.model.waits import BLOCKED, DATA, EXECUTOR, GANG, LEARNING, MEMORY, TURN, UNITS
from penstock.observe.history import Attempt, Group, History, NodeHistory
from penstock.observe.over_time import OverTime, Profile

__all__ = ["DATA", "DECIDING", "STARTING", "UNITS", "WaitingTimes", "waiting_times"]

WIDE = "units together on one node"
RESERVED = "units kept for a wider task"
STARTING = "the worker to begin"
DECIDING = "the master's decision"

K = TypeVar("K", bound=Hashable)


class _Free(Generic[K]):
    """How much is free, by key, and the largest of it; entries that are out of date are dropped when they are met."""

    __slots__ = ("_heap", "now")

    def __init__(self) -> None:
        self.now: dict[K, float] = {}
        self._heap: list[tuple[float, K]] = []

    def add(self, key: K, amount: float) -> None:
        value = self.now[key] = self.now.get(key, 0.0) + amount
        heapq.heappush(self._heap, (-value, key))
        if len(self._heap) > 64 + 4 * len(self.now):
            self._heap = [(-value, key) for key, value in self.now.items()]
            heapq.heapify(self._heap)

    def remove(self, key: K) -> None:
        self.now.pop(key, None)

    def most(self) -> float:
        """The largest amount that is free in one place."""
        heap = self._heap
        while heap and self.now.get(heap[0][1]) != -heap[0][0]:
            heapq.heappop(heap)
        return -heap[0][0] if heap else 0.0


class _Queue:
    """Tasks of a group that wait, and for how long there was each reason to."""

    __slots__ = ("causes", "count", "group")

    def __init__(self, group: Group) -> None:
        self.group = group
        self.count = 0
        self.causes: dict[str, float] = {}


class WaitingTimes(Struct):
    """Where the time of tasks went before they ran."""

    #: seconds of all tasks together, by reason
    seconds: dict[str, float]
    #: the same for the attempts that were asked about, by their position
    of: dict[int, dict[str, float]]
    over_time: OverTime
    #: seconds in which I/O tasks ran; in which two tasks or more did
    transferring: float
    parallel: float


def waiting_times(history: History, asked: Iterable[int] = (), spans: int = 240) -> WaitingTimes:
    """Go through a run. ``asked`` are positions of attempts whose own reasons are wanted."""
    return _Walk(history, set(asked), spans).go()


class _Walk:
    def __init__(self, history: History, asked: set[int], spans: int) -> None:
        self._history = history
        self._asked = {id(history.attempts[index]): index for index in asked}
        self._queues: dict[Group, _Queue] = {}
        self._waiting: dict[_Queue, None] = {}
        self._snapshots: dict[int, dict[str, float]] = {}
        self._cpus: _Free[str] = _Free()
        self._memory: _Free[str] = _Free()
        self._executors: _Free[str] = _Free()
        self._countable: defaultdict[str, _Free[str]] = defaultdict(_Free)
        self._bandwidth: dict[str, _Free[str]] = {}
        self._room: dict[str, _Free[str]] = {}
        #: bytes of finished files, by device
        self._stored: dict[tuple[str, str], int] = {}
        self._shared = {layer.name for node in history.nodes.values() for layer in node.storage if layer.shared}
        #: units of the largest node, and free units of all
        self._largest = 0
        self._units_free = 0
        self._known: set[tuple[str, str]] = set()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._of: dict[int, dict[str, float]] = {}
        self._running = [0, 0]
        self._units = 0
        self._ready = 0
        self._now = 0.0
        self._transferring = self._parallel = 0.0
        self._profile = Profile(history.makespan, spans)

    def go(self) -> WaitingTimes:
        history = self._history
        attempts = history.attempts
        turns = self._turns()
        steps = [(when, 0, index) for index, (when, _, _) in enumerate(turns)]
        for order, moment in ((1, "ended"), (2, "ready"), (3, "taken")):
            steps += [(when, order, index) for index, when in enumerate(map(attrgetter(moment), attempts))]
        steps.sort()
        on_attempt = (self._end, self._end, self._get_ready, self._take)
        for when, order, index in steps:
            if when > self._now:
                self._pass_time(when)
            if order:
                on_attempt[order](attempts[index])
            else:
                turns[index][1](turns[index][2])
        self._add_other_reasons()
        return WaitingTimes(
            dict(sorted(self._seconds.items(), key=lambda entry: -entry[1])),
            self._of,
            self._profile.means(),
            self._transferring,
            self._parallel,
        )

    def _turns(self) -> list[tuple[float, Callable[[Any], None], object]]:
        """What happens besides attempts, and when."""
        history = self._history
        return [
            *((node.joined, self._join, node) for node in history.nodes.values()),
            *((node.lost, self._lose, node) for node in history.nodes.values() if node.lost is not None),
            *((when, self._learn, (name, layer, known)) for when, name, layer, known in history.learned),
            *((when, self._store, (device, stored)) for when, device, stored in history.stored),
        ]

    def _add_other_reasons(self) -> None:
        """What needs no look at what is free: data that were to come, and workers on their way."""
        data = sum(attempt.ready - attempt.submitted for attempt in self._history.attempts if attempt.after >= 0)
        starting = sum(attempt.begun - attempt.taken for attempt in self._history.attempts)
        self._seconds[DATA] += data
        self._seconds[STARTING] += starting
        for reason in [reason for reason, seconds in self._seconds.items() if seconds <= 0]:
            del self._seconds[reason]

    # --- time ---------------------------------------------------------------------------------------------------------

    def _pass_time(self, t: float) -> None:
        span = t - self._now
        for queue in self._waiting:
            reason = self._reason(queue.group)
            queue.causes[reason] = queue.causes.get(reason, 0.0) + span
            self._seconds[reason] += span * queue.count
        computing, transferring = self._running
        self._profile.add(self._now, t, (computing, transferring, self._units, self._ready))
        if transferring:
            self._transferring += span
        if computing + transferring > 1:
            self._parallel += span
        self._now = t

    def _reason(self, group: Group) -> str:
        return self._io_reason(group) if group.io else self._compute_reason(group)

    def _compute_reason(self, group: Group) -> str:
        if group.cpus > self._largest:
            return BLOCKED
        if group.processes > 1:
            return UNITS if group.cpus * group.processes > self._units_free else GANG
        for name, count in group.countable:
            if count > self._countable[name].most():
                return name
        if group.cpus > self._cpus.most():
            return WIDE if 1 < group.cpus <= self._units_free else UNITS
        if group.memory and not any(
            free >= group.cpus and self._memory.now.get(node, 0.0) >= group.memory
            for node, free in self._cpus.now.items()
        ):
            return MEMORY
        if any(_width(queue.group) > group.cpus for queue in self._waiting):
            return RESERVED
        return DECIDING

    def _io_reason(self, group: Group) -> str:
        if self._executors.most() < 1:
            return EXECUTOR
        for name, count in group.countable:
            if count > self._countable[name].most():
                return name
        if group.learned and (group.name, group.layer) not in self._known:
            return LEARNING
        free = self._bandwidth.get(group.layer)
        if free is not None and free.most() < group.bandwidth * (1 - 1e-9):
            return f"bandwidth of {group.layer}"
        room = self._room.get(group.layer)
        if room is not None and group.capacity and room.most() < group.capacity:
            return f"room on {group.layer}"
        if group.learned:
            return f"bandwidth of {group.layer}"
        return TURN if len(self._waiting) > 1 else DECIDING

    # --- what happens -------------------------------------------------------------------------------------------------

    def _join(self, node: NodeHistory) -> None:
        self._cpus.add(node.name, node.cpus)
        self._memory.add(node.name, node.memory)
        self._executors.add(node.name, node.io_executors)
        for name, count in node.countable:
            self._countable[name].add(node.name, count)
        self._largest = max(self._largest, node.cpus)
        self._units_free += node.cpus
        for layer in node.storage:
            place = "" if layer.shared else node.name
            free = self._bandwidth.setdefault(layer.name, _Free())
            if place not in free.now:
                free.add(place, layer.bandwidth)
                if layer.capacity is not None:
                    self._room.setdefault(layer.name, _Free()).add(place, layer.capacity)

    def _lose(self, node: NodeHistory) -> None:
        self._units_free -= int(self._cpus.now.get(node.name, 0))
        for free in (self._cpus, self._memory, self._executors, *self._bandwidth.values(), *self._room.values()):
            free.remove(node.name)
        for counted in self._countable.values():
            counted.remove(node.name)
        left = (other.cpus for other in self._history.nodes.values() if other.name in self._cpus.now)
        self._largest = max(left, default=0)

    def _learn(self, about: tuple[str, str, bool]) -> None:
        name, layer, known = about
        (self._known.add if known else self._known.discard)((name, layer))

    def _store(self, about: tuple[tuple[str, str], int]) -> None:
        (node, layer), stored = about
        room = self._room.get(layer)
        if room is not None and node in room.now:
            room.add(node, self._stored.get((node, layer), 0) - stored)
            self._stored[node, layer] = stored

    def _get_ready(self, attempt: Attempt) -> None:
        queue = self._queues.get(attempt.group)
        if queue is None:
            queue = self._queues[attempt.group] = _Queue(attempt.group)
        queue.count += 1
        self._ready += 1
        self._waiting[queue] = None
        if id(attempt) in self._asked:
            self._snapshots[id(attempt)] = queue.causes.copy()

    def _take(self, attempt: Attempt) -> None:
        queue = self._queues[attempt.group]
        queue.count -= 1
        self._ready -= 1
        if not queue.count:
            del self._waiting[queue]
        index = self._asked.get(id(attempt))
        if index is not None:
            before = self._snapshots.pop(id(attempt))
            since = {reason: seconds - before.get(reason, 0.0) for reason, seconds in queue.causes.items()}
            self._of[index] = {reason: seconds for reason, seconds in since.items() if seconds > 0}
        self._hold(attempt, -1)

    def _end(self, attempt: Attempt) -> None:
        self._hold(attempt, 1)

    def _hold(self, attempt: Attempt, sign: int) -> None:
        """Take what an attempt needs from what is free, or give it back."""
        group = attempt.group
        self._running[group.io] -= sign
        self._units -= sign * group.cpus * group.processes
        for node, processes in attempt.holdings():
            if node in self._cpus.now:
                self._hold_on(node, group, sign * processes)

    def _hold_on(self, node: str, group: Group, times: int) -> None:
        if group.cpus:
            self._cpus.add(node, times * group.cpus)
            self._units_free += times * group.cpus
        if group.memory:
            self._memory.add(node, times * group.memory)
        for name, count in group.countable:
            self._countable[name].add(node, times * count)
        if group.io:
            self._executors.add(node, times)
        if group.layer:
            place = "" if group.layer in self._shared else node
            for free, amount in ((self._bandwidth, group.bandwidth), (self._room, float(group.capacity))):
                device = free.get(group.layer)
                if amount and device is not None and place in device.now:
                    device.add(place, times * amount)


def _width(group: Group) -> int:
    return group.cpus * group.processes
