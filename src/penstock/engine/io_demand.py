"""What an attempt of an I/O task would take of a device now: what it declares, what was learned, or nothing yet.

The I/O scheduler keeps the answers until it is told that they have changed. What happens on a node is told by touching
it; ``watch`` finds the rest.
"""

from __future__ import annotations

from penstock.engine import steering
from penstock.engine.devices import DeviceRecord
from penstock.engine.learning import enrol, is_active, is_reserved, tuner_for
from penstock.engine.ledger import NodeRecord
from penstock.engine.sharing import is_awaited
from penstock.engine.state import IOTaskRecord, State
from penstock.model.events import ConstraintChosen
from penstock.model.resources import StorageLayer
from penstock.scheduling.io import Rate
from penstock.tuning.objective import Choice
from penstock.tuning.tuner import Tuner

__all__ = ["SettledRate", "demand", "watch"]


def demand(state: State, task: IOTaskRecord, node: NodeRecord, device: DeviceRecord | None) -> Rate | None:
    """Bandwidth that an attempt would take on a device; None if it must not start there now.

    Whatever changes the answer must be told to the ready set: by touching the node or its device, or else by
    ``demands_changed``.
    """
    need = task.requirements
    if not node.is_suitable(need) or need.memory > node.free_memory:
        return None
    if need.countable and not node.has_countable(need):
        return None
    if device is None:
        return None if is_reserved(state, node) else 0.0
    if not task.anchor and not node.lets_use(need, device):
        return None
    if state.ledger.budgets and is_awaited(state, task, node, device):
        return None
    if need.auto is None:
        return None if _is_kept_out(state, node, device) else need.bandwidth
    if state.rules.tuner == "adaptive":
        return steering.demand(state, task, node, device)
    tuner = tuner_for(state, task, device, node)
    if not tuner.learning:
        return None if _is_kept_out(state, node, device) else _rate(state, task, tuner, device)
    course = state.courses.get((tuner.function, tuner.layer))
    if course is None:
        if not _may_learn(state, task, node, device):
            return None
        course = enrol(state, task, tuner, node, device)
    if course.node is node and course.device is device and course.open and tuner.learner.room > 0:
        return _whole(min(tuner.learner.constraint, device.layer.bandwidth))
    return None


def _may_learn(state: State, task: IOTaskRecord, node: NodeRecord, device: DeviceRecord) -> bool:
    """Whether a task that must learn would begin on this device: it could start there, and on no faster layer.

    A device that nodes share is asked for no room: there is no other to look for.
    """
    if not node.idle_io or not (device.shared or task.anchor or _has_room(device, task)):
        return False
    if not task.anchor:
        for higher in node.devices[: node.devices.index(device)]:
            if node.lets_use(task.requirements, higher) and _is_better(state, task, higher):
                if higher.shared:
                    higher.shadows[task.function, task.requirements] = task
                return False
    return True


def _is_better(state: State, task: IOTaskRecord, higher: DeviceRecord) -> bool:
    """Whether a faster layer with room for a task could take it, or will once the function has learned there."""
    if not _has_room(higher, task):
        return False
    spec = task.call.spec
    tuner = state.tuners[spec.identity or spec.name, higher.name]
    return tuner.learning or _rate(state, task, tuner, higher)() <= higher.free_bandwidth


def _has_room(device: DeviceRecord, task: IOTaskRecord) -> bool:
    return device.free_capacity > 0 and task.requirements.capacity <= device.free_capacity


def _is_kept_out(state: State, node: NodeRecord, device: DeviceRecord) -> bool:
    return device.course is not None or (len(state.ledger.nodes) > 1 and is_reserved(state, node))


class SettledRate:
    """What instances of a function take of devices alike on a layer where it has learned: what is best at the time."""

    __slots__ = ("_function", "_layer", "_name", "_state", "_tuner")

    def __init__(self, state: State, task: IOTaskRecord, tuner: Tuner, layer: StorageLayer) -> None:
        self._state = state
        self._function = task.function
        self._name = task.call.spec.name
        self._tuner = tuner
        self._layer = layer

    def __call__(self) -> float:
        state, tuner, bandwidth = self._state, self._tuner, self._layer.bandwidth
        before = tuner.choice
        if before is not None and tuner not in state.unsettled:
            return _whole(min(before.constraint, bandwidth))
        state.unsettled.discard(tuner)
        nodes = 1 if state.rules.counted_per == "node" else state.ledger.layers[tuner.layer].nodes
        constraint = tuner.constraint(state.io_ready.count(self._function), nodes)
        choice = tuner.choice
        if choice is not None and (before is None or choice.constraint != before.constraint):
            self._note(choice, first=before is None)
        return _whole(min(constraint, bandwidth))

    def _note(self, choice: Choice, *, first: bool) -> None:
        state, tuner = self._state, self._tuner
        state.notes.append(
            ConstraintChosen(
                self._name,
                tuner.layer,
                choice.constraint,
                choice.concurrency,
                choice.measure.seconds,
                first=first,
                remembered=state.rules.known.get((tuner.function, tuner.layer)) == tuner.learned(),
            )
        )


def _rate(state: State, task: IOTaskRecord, tuner: Tuner, device: DeviceRecord) -> SettledRate:
    rates = device.common.rates
    key = (task.function, device.layer.bandwidth)
    rate = rates.get(key)
    if rate is None:
        rate = rates[key] = SettledRate(state, task, tuner, device.layer)
    return rate


def _whole(rate: float) -> float:
    """Tokens are whole bytes per second, so that they add up exactly."""
    return float(int(rate))


def watch(state: State) -> None:
    """Note what has changed about demands besides what became of nodes; to be called before each decision."""
    for course in state.courses.values():
        if course.reserves != is_active(state, course):
            course.reserves = not course.reserves
            state.ledger.touched[course.node] = None
    for device in state.ledger.shared.values():
        for kind, task in list(device.shadows.items()):
            if not _is_better(state, task, device):
                del device.shadows[kind]
                state.io_ready.demands_changed(learned=True)
