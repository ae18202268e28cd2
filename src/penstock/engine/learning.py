"""Learning phases on real devices: whose turn it is, when an epoch opens and closes, what others must wait for.

A function whose bandwidth is to be learned has a *course* on one device of one node. Its epochs have the device to
themselves: other instances of the function wait, other I/O goes to other nodes. Where there is no other node they
alternate: after each epoch the others that are ready have a turn. What tasks may take is in io_demand.py; what the
numbers mean is in ``tuning``.
"""

from __future__ import annotations

from penstock.engine.devices import DeviceRecord
from penstock.engine.ledger import NodeRecord
from penstock.engine.state import IOTaskRecord, State
from penstock.model.commands import Warm
from penstock.model.events import ConstraintDrifted, EpochEnded, Warmed
from penstock.tuning.tuner import Drifted, EpochClosed, Tuner

__all__ = [
    "Course",
    "arrange",
    "attempt_ended",
    "attempt_started",
    "attempt_succeeded",
    "close_deserted",
    "end_rests",
    "enrol",
    "forget_node",
    "is_active",
    "is_reserved",
    "next_look",
    "note_arrival",
    "opens_now",
    "tuner_for",
    "warmed",
]

#: an epoch that lacks instances waits for more of them this many times the mean time between two arrivals…
_PATIENCE = 3.0
#: …but within these limits, in seconds
_LEAST_PATIENCE, _MOST_PATIENCE = 0.05, 2.0


class Course:
    """The learning phase of a function on one device."""

    __slots__ = (
        "arrivals",
        "device",
        "first",
        "function",
        "last",
        "name",
        "node",
        "open",
        "reserves",
        "rests",
        "tuner",
        "warm",
    )

    def __init__(self, task: IOTaskRecord, tuner: Tuner, node: NodeRecord, device: DeviceRecord, now: float) -> None:
        self.function = task.function
        self.name = task.call.spec.name
        self.tuner = tuner
        self.node = node
        self.device = device
        #: the node's executors are there; those that have yet to start would spread the first epoch over time
        self.warm = False
        #: an epoch is under way
        self.open = False
        #: it is the others' turn
        self.rests = False
        #: other I/O is kept off its node, as the I/O scheduler was last told
        self.reserves = False
        #: instances that became ready since the last epoch, and when the first and the last of them did
        self.arrivals = 1
        self.first = self.last = now

    def patience_ends(self) -> float:
        """When it has waited long enough for another instance."""
        mean = (self.last - self.first) / (self.arrivals - 1) if self.arrivals > 1 else 0.0
        return self.last + min(_MOST_PATIENCE, max(_LEAST_PATIENCE, _PATIENCE * mean))


def tuner_for(state: State, task: IOTaskRecord, device: DeviceRecord, node: NodeRecord) -> Tuner:
    """What learns the constraint of a task's function on a layer."""
    spec = task.call.spec
    key = (spec.identity or spec.name, device.name)
    tuner = state.tuners.get(key)
    if tuner is None:
        auto = task.requirements.auto
        assert auto is not None
        rules = state.rules
        tuner = state.tuners[key] = Tuner(
            *key,
            auto,
            device.layer.bandwidth,
            node.node.io_executors,
            known=rules.known.get(key),
            ceiling=rules.ceiling,
            tie=rules.tie,
        )
    return tuner


# --- whom it keeps waiting -----------------------------------------------------------------------------------------


def is_reserved(state: State, node: NodeRecord) -> bool:
    """Whether a learning phase keeps all other I/O off this node."""
    if not state.courses:
        return False
    if len(state.ledger.nodes) > 1:
        return any(course.node is node and is_active(state, course) for course in state.courses.values())
    return any(device.course is not None for device in node.devices)


def is_active(state: State, course: Course) -> bool:
    """Whether a learning phase has, or is about to have, an epoch; if not, it must not keep others waiting."""
    return course.device.course is course or _can_join(state, course)


def _can_join(state: State, course: Course) -> bool:
    """Whether a ready instance could be part of an epoch: it is not bound to another layer, and has room on this."""
    free = course.device.free_capacity
    for head in state.io_ready.heads(course.function):
        if head.anchor == course.device.name:
            return True
        if not head.anchor and free > 0 and head.requirements.capacity <= free:
            return True
    return False


# --- turns ----------------------------------------------------------------------------------------------------------


def enrol(state: State, task: IOTaskRecord, tuner: Tuner, node: NodeRecord, device: DeviceRecord) -> Course:
    """Begin a learning phase, on a node that no other uses if there is one."""
    taken = {course.node for course in state.courses.values()}
    for other in state.ledger.nodes.values():
        if node in taken and other not in taken and other.is_suitable(task.requirements):
            for found in other.devices:
                if found.name == device.name:
                    node, device = other, found
    course = state.courses[tuner.function, tuner.layer] = Course(task, tuner, node, device, state.now)
    state.out.append(Warm(node.name, min(tuner.learner.size, node.node.io_executors)))
    course.arrivals = max(1, state.io_ready.count(task.function))
    course.reserves = True
    state.io_ready.node_changed(node)  # at once: the scheduler may be about to look at it for others
    return course


def note_arrival(state: State, task: IOTaskRecord) -> None:
    """An instance of a function whose constraint is learned became ready."""
    identity = task.call.spec.identity or task.call.spec.name
    for key, tuner in state.tuners.items():
        if key[0] == identity:
            if tuner.arrived(state.io_ready.count(task.function)) is not None:
                state.io_ready.demands_changed(learned=True)
            state.unsettled.add(tuner)
    for course in state.courses.values():
        if course.function == task.function:
            if not course.arrivals:
                course.first = state.now
            course.arrivals += 1
            course.last = state.now


def forget_node(state: State, node: NodeRecord) -> None:
    """A node is lost: learning phases there begin again elsewhere, with what they know."""
    for key, course in list(state.courses.items()):
        if course.node is node:
            if course.device.course is course:
                _keep_for(state, course.device, None)
            del state.courses[key]
            state.io_ready.demands_changed(learned=True)


def warmed(state: State, event: Warmed) -> None:
    """A node's executors are there."""
    for course in state.courses.values():
        if course.node.name == event.node:
            course.warm = True
    state.io_changed = True


def arrange(state: State) -> None:
    """Open the epochs whose time has come; keep others off devices where one is about to open."""
    for course in list(state.courses.values()):
        device = course.device
        if course.open:
            continue
        if device.course is course and not _can_join(state, course):
            _keep_for(state, device, None)  # those for whom it was kept are gone
        if course.rests or device.course not in (None, course):
            continue
        if _is_due(state, course):
            _keep_for(state, device, course)
            course.open = not device.holders and not device.moves and not course.node.unlayered
            state.ledger.touched[course.node] = None


def opens_now(state: State) -> bool:
    """Open epochs of phases that have only just begun; whether any did."""
    before = sum(course.open for course in state.courses.values())
    arrange(state)
    return sum(course.open for course in state.courses.values()) > before


def _is_due(state: State, course: Course) -> bool:
    """Whether there are instances for a whole epoch, or waiting for more of them would be in vain."""
    ready = state.io_ready.count(course.function)
    if not course.warm or not _can_join(state, course):
        return False
    if ready >= course.tuner.learner.size:
        return True
    if not ready:
        return False
    return _nothing_else_runs(state) or state.now >= course.patience_ends()


def close_deserted(state: State) -> bool:
    """End epochs that lack instances when no more of them come; whether there were any.

    Called when all that can be placed has been: whoever is still ready cannot join, for want of room or because it
    is bound to another layer.
    """
    closed = False
    for course in list(state.courses.values()):
        if not course.open or course.tuner.learner.running:
            continue
        stuck = state.io_ready.count(course.function) > 0 and not _can_join(state, course)
        if stuck or _nothing_else_runs(state) or state.now >= course.patience_ends():
            closed = True
            note = course.tuner.close_early()
            if note is not None:
                _epoch_closed(state, course, note)
            else:
                _leave_device(state, course)
                course.rests = True
    return closed


def _nothing_else_runs(state: State) -> bool:
    return not state.ledger.holders and not len(state.ready)


def end_rests(state: State) -> bool:
    """The others had their turn; whether somebody had waited for that."""
    rested = [course for course in state.courses.values() if course.rests]
    for course in rested:
        course.rests = False
    return bool(rested)


def next_look(state: State) -> float | None:
    """When time alone may open or close an epoch."""
    times = [
        course.patience_ends()
        for course in state.courses.values()
        if not course.tuner.learner.running and course.patience_ends() > state.now
    ]
    return min(times, default=None)


# --- what happens to attempts ---------------------------------------------------------------------------------------


def attempt_started(state: State, task: IOTaskRecord, node: NodeRecord) -> None:
    """An attempt holds bandwidth: it may be part of an epoch."""
    device = task.device
    if device is None or task.requirements.auto is None or state.rules.tuner == "adaptive":
        return
    task.tuner = tuner_for(state, task, device, node)
    task.learning = task.tuner.learning
    if task.learning:
        task.tuner.started()


def attempt_ended(task: IOTaskRecord) -> None:
    """An attempt ended without success, or was taken back: it does not count."""
    if task.tuner is not None:
        task.tuner.failed(learning=task.learning)
        task.tuner = None
        task.learning = False


def attempt_succeeded(state: State, task: IOTaskRecord, seconds: float) -> None:
    """An attempt's time is known: it may close an epoch, or show that times have changed."""
    tuner = task.tuner
    if tuner is None:
        return
    assert task.device is not None
    concurrency = task.device.concurrency(task, state.now)
    note = tuner.finished(seconds, concurrency, learning=task.learning, now=state.now)
    task.tuner = None
    task.learning = False
    course = state.courses.get((tuner.function, tuner.layer))
    if isinstance(note, EpochClosed) and course is not None:
        _epoch_closed(state, course, note)
    elif isinstance(note, Drifted):
        state.notes.append(ConstraintDrifted(task.call.spec.name, tuner.layer, note.ratio))
        state.io_ready.demands_changed(learned=True)


def _epoch_closed(state: State, course: Course, note: EpochClosed) -> None:
    epoch = note.epoch
    state.notes.append(
        EpochEnded(
            course.name,
            course.device.name,
            course.node.name,
            epoch.constraint,
            epoch.seconds,
            epoch.concurrency,
            epoch.tasks,
            epoch.partial,
            note.registered,
        )
    )
    _leave_device(state, course)
    key = (course.tuner.function, course.tuner.layer)
    del state.courses[key]
    if note.learning_over:
        state.io_ready.demands_changed(learned=True)
        return
    # At the end of the line: several functions that learn on one device take turns.
    state.courses[key] = course
    course.arrivals = state.io_ready.count(course.function)
    course.first = course.last = state.now
    course.rests = True


def _leave_device(state: State, course: Course) -> None:
    course.open = False
    _keep_for(state, course.device, None)
    state.ledger.touched[course.node] = None


def _keep_for(state: State, device: DeviceRecord, course: Course | None) -> None:
    """Keep a device for a learning phase, or let others have it again."""
    if device.course is not course:
        device.course = course
        if device.shared:
            state.io_ready.demands_changed()
        else:
            device.touch()
