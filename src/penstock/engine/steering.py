"""How many attempts run on a device at a time, where ``storage_bw="auto"``: its controller told, its limit kept.

    attempt begins, ends ─▶ DeviceRecord.take, give_back ─▶ Controller ─ limit ─▶ shares of the bandwidth
    Ticked ─▶ Sample ─▶ executor ─▶ Sampled ───────────────▶

Attempts whose bandwidth is learned hold equal shares of what others leave, so many as the limit allows: the tokens of a
device keep meaning what they mean for declared constraints. There is one controller per device, whatever functions use
it: what a device delivers depends on all that run there. Like devices of several nodes search together. How that goes
is in ``tuning``.
"""

from __future__ import annotations

import math

from penstock.engine.devices import DeviceRecord
from penstock.engine.ledger import NodeRecord
from penstock.engine.state import IOTaskRecord, Placed, State
from penstock.model.commands import Sample, Warm
from penstock.model.data import FileRef
from penstock.model.events import DeliveryChanged, DeliveryMeasured, Finished, LimitSettled, Sampled
from penstock.model.resources import Auto
from penstock.storage.redirect import home_of
from penstock.tuning.controller import Changed, Controller, Judged, Settled
from penstock.tuning.group import Group
from penstock.tuning.kinds import nearest
from penstock.tuning.member import Member
from penstock.tuning.point import Point
from penstock.tuning.search import Search

__all__ = ["SteeredRate", "attempt_succeeded", "demand", "forget_node", "look", "next_look", "sampled"]


class SteeredRate:
    """What an attempt takes of a device whose number of attempts is steered: its share, within the user's bounds."""

    __slots__ = ("_device", "_most", "least")

    def __init__(self, device: DeviceRecord, least: float, most: float) -> None:
        self._device = device
        #: bytes per second, whole: so shares add up exactly
        self.least = float(int(least))
        self._most = float(int(most))

    def __call__(self) -> float:
        device = self._device
        share = device.next_share()
        if share is None:
            return device.free_bandwidth + 1.0  # no more at a time, however much is free
        return self.bounded(share)

    def bounded(self, share: float) -> float:
        """A share within the user's bounds."""
        return float(int(min(max(share, self.least), self._most)))


def demand(state: State, task: IOTaskRecord, node: NodeRecord, device: DeviceRecord) -> SteeredRate:
    """What an attempt would take on a device."""
    auto = task.requirements.auto
    assert auto is not None
    rate = device.rates.get(auto)
    if rate is None:
        if device.controller is None:
            _begin(state, task, node, device)
        least, most = _bounds(state, auto, device)
        rate = device.rates[auto] = SteeredRate(device, least, most)
        _rebound(state, node, device)
    return rate


def _bounds(state: State, auto: Auto, device: DeviceRecord) -> tuple[float, float]:
    """Bytes per second that an attempt may take."""
    bandwidth, ceiling = device.layer.bandwidth, state.rules.ceiling
    most = bandwidth if ceiling is None else min(bandwidth, ceiling)
    if not auto.bounded:
        return 1.0, most
    most = min(most, auto.most)
    return min(auto.least, most), most


def _rebound(state: State, node: NodeRecord, device: DeviceRecord) -> None:
    """What functions allow bounds what is tried; each keeps to its own bounds besides."""
    bandwidth = device.layer.bandwidth
    executors = _executors(state, node, device)
    together = _together(state, device)
    bounds = [_bounds(state, auto, device) for one in together for auto in one.rates]
    least = min(math.ceil(bandwidth / most * (1 - 1e-9)) for _, most in bounds)
    most = max(math.floor(bandwidth / least * (1 + 1e-9)) for least, _ in bounds)
    assert device.controller is not None
    device.controller.search.bound(min(max(1, least), executors), max(1, min(most, executors)))
    _follow_group(state, _group(device.controller))


def _executors(state: State, node: NodeRecord, device: DeviceRecord) -> int:
    """Attempts that could use a device at a time."""
    if not device.shared:
        return node.node.io_executors
    return sum(other.node.io_executors for other in state.ledger.nodes.values() if device in other.devices)


def _begin(state: State, task: IOTaskRecord, node: NodeRecord, device: DeviceRecord) -> None:
    executors = device.executors = _executors(state, node, device)
    writes = any(output.file is not None for output in task.call.outputs)
    known = nearest(state.rules.deliveries, device.layer, executors, writes=writes, size=task.requirements.capacity)
    device.writes = writes
    others = [] if device.shared else [one for one in state.steered if one.node is not None and _are_alike(one, device)]
    if others:
        device.controller = _joined(state, others)
        device.remembered = known is not None
    else:
        begin_at = None if known is None else known.best
        points = {} if known is None else {one.concurrency: Point(one.rate, one.error) for one in known.curve}
        alone = Search(1, executors, node.node.cpus, begin_at=begin_at, points=points)
        device.controller = Controller(alone, steady=known is None or known.steady)
        device.remembered = known is not None
    device.controller.rest(device.programs > 0)
    if device.shared and len(state.ledger.nodes) > 1:
        device.controller.cannot_read()  # its bytes are counted on several nodes
    state.steered.append(device)
    search = device.controller.search
    # Of a device that nodes share, this one uses no more than it has executors.
    state.out.append(Warm(node.name, min(node.node.io_executors, max(search.start, search.limit))))
    _follow_group(state, _group(device.controller))


# --- like devices search together ---------------------------------------------------------------------------------


def _are_alike(one: DeviceRecord, other: DeviceRecord) -> bool:
    """Whether what one delivers says what the other would."""
    first, second = one.layer, other.layer
    return (
        first.name == second.name
        and not first.shared
        and (first.bandwidth, first.capacity, first.curve) == (second.bandwidth, second.capacity, second.curve)
        and one.executors == other.executors
    )


def _joined(state: State, others: list[DeviceRecord]) -> Controller:
    """A controller that searches together with those of like devices; the first two make a group."""
    group = next((group for one in others if (group := _group(one.controller)) is not None), None)
    first = others[0].controller
    assert first is not None
    if group is None:
        assert isinstance(first.search, Search)
        group = Group.of(first.search)
        if _is_there(state, others[0]):
            first.search = group.join()
            first.follow(state.now)
            _limit_changed(state, others[0])
    return Controller(group.join(), steady=first.steady, mixture=first.mixture)


def _is_there(state: State, device: DeviceRecord) -> bool:
    """Whether its node has not been lost."""
    return device.node is not None and state.ledger.nodes.get(device.node.name) is device.node


def _together(state: State, device: DeviceRecord) -> list[DeviceRecord]:
    """A device, and those that search with it."""
    group = _group(device.controller)
    return [device] if group is None else [one for one in state.steered if _group(one.controller) is group]


def _group(controller: Controller | None) -> Group | None:
    search = None if controller is None else controller.search
    return search.group if isinstance(search, Member) else None


def _follow_group(state: State, group: Group | None) -> None:
    """Let all members do what one has made of their limits."""
    if group is None or not group.moved:
        return
    moved = group.moved
    group.moved = {}
    for device in state.steered:
        controller = device.controller
        if controller is not None and isinstance(controller.search, Member) and controller.search in moved:
            controller.follow(state.now)
            _limit_changed(state, device)


# --- what happens to attempts -------------------------------------------------------------------------------------


def attempt_succeeded(state: State, task: IOTaskRecord, event: Finished) -> None:
    """An attempt's bytes and time are known."""
    device = task.device
    if device is None or device.controller is None or task.requirements.auto is None:
        return
    function = task.call.spec.name
    device.functions.setdefault(function)
    nbytes = _transferred(state, task, device, event)
    device.note_bytes(nbytes)
    before = _standing(device.controller)
    concurrency = device.mean_concurrency(task, state.now)
    # An attempt that moved nothing we know of still counts: the tasks are what is to be delivered then.
    device.controller.ended(function, nbytes or 1.0, event.seconds, concurrency, state.now)
    _after(state, device, before)


def _transferred(state: State, task: IOTaskRecord, device: DeviceRecord, event: Finished) -> int:
    """Bytes of the files that an attempt wrote and read on a device."""
    size = sum(slot.size for slot in event.outputs if type(slot) is FileRef)
    for slot in task.call.slots:
        if type(slot) is FileRef:
            size += _size_on(state, device, slot, None)
        version = state.versions.get(slot) if type(slot) is int else None
        if version is not None and type(version.outcome) is FileRef:
            size += _size_on(state, device, version.outcome, version.placed)
    return size


def _size_on(state: State, device: DeviceRecord, file: FileRef, placed: Placed | None) -> int:
    there = placed.device if placed is not None else home_of(file.path, state.ledger.mounts())
    return file.size if there is not None and there.name == device.name else 0


def sampled(state: State, event: Sampled) -> None:
    """How far the attempts on a device are."""
    node = state.ledger.nodes.get(event.node)
    for device in () if node is None else node.devices:
        if device.name == event.layer and device.controller is not None:
            controller = device.controller
            device.sampling = False
            before = _standing(controller)
            if event.delivered is None:
                controller.cannot_read()
            else:
                controller.read(event.delivered, state.now, starting=event.starting)
            _after(state, device, before)


def forget_node(state: State, node: NodeRecord) -> None:
    """A node is lost: it answers nothing any more, and nobody waits for what it tries."""
    for device in node.devices:
        device.sampling = False
        if device.controller is not None and isinstance(device.controller.search, Member):
            group = device.controller.search.group
            group.remove(device.controller.search)
            _follow_group(state, group)


def _standing(controller: Controller) -> tuple[int, Group | None]:
    """What news may change: its limit, and with whom it searches."""
    return controller.limit, _group(controller)


def _after(state: State, device: DeviceRecord, before: tuple[int, Group | None]) -> None:
    """Act on what a controller made of its news."""
    controller = device.controller
    assert controller is not None
    limit, group = before
    if controller.news:
        _tell(state, device, controller)
    if controller.limit != limit:
        _limit_changed(state, device)
        if device.shared:
            state.io_ready.demands_changed(learned=True)
        if controller.limit > limit and device.node is not None:
            state.out.append(Warm(device.node.name, controller.limit))
    if group is not None:
        _follow_group(state, group)


def _limit_changed(state: State, device: DeviceRecord) -> None:
    device.share_out()
    device.touch()
    state.io_changed = True


def _tell(state: State, device: DeviceRecord, controller: Controller) -> None:
    its_node = "" if device.node is None else device.node.name
    # What is found together is no node's own.
    group = _group(controller)
    node = its_node if group is None else ""
    for news in controller.news:
        match news:
            case Judged(limit, rate, error):
                state.notes.append(DeliveryMeasured(device.name, its_node, limit, rate, error))
            case Changed(limit, before, rate):
                device.remembered = False
                state.notes.append(DeliveryChanged(device.name, node, limit, before, rate))
            case Settled(limit, rate, other):
                constraint = float(int(device.layer.bandwidth / limit))
                functions = tuple(dict.fromkeys(name for one in _together(state, device) for name in one.functions))
                beside = other or (0, 0.0)
                state.notes.append(
                    LimitSettled(device.name, node, functions, limit, rate, constraint, *beside, device.remembered)
                )
    controller.news.clear()


# --- time ---------------------------------------------------------------------------------------------------------


def look(state: State) -> None:
    """Ask for the readings that are due."""
    for device in state.steered:
        due = _due(device)
        if due is not None and due <= state.now:
            device.sampling = True
            state.out.append(Sample(_reader(state, device), device.name))


def next_look(state: State) -> float | None:
    """When a reading is due."""
    return min((due for device in state.steered if (due := _due(device)) is not None), default=None)


def _due(device: DeviceRecord) -> float | None:
    controller = device.controller
    if controller is None or device.sampling or not device.holders:
        return None
    return controller.reading_at


def _reader(state: State, device: DeviceRecord) -> str:
    """The node that can tell of a device: its own, or the only one."""
    return device.node.name if device.node is not None else next(iter(state.ledger.nodes))
