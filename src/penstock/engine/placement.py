"""Ready tasks to lanes: first onto free tokens as the policy says, then behind short tasks so that lanes never idle.

A lane whose head is a short task is sent more of the same requirements before it ends, up to a few milliseconds of
work; they hold no tokens until the head's pass on to them. What is stuck behind a head that turns out long is taken
back (``Recall``) and placed anew.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque

from penstock.engine import implementations, learning, profiles
from penstock.engine.deadlines import is_due
from penstock.engine.ledger import Lane
from penstock.engine.relief import holds_back, relieves
from penstock.engine.reservations import look, note_start, review
from penstock.engine.segment_store import admits
from penstock.engine.sending import send
from penstock.engine.state import NOWHERE, IOTaskRecord, State, TaskRecord
from penstock.model.commands import Kill, Recall
from penstock.model.data import FileRef, Value
from penstock.model.tasks import Failure, FailureKind, TaskState
from penstock.scheduling.view import ReadyTask
from penstock.storage.redirect import home_of

__all__ = [
    "STALL",
    "dispatch",
    "end_attempt",
    "kill",
    "launch",
    "look_at_time",
    "make_ready",
    "next_look",
    "recall",
    "take_back",
]

#: seconds of work that a lane may be sent ahead
AHEAD = 0.010
#: a function whose body takes longer than this is not sent ahead
SHORT = 0.005
#: bytes that the tasks on a lane may make: who uses up what they made has to wait for them
AHEAD_BYTES = 4 << 20
#: what a worker spends on a task besides its body
OVERHEAD = 25e-6
#: attempts on a lane at most; small enough for a socket's buffer
DEEPEST = 128
#: a head that has run this long is not short: what is behind it is taken back
STALL = 0.020

#: hungry lanes looked at in one go for which no task is alike; the others' turn comes with later events
_PATIENCE = 4


def make_ready(state: State, task: TaskRecord) -> None:
    """All data of a task exist: it wants a place."""
    if not task.serial:
        state.serials += 1
        task.serial = state.serials
    store = state.store
    if store is not None and store.records:
        if not admits(state, store, task):
            return
        if task.task in store.needs:
            task.relieves = relieves(state, store, task)
    if task.open_call is not None:
        implementations.reopen(task)
    state.move(task, TaskState.READY)
    if state.follows_data and len(state.ledger.nodes) > 1:
        task.locality = _locality(state, task)
    if isinstance(task, IOTaskRecord):
        _make_io_ready(state, task)
    elif task.requirements.processes > 1:
        state.gangs.add(task)
    else:
        state.ready.add(task)


def _make_io_ready(state: State, task: IOTaskRecord) -> None:
    if task.ready_since < 0:  # one that is tried again keeps its age
        task.ready_since = state.now
    if task.call.spec.profiles:
        profiles.recall(state, task)
    if task.requirements.layered and not any(output.file is not None for output in task.call.outputs):
        task.anchor = _anchor(state, task)
    state.io_ready.add(task)
    if state.ledger.open_io:
        state.io_changed = True
    if task.requirements.auto is not None and state.tuners:
        learning.note_arrival(state, task)


def _anchor(state: State, task: IOTaskRecord) -> str:
    """The layer that a task must use because it reads a file there and writes none; empty if there is no such layer."""
    devices = state.ledger.mounts()
    need = task.requirements
    for number in task.call.reads:
        version = state.versions[number]
        if type(version.outcome) is FileRef:
            device = version.placed.device if version.placed else home_of(version.outcome.path, devices)
            # A layer that could never bear the task is not worth waiting for.
            if device is not None and need.bandwidth <= device.layer.bandwidth:
                return device.name
    return ""


def _locality(state: State, task: TaskRecord) -> dict[str, int]:
    where: dict[str, int] = {}
    for number in task.call.reads:
        version = state.versions[number]
        if version.bytes_at is not None:
            for node, size in version.bytes_at.items():
                where[node] = where.get(node, 0) + size
        elif version.node and type(version.outcome) is Value:
            where[version.node] = where.get(version.node, 0) + version.outcome.nbytes()
    return where or dict(NOWHERE)


def dispatch(state: State) -> None:
    """Place what can be placed."""
    ready, gangs, reservations = state.ready, state.gangs, state.reservations
    store = state.store
    if reservations.current is not None:
        review(state)
    while state.ledger.open and (len(ready) or gangs.count):
        proposal = ready.propose()
        if gangs.count and _start_gang(state, None if proposal is None else proposal[0]):
            continue
        if proposal is None:
            break
        task, node = proposal
        assert isinstance(task, TaskRecord)
        if store is not None and store.passing and holds_back(state, store, task):
            break
        ready.remove(task)
        if reservations.watched:
            note_start(state, task)
        record = state.ledger.nodes[node.name]
        if task.call.spec.implementations:
            implementations.settle(state, task, record)
        launch(state, task, state.ledger.take(task, record))
    if state.hungry:
        send_ahead(state, state.hungry, len(ready))
    if state.now >= reservations.next_look:
        look(state)


def _start_gang(state: State, otherwise: ReadyTask | None) -> bool:
    """Start the first gang that fits, unless a task goes before it that has more priority, or the same and is older."""
    gang = state.gangs.first_fitting()
    if gang is None:
        return False
    if otherwise is not None and (-gang.priority, gang.serial) > (-otherwise.priority, otherwise.serial):
        return False
    hosts = state.gangs.hosts(gang)
    state.gangs.remove(gang)
    if state.reservations.watched:
        note_start(state, gang)
    launch(state, gang, state.ledger.take_gang(gang, hosts))
    return True


def launch(state: State, task: TaskRecord, lane: Lane) -> None:
    """Start an attempt that has its tokens."""
    lane.since = state.now
    state.move(task, TaskState.RUNNING)
    send(state, task, lane)
    if not lane.recalling and _depth(state, task) > 1:
        state.feed(lane)


def send_ahead(state: State, hungry: OrderedDict[Lane, None], waiting: int) -> None:
    """Fill lanes that run short tasks, in turn, each with its fair share of what is ready."""
    in_vain = 0
    while hungry and in_vain < _PATIENCE and waiting:
        lane = next(iter(hungry))
        length = len(lane.queue)
        if _fill(state, lane, -(-waiting // len(hungry))):
            hungry.move_to_end(lane)
            in_vain += len(lane.queue) == length
        else:
            del hungry[lane]
        waiting -= len(lane.queue) - length
        if len(lane.queue) > 1:
            state.backlogged[lane] = None


def _fill(state: State, lane: Lane, share: int) -> bool:
    """Send up to ``share`` more tasks to a lane; whether it could take more still."""
    queue = lane.queue
    head = queue[0]
    spec = head.call.spec
    if lane.node.kept is not None and not lane.node.kept.admits(head.requirements):
        return False  # the units that it holds are to become free
    if isinstance(head, IOTaskRecord) and head.device is not None and head.device.owed:
        return False  # the bandwidth that it holds is to be another program's
    room = _depth(state, head) - len(queue)
    for _ in range(min(share, room)):
        task = _next_alike(state, lane, head)
        if task is None:
            return True
        if state.store is not None and state.store.passing and holds_back(state, state.store, task):
            return False
        # A task may be longer than the head: what is on the lane must not be too much for it either.
        call = task.call
        if (call.spec is not spec or call.items > 0) and len(queue) >= _depth(state, task):
            return False
        if isinstance(task, IOTaskRecord):
            state.io_ready.remove(task)
            device = head.device  # type: ignore[attr-defined]
            if device is not None:
                device.set_aside(task)
        else:
            state.ready.remove(task)
            if state.reservations.watched:
                note_start(state, task)
        state.move(task, TaskState.QUEUED)
        send(state, task, lane)
    return room > share


def _next_alike(state: State, lane: Lane, head: TaskRecord) -> TaskRecord | None:
    """The next task that could do with exactly the tokens that the head of a lane holds."""
    if not isinstance(head, IOTaskRecord):
        return state.ready.next_alike(lane.node, head.requirements)  # type: ignore[return-value]
    device = head.device
    if device is not None:
        if device.course is not None or not 0 <= head.requirements.capacity < device.free_capacity:
            return None
        if device.controller is not None and len(device.holders) > device.controller.limit:
            return None  # there are to be fewer
    return state.io_ready.next_alike(head)  # type: ignore[return-value]


def _depth(state: State, task: TaskRecord) -> int:
    """How many tasks like this one a lane may hold.

    One that has a timeout stays alone: its time begins when it is sent, and killing it must hit nobody else. So does
    an MPI task, which has processes of its own.
    """
    call = task.call
    spec = call.spec
    times = state.times.get(spec.function)
    seconds = state.expected(spec) if times is None else times.recent  # this is asked several times per task
    if seconds is None or spec.timeout is not None or spec.world is not None:
        return 1
    if isinstance(task, IOTaskRecord) and task.learning:
        return 1
    if call.items > 0:
        seconds *= call.items
    if seconds > SHORT or task.requirements.processes > 1:
        return 1
    depth = min(DEEPEST, int(AHEAD / (seconds + OVERHEAD)))
    store = state.store
    if store is None or not (made := store.makes.get(spec.function)):
        return depth
    return min(depth, max(2, AHEAD_BYTES // made))


def end_attempt(state: State, task: TaskRecord) -> None:
    """The head of a lane ended: its tokens pass to the attempt behind it, or become free."""
    lane = task.lane
    assert lane is not None and lane.queue[0] is task
    task.lane = None
    queue = lane.queue
    queue.popleft()
    lane.since = state.now
    if not queue:
        state.ledger.give_back(task, lane)
        # What a compute task gives back may be what an I/O task waits for.
        need = task.requirements
        state.io_changed = state.io_changed or lane.io or need.memory > 0 or bool(need.countable)
        state.starve(lane)
        state.backlogged.pop(lane, None)
        return
    heir = queue[0]
    state.ledger.inherit(task, heir)
    state.move(heir, TaskState.RUNNING)
    if isinstance(heir, IOTaskRecord):
        heir.started = state.now
    if len(queue) == 1:
        state.backlogged.pop(lane, None)
    if not lane.recalling and not lane.dying and len(queue) <= _depth(state, heir) // 2:
        state.feed(lane)


def take_back(state: State, lane: Lane, tasks: tuple[int, ...]) -> list[TaskRecord]:
    """Attempts that a lane had not started; they are nobody's now."""
    numbers = set(tasks)
    taken = [task for task in lane.queue if task.task in numbers]
    for task in taken:
        task.lane = None
        task.attempt -= 1
        task.in_place = False
        if isinstance(task, IOTaskRecord):
            learning.attempt_ended(task)
            if task.room is not None and task.device is None:
                task.room.release(task)  # it was queued: whoever is the head gives back all it holds
    if taken:
        head = lane.queue[0]
        lane.queue = deque(task for task in lane.queue if task.lane is lane)
        if head.lane is None:
            _pass_on(state, lane, head)
    if len(lane.queue) < 2:
        state.backlogged.pop(lane, None)
    state.starve(lane)
    lane.recalling = False
    state.io_changed = state.io_changed or lane.io
    return taken


def _pass_on(state: State, lane: Lane, head: TaskRecord) -> None:
    """The head itself was taken back before it started."""
    if lane.queue:
        heir = lane.queue[0]
        lane.since = state.now
        state.ledger.inherit(head, heir)
        state.move(heir, TaskState.RUNNING)
        if isinstance(heir, IOTaskRecord):
            heir.started = state.now
    else:
        state.ledger.give_back(head, lane)


def look_at_time(state: State) -> None:
    """Kill what is past its deadline; take back what is stuck behind a head that turned out long."""
    deadlines = state.deadlines
    while deadlines and (deadlines[0][0] <= state.now or not is_due(state, deadlines[0])):
        deadline = heapq.heappop(deadlines)
        if is_due(state, deadline):
            task = state.tasks[deadline[1]]
            assert task.lane is not None
            message = f"it ran longer than its timeout of {task.call.spec.timeout:g} s"
            task.doom = Failure(FailureKind.TIMEOUT, message)
            kill(state, task.lane)
    for lane in state.backlogged:
        if lane.since + STALL <= state.now:
            recall(state, lane)


def next_look(state: State) -> float | None:
    """When ``look_at_time`` should be called next."""
    times = [lane.since + STALL for lane in state.backlogged if not lane.recalling and not lane.dying]
    if state.deadlines:
        times.append(state.deadlines[0][0])
    if state.store is not None and state.store.patient_until > state.now:
        times.append(state.store.patient_until)
    return min(times, default=None)


def recall(state: State, lane: Lane) -> None:
    """Ask for what a lane has not started, unless an answer is on its way already."""
    if not lane.recalling and not lane.dying:
        lane.recalling = True
        state.starve(lane)
        state.out.append(Recall(lane.node.name, lane.index))


def kill(state: State, lane: Lane) -> None:
    """End the process behind a lane, once; a body on account of which that happens is asked first, if it can be."""
    if not lane.dying:
        lane.dying = lane.killed = True
        state.starve(lane)
        asked = (task.task for task in lane.queue if task.doom is not None and task.call.spec.yields)
        state.out.append(Kill(lane.node.name, lane.index, next(asked, 0)))
