"""Ready tasks to lanes: first onto free tokens as the policy says, then behind short tasks so that lanes never idle.

A lane whose head is a short task is sent more of the same requirements before it ends, up to a few milliseconds of
work; they hold no tokens until the head's pass on to them. What is stuck behind a head that turns out long is taken
back (``Recall``) and placed anew.
"""

from __future__ import annotations

import heapq
from collections import deque

from penstock.engine.ledger import Lane
from penstock.engine.lifetimes import segments_of
from penstock.engine.state import NOWHERE, State, TaskRecord
from penstock.model.commands import Kill, Launch, Recall
from penstock.model.data import Piece, Slot, TaskId, Value
from penstock.model.tasks import Failure, FailureKind, OnFailure, TaskState

__all__ = [
    "STALL",
    "dispatch",
    "end_attempt",
    "kill",
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
#: what a worker spends on a task besides its body
OVERHEAD = 25e-6
#: attempts on a lane at most; small enough for a socket's buffer
DEEPEST = 128
#: a head that has run this long is not short: what is behind it is taken back
STALL = 0.020

#: hungry lanes looked at in one go for which no task is alike; the others' turn comes with later events
_PATIENCE = 4

#: answers to a failure for which the input must still exist
_KEEPS_INPUT = frozenset({OnFailure.RETRY, OnFailure.IGNORE})


def make_ready(state: State, task: TaskRecord) -> None:
    """All data of a task exist: it wants a place."""
    if not task.serial:
        state.serials += 1
        task.serial = state.serials
    state.move(task, TaskState.READY)
    if state.follows_data and len(state.ledger.nodes) > 1:
        task.locality = _locality(state, task)
    state.ready.add(task)


def _locality(state: State, task: TaskRecord) -> dict[str, int]:
    where: dict[str, int] = {}
    for number in task.call.reads:
        version = state.versions[number]
        if version.node and type(version.outcome) is Value:
            where[version.node] = where.get(version.node, 0) + version.outcome.nbytes()
    return where or dict(NOWHERE)


def dispatch(state: State) -> None:
    """Place what can be placed."""
    ready = state.ready
    open_nodes = state.ledger.open
    while open_nodes:
        proposal = ready.propose(open_nodes)
        if proposal is None:
            break
        task, node = proposal
        assert isinstance(task, TaskRecord)
        ready.remove(task)
        lane = state.ledger.take(task, state.ledger.nodes[node.name])
        lane.since = state.now
        state.move(task, TaskState.RUNNING)
        _launch(state, task, lane)
        if not lane.recalling and _depth(state, task) > 1:
            state.hungry[lane] = None
    if state.hungry:
        _send_ahead(state)


def _send_ahead(state: State) -> None:
    """Fill lanes that run short tasks, in turn, each with its fair share of what is ready."""
    hungry = state.hungry
    in_vain = 0
    while hungry and in_vain < _PATIENCE and (waiting := len(state.ready)):
        lane = next(iter(hungry))
        length = len(lane.queue)
        if _fill(state, lane, -(-waiting // len(hungry))):
            hungry.move_to_end(lane)
            in_vain += len(lane.queue) == length
        else:
            del hungry[lane]
        if len(lane.queue) > 1:
            state.backlogged[lane] = None


def _fill(state: State, lane: Lane, share: int) -> bool:
    """Send up to ``share`` more tasks to a lane; whether it could take more still."""
    queue = lane.queue
    head = queue[0]
    spec = head.call.spec
    room = _depth(state, head) - len(queue)
    ready = state.ready
    for _ in range(min(share, room)):
        task = ready.next_alike(lane.node, head.requirements)
        if task is None:
            return True
        assert isinstance(task, TaskRecord)
        # A task may be longer than the head: what is on the lane must not be too much for it either.
        call = task.call
        if (call.spec is not spec or call.items > 0) and len(queue) >= _depth(state, task):
            return False
        ready.remove(task)
        state.move(task, TaskState.QUEUED)
        _launch(state, task, lane)
    return room > share


def _depth(state: State, task: TaskRecord) -> int:
    """How many tasks like this one a lane may hold.

    One that has a timeout stays alone: its time begins when it is sent, and killing it must hit nobody else.
    """
    call = task.call
    seconds = state.durations.get(call.spec.function)
    if seconds is None or call.spec.timeout is not None:
        return 1
    if call.items > 0:
        seconds *= call.items
    if seconds > SHORT:
        return 1
    return min(DEEPEST, int(AHEAD / (seconds + OVERHEAD)))


def _launch(state: State, task: TaskRecord, lane: Lane) -> None:
    task.attempt += 1
    task.lane = lane
    lane.queue.append(task)
    call = task.call
    timeout = call.spec.timeout
    if timeout is not None:
        _note_deadline(state, task, timeout)
    if not call.slots and not call.outputs:
        state.out.append(Launch(task.task, task.attempt, lane.node.name, lane.index, call))
        return
    slots: list[Slot] = []
    for slot in call.slots:
        if type(slot) is int:
            outcome = state.versions[slot].outcome
            assert outcome is not None and not isinstance(outcome, Failure)
            slots.append(outcome)
        else:
            slots.append(slot)  # type: ignore[arg-type]
    in_place = tuple(i for i in call.writable if _sole_user(state, task, i, slots[i]))
    args_in_place = call.writable_buffers > 0 and _sole_owner(state, task)
    task.in_place = bool(in_place) or args_in_place
    publish = all(_may_publish(state, task, output.file) for output in call.outputs if output.file is not None)
    where = (lane.node.name, lane.index)
    state.out.append(Launch(task.task, task.attempt, *where, call, tuple(slots), in_place, publish, args_in_place))


def _sole_owner(state: State, task: TaskRecord) -> bool:
    """Whether the objects that came with the call, and that the task changes, are in segments made for it alone."""
    call = task.call
    if call.spec.retries or call.spec.on_failure in _KEEPS_INPUT:
        return False
    pieces = [buffer for buffer in call.args.buffers[: call.writable_buffers] if type(buffer) is Piece]
    return bool(pieces) and all(state.segments[piece.segment] == 1 for piece in pieces)


def _sole_user(state: State, task: TaskRecord, index: int, content: Slot) -> bool:
    """Whether this attempt is the last that can ever read what is in a slot it updates.

    The input must survive the attempt if the task may be tried again or if its failure is to be ignored. A file is
    never changed in place: what is published must not be half-written.
    """
    spec = task.call.spec
    if spec.retries or spec.on_failure in _KEEPS_INPUT:
        return False
    slot = task.call.slots[index]
    if type(slot) is int:
        version = state.versions[slot]
        if version.held or version.uses > 1:
            return False
    segments = segments_of(content)
    return bool(segments) and all(state.segments[segment] == 1 for segment in segments)


def _may_publish(state: State, task: TaskRecord, file: str) -> bool:
    """Whether everybody else is done with the older versions of a file."""
    for number in state.files[file]:
        version = state.versions[number]
        if number in task.call.writes:
            return True
        if version.outcome is None or version.scratch is not None:
            return False
        if version.uses > (1 if number in task.call.reads else 0):
            return False
    return True


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
        state.hungry.pop(lane, None)
        state.backlogged.pop(lane, None)
        return
    heir = queue[0]
    state.ledger.inherit(task, heir)
    state.move(heir, TaskState.RUNNING)
    if len(queue) == 1:
        state.backlogged.pop(lane, None)
    if not lane.recalling and not lane.dying and len(queue) <= _depth(state, heir) // 2:
        state.hungry[lane] = None


def take_back(state: State, lane: Lane, tasks: tuple[int, ...]) -> list[TaskRecord]:
    """Attempts that a lane had not started; they are nobody's now."""
    numbers = set(tasks)
    taken = [task for task in lane.queue if task.task in numbers]
    for task in taken:
        task.lane = None
        task.attempt -= 1
        task.in_place = False
    if taken:
        head = lane.queue[0]
        lane.queue = deque(task for task in lane.queue if task.lane is lane)
        if head.lane is None:
            _pass_on(state, lane, head)
    if len(lane.queue) < 2:
        state.backlogged.pop(lane, None)
    state.hungry.pop(lane, None)
    lane.recalling = False
    return taken


def _pass_on(state: State, lane: Lane, head: TaskRecord) -> None:
    """The head itself was taken back before it started."""
    if lane.queue:
        lane.since = state.now
        state.ledger.inherit(head, lane.queue[0])
        state.move(lane.queue[0], TaskState.RUNNING)
    else:
        state.ledger.give_back(head, lane)


def look_at_time(state: State) -> None:
    """Kill what is past its deadline; take back what is stuck behind a head that turned out long."""
    deadlines = state.deadlines
    while deadlines and (deadlines[0][0] <= state.now or not _is_due(state, deadlines[0])):
        deadline = heapq.heappop(deadlines)
        if _is_due(state, deadline):
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
    return min(times, default=None)


def _note_deadline(state: State, task: TaskRecord, timeout: float) -> None:
    deadlines = state.deadlines
    heapq.heappush(deadlines, (state.now + timeout, task.task, task.attempt))
    if len(deadlines) > 64 + 2 * len(state.tasks):
        # Most are of tasks long over.
        deadlines[:] = [deadline for deadline in deadlines if _is_due(state, deadline)]
        heapq.heapify(deadlines)


def _is_due(state: State, deadline: tuple[float, TaskId, int]) -> bool:
    """Whether the attempt that a deadline was set for still runs, and nothing else is about to end it."""
    time, number, attempt = deadline
    task = state.tasks.get(number)
    if task is None or task.attempt != attempt or task.lane is None or task.doom is not None:
        return False
    # Taken back and sent again, an attempt keeps its number but gets a later deadline.
    return task.lane.since + (task.call.spec.timeout or 0.0) <= time


def recall(state: State, lane: Lane) -> None:
    """Ask for what a lane has not started, unless an answer is on its way already."""
    if not lane.recalling and not lane.dying:
        lane.recalling = True
        state.hungry.pop(lane, None)
        state.out.append(Recall(lane.node.name, lane.index))


def kill(state: State, lane: Lane) -> None:
    """End the process behind a lane, once."""
    if not lane.dying:
        lane.dying = lane.killed = True
        state.hungry.pop(lane, None)
        state.out.append(Kill(lane.node.name, lane.index))
