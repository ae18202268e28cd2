"""Storage devices as the ledger sees them: bandwidth and room, who holds them, how long functions take there.

Bandwidth and the room for what is being written belong to attempts and are given back exactly. Room that finished
files fill stays taken until they are moved or deleted; it is measured, so it can exceed what was declared. What a
device has in common with those of the same name on other nodes is in its ``LayerRecord``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING

from penstock.errors import InternalError
from penstock.model.resources import Requirements, StorageLayer

if TYPE_CHECKING:
    from penstock.engine.io_demand import SettledRate
    from penstock.engine.learning import Course
    from penstock.engine.ledger import NodeRecord
    from penstock.engine.state import IOTaskRecord
    from penstock.engine.steering import SteeredRate
    from penstock.model.events import BudgetChanged
    from penstock.model.resources import Auto
    from penstock.tuning.controller import Controller

__all__ = ["DeviceRecord", "LayerRecord", "Running"]

#: weight of the newest duration in a function's mean
_NEWEST = 0.2


class Running:
    """Attempts that hold bandwidth, by function, the one that started first at the front."""

    __slots__ = ("_by_function", "count")

    def __init__(self) -> None:
        #: a function that ran here once keeps its place: it will run again
        self._by_function: dict[int, OrderedDict[int, IOTaskRecord]] = {}
        self.count = 0

    def add(self, task: IOTaskRecord) -> None:
        alike = self._by_function.get(task.function)
        if alike is None:
            alike = self._by_function[task.function] = OrderedDict()
        alike[task.task] = task
        self.count += 1

    def remove(self, task: IOTaskRecord) -> None:
        del self._by_function[task.function][task.task]
        self.count -= 1

    def oldest(self) -> Iterator[tuple[int, float]]:
        """Each function, and when the first of its attempts started."""
        if self.count:
            for function, alike in self._by_function.items():
                if alike:
                    yield function, next(iter(alike.values())).started


class LayerRecord:
    """What devices of one name have in common, whatever node they belong to."""

    __slots__ = ("nodes", "rates", "running", "seconds")

    def __init__(self) -> None:
        #: nodes that have such a device
        self.nodes = 0
        #: mean seconds of functions
        self.seconds: dict[int, float] = {}
        self.running = Running()
        #: what instances of functions that have learned take, by function and by the bandwidth of the whole device
        self.rates: dict[tuple[int, float], SettledRate] = {}


class DeviceRecord:
    """A device with what is free on it; also the view of it that I/O schedulers get."""

    __slots__ = (
        "_load",
        "_load_at",
        "_room",
        "_sharing",
        "_touched",
        "bytes_moved",
        "claimed",
        "closed",
        "common",
        "controller",
        "course",
        "doubts",
        "executors",
        "files_moved",
        "free_bandwidth",
        "full_until",
        "functions",
        "holders",
        "layer",
        "moves",
        "name",
        "node",
        "others",
        "owed",
        "programs",
        "rates",
        "remembered",
        "reserved",
        "running",
        "sampling",
        "shadows",
        "shared",
        "sharers",
        "stored",
        "taken",
        "writes",
    )

    def __init__(self, layer: StorageLayer, common: LayerRecord, touched: dict[NodeRecord, None]) -> None:
        self.layer = layer
        self.name = layer.name
        self.shared = layer.shared
        self.common = common
        #: whose it is; none if nodes share it
        self.node: NodeRecord | None = None
        #: where that is to be noted when something changes
        self._touched = touched
        self.free_bandwidth = layer.bandwidth
        #: bytes set aside for what attempts are writing
        self.reserved = 0
        #: bytes that earlier runs have left, as far as that is known
        self.taken = layer.taken
        #: bytes of finished files, also of those
        self.stored = layer.taken
        #: it said that it is full, whatever our sums say; believed until then, or until something is deleted
        self.full_until = 0.0
        #: how often it said so since something on it was deleted
        self.doubts = 0
        #: attempts that hold bandwidth here
        self.holders: dict[int, IOTaskRecord] = {}
        #: segments of the store on their way to or from here, and the bandwidth that each holds
        self.moves: dict[int, float] = {}
        #: attempts times seconds that they held bandwidth here, up to some time
        self._load = self._load_at = 0.0
        self.running = Running()
        #: the learning phase that has the device to itself, or is about to
        self.course: Course | None = None
        #: if nodes share it: tasks that would learn on a lower layer if this one could not take them, one per kind
        self.shadows: dict[tuple[int, Requirements], IOTaskRecord] = {}
        # Where other programs use it too (sharing.py):
        #: bandwidth that they have, and what they are to have once attempts give it back
        self.others = self.owed = 0.0
        #: bytes that files of this program may fill
        self._room = inf
        #: how many they are
        self.programs = 0
        #: nothing may begin here before it was claimed, and whether it was
        self.closed = self.claimed = False
        # Where the number of attempts is steered, which it is from the first one whose bandwidth is to be learned:
        self.controller: Controller | None = None
        #: holders that have shares of what others leave, and the bandwidth that all of them together hold
        self.sharers: dict[int, IOTaskRecord] = {}
        self._sharing = 0.0
        #: what attempts take, by what their users wrote
        self.rates: dict[Auto, SteeredRate] = {}
        #: attempts that could use it at a time
        self.executors = 0
        #: functions that ran here, in order
        self.functions: dict[str, None] = {}
        #: files of ended attempts, and their bytes
        self.files_moved = 0
        self.bytes_moved = 0.0
        #: they write, at least some
        self.writes = True
        #: an earlier run had found out how many are best
        self.remembered = False
        #: it was asked how far attempts are, and the answer is on its way
        self.sampling = False

    @property
    def mount(self) -> str:
        return self.layer.mount

    @property
    def temporary(self) -> bool:
        return self.layer.temporary

    @property
    def free_capacity(self) -> float:
        if self.full_until:
            return 0.0
        capacity = self.layer.capacity
        room = self._room if capacity is None else min(capacity, self._room + self.taken)
        return room - self.reserved - self.stored

    def touch(self) -> None:
        """Something changed that may let a task start here, or not."""
        if self.node is not None:
            self._touched[self.node] = None

    def oldest(self) -> Iterator[tuple[int, float]]:
        """Each function with attempts that hold bandwidth here, and when the first of these started."""
        return self.running.oldest()

    def seconds(self, function: int) -> float | None:
        """Mean measured time of a function on this layer, on whatever node."""
        return self.common.seconds.get(function)

    def learn(self, function: int, seconds: float) -> None:
        """An attempt took this long here."""
        means = self.common.seconds
        known = means.get(function)
        means[function] = seconds if known is None else known + _NEWEST * (seconds - known)

    def concurrency(self, task: IOTaskRecord, now: float) -> int:
        """How many attempts, on the average, held bandwidth here since a task took its own."""
        return max(1, round(self.mean_concurrency(task, now)))

    def mean_concurrency(self, task: IOTaskRecord, now: float) -> float:
        """The same, not rounded."""
        since, load = task.loaded
        return (self._advance(now) - load) / (now - since) if now > since else float(len(self.holders))

    def _advance(self, now: float) -> float:
        self._load += len(self.holders) * (now - self._load_at)
        self._load_at = now
        return self._load

    def take(self, task: IOTaskRecord, bandwidth: float, now: float) -> None:
        """Give an attempt bandwidth; its room was set aside before."""
        if bandwidth > self.free_bandwidth or task.task in self.holders:
            raise InternalError(f"task {task.task} cannot take {bandwidth} of {self.name}: {self.free_bandwidth} left")
        self.free_bandwidth -= bandwidth
        task.loaded = now, self._advance(now)
        self.holders[task.task] = task
        self.running.add(task)
        self.common.running.add(task)
        task.device = self
        task.bandwidth = bandwidth
        if self.controller is not None:
            self._joined(task, now)
        self.touch()

    def give_back(self, task: IOTaskRecord, now: float) -> None:
        """Take an attempt's bandwidth back, exactly."""
        self._advance(now)
        del self.holders[task.task]
        self.running.remove(task)
        self.common.running.remove(task)
        self.free_bandwidth += task.bandwidth
        if self.controller is not None:
            self._left(task, now)
        task.device = None
        task.bandwidth = 0.0
        self.touch()

    # --- shares of attempts whose number is steered ----------------------------------------------------------------

    def _joined(self, task: IOTaskRecord, now: float) -> None:
        assert self.controller is not None
        if task.requirements.auto is not None:
            self.sharers[task.task] = task
            self._sharing += task.bandwidth
            self.controller.mixture.began(task.call.spec.name)
        self.controller.runs(len(self.holders), now)
        self.share_out()

    def _left(self, task: IOTaskRecord, now: float) -> None:
        assert self.controller is not None
        if self.sharers.pop(task.task, None) is not None:
            self._sharing -= task.bandwidth
            self.controller.mixture.left(task.call.spec.name)
        self.controller.runs(len(self.holders), now)
        self.share_out()

    def _places(self) -> int:
        """How many sharers the limit allows, beside those who hold what they declared."""
        assert self.controller is not None
        whole = self.layer.bandwidth
        ours = self.controller.limit
        if self.others or self.owed:
            ours = self.controller.limit_beside_others((whole - self.others - self.owed) / whole)
        return max(1, ours - (len(self.holders) - len(self.sharers)))

    def next_share(self) -> float | None:
        """What another sharer would hold; None if there are enough."""
        places = self._places()
        return None if len(self.sharers) >= places else (self.free_bandwidth + self._sharing) // places

    def share_out(self) -> None:
        """Let sharers hold equal parts of what others leave, as many as there may be, or as there are.

        Each keeps within its own bounds: it has its least, and of what is left as much as it may.
        """
        if not self.sharers or self.controller is None:
            return
        available = self.free_bandwidth + self._sharing
        share = available // max(self._places(), len(self.sharers))
        rates = [self.rates[task.requirements.auto] for task in self.sharers.values()]  # type: ignore[index]
        extras = [rate.bounded(share) - rate.least for rate in rates]
        left, wanted = available - sum(rate.least for rate in rates), sum(extras)
        part = 1.0 if wanted <= left else max(0.0, left) / wanted
        held = 0.0
        for task, rate, extra in zip(self.sharers.values(), rates, extras, strict=True):
            task.bandwidth = rate.least + float(int(extra * part))
            held += task.bandwidth
        self._sharing = held
        self.free_bandwidth = available - held

    # --- what other programs have ----------------------------------------------------------------------------------

    def set_budget(self, budget: BudgetChanged) -> None:
        """This is what this program has of it. What attempts hold is given up when they end."""
        self.closed, self.claimed = budget.closed, False
        if self.controller is not None:
            self.controller.rest(budget.others > 0)
        self.programs = budget.others
        ours = max(0.0, min(float(int(budget.bandwidth)), self.layer.bandwidth))
        due = self.layer.bandwidth - ours - self.others
        self.owed = max(0.0, due)
        if due < 0:
            self.others += due
            self.free_bandwidth -= due
        self._room = inf if budget.room is None else budget.room
        self.pay()
        if due < 0:
            self.share_out()
        self.touch()

    def pay(self) -> None:
        """Give others what they are to have, as far as nobody holds it; sharers hold as little as they must then."""
        if not self.owed:
            return
        sharers = [self.rates[task.requirements.auto] for task in self.sharers.values()]  # type: ignore[index]
        spare = self.free_bandwidth + self._sharing - sum(rate.least for rate in sharers)
        paid = min(self.owed, max(0.0, spare))
        if paid:
            self.owed -= paid
            self.others += paid
            self.free_bandwidth -= paid
            self.share_out()
            self.touch()

    def note_bytes(self, size: float) -> None:
        """An attempt that ended transferred this much."""
        self.files_moved += 1
        self.bytes_moved += size

    def lend(self, segment: int, bandwidth: float) -> None:
        """Give the move of a segment bandwidth."""
        if bandwidth > self.free_bandwidth or segment in self.moves:
            raise InternalError(f"segment {segment} cannot take {bandwidth} of {self.name}: {self.free_bandwidth} left")
        self.free_bandwidth -= bandwidth
        self.moves[segment] = bandwidth
        self.touch()

    def settle(self, segment: int) -> None:
        """Take the bandwidth of a segment's move back, exactly."""
        self.free_bandwidth += self.moves.pop(segment)
        self.touch()

    def set_aside(self, task: IOTaskRecord) -> None:
        """Keep room for what an attempt will write."""
        task.room = self
        self.reserved += task.requirements.capacity
        self.touch()

    def release(self, task: IOTaskRecord) -> None:
        """An attempt is over: what it wrote, if anything, is counted by its size."""
        if task.room is self:
            self.reserved -= task.requirements.capacity
            task.room = None
            self.touch()

    def store(self, size: int) -> None:
        """A file fills this much."""
        self.stored += size
        self.touch()

    def remove(self, size: int) -> None:
        """A file is gone."""
        self.stored -= size
        self.full_until = 0.0
        self.doubts = 0
        self.touch()
