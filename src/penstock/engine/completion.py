"""Handlers for what executors report: success, early output, failure, attempts taken back, lost workers and nodes.

What a failure then means for other tasks and for the program is in failures.py.
"""

from __future__ import annotations

from msgspec.structs import replace

from penstock.engine import learning, steering
from penstock.engine.crowding import no_room, overflows
from penstock.engine.failures import finish_without_outputs, unchanged
from penstock.engine.ledger import Lane, NodeRecord
from penstock.engine.lifetimes import hold_segments, hold_states, release_segments
from penstock.engine.lineage import note_lost_inputs
from penstock.engine.open_files import begin_again, open_file, withdraw_open_files
from penstock.engine.origins import note_origin
from penstock.engine.outcomes import leave, release_successors, settle
from penstock.engine.pauses import begin_pause
from penstock.engine.placed_files import note_named, note_written
from penstock.engine.placement import end_attempt, kill, take_back
from penstock.engine.profiles import learn_duration
from penstock.engine.relief import note_made, note_passing
from penstock.engine.retries import pause_before, tries_again
from penstock.engine.segment_store import forget_needs, note_value
from penstock.engine.state import Early, IOTaskRecord, Recovery, State, TaskRecord, VersionRecord
from penstock.errors import InternalError
from penstock.model.commands import Discard
from penstock.model.data import FileRef, Slot, TaskId, Value, in_segments, segments_of
from penstock.model.events import Failed, Finished, NodeLost, OutputReady, Recalled, Report, WorkerLost
from penstock.model.tasks import Failure, FailureKind, TaskState

__all__ = ["attempt_failed", "attempts_recalled", "finished", "node_lost", "output_ready", "worker_lost"]


def finished(state: State, event: Finished) -> None:
    """An attempt delivered: its outputs exist, its tokens pass on, its successors may be ready."""
    task = _running(state, event.task, event.attempt)
    if task is None:
        for output in event.outputs:
            _forget_segments(state, output)
        return
    call = task.call
    count = call.count
    if count:
        learn_duration(state.times, call.spec.function, event.seconds / count)
    node = task.lane.node.name  # type: ignore[union-attr]  # it runs
    if isinstance(task, IOTaskRecord):
        _io_succeeded(state, task, event)
    end_attempt(state, task)
    if task.relieves and state.store is not None:
        state.store.turn = True
    state.move(task, TaskState.DONE)
    state.done += count
    freed: list[TaskRecord] = []
    stored = False
    versions = state.versions
    if state.open_files and any(type(output) is FileRef and output.rewritten for output in event.outputs):
        withdraw_open_files(state, task)  # whoever has begun to read begins again, with the files as they are now
    for number, output in zip(call.writes, event.outputs, strict=True):
        version = versions.get(number)
        if version is None or version.outcome is not None:
            if output is not None:
                _delivered_before(state, task, number, output)
            continue
        if output is None:
            output = unchanged(state, task, version)
            if output is None:
                continue
            stored = stored or in_segments(output)
        elif _keep(state, version, output, node):
            stored = True
        settle(state, version, output, freed)
    if stored:
        note_origin(state, task, event.outputs)
        if state.store is not None:
            note_made(state.store, task, event.outputs)
    leave(state, task)
    if freed:
        release_successors(state, freed)


def _io_succeeded(state: State, task: IOTaskRecord, event: Finished) -> None:
    """What an I/O attempt teaches, and what it leaves on its layer."""
    device = task.device
    if device is None:
        return
    state.crowded_since = None
    device.learn(task.function, event.seconds)
    learn_duration(state.times_on, (task.function, device.name), event.seconds)
    learning.attempt_succeeded(state, task, event.seconds)
    steering.attempt_succeeded(state, task, event)
    call = task.call
    written = zip(call.writes[call.returns :], call.outputs, event.outputs[call.returns :], strict=True)
    for number, output, content in written:
        version = state.versions.get(number)
        if output.file is not None and type(content) is FileRef and version is not None and version.outcome is None:
            note_written(state, task, version, output, content, device)


def output_ready(state: State, event: OutputReady) -> None:
    """A running attempt handed one output over."""
    task = _running(state, event.task, event.attempt)
    if task is None:
        _forget_segments(state, event.value)
        return
    if type(event.value) is FileRef and event.value.open:
        open_file(state, state.versions[task.call.writes[event.index]], event.value)
        return
    version = _early_version(state, task, event)
    if version is None:
        return
    call, value = task.call, event.value
    if type(value) is FileRef and isinstance(task, IOTaskRecord) and task.device is not None:
        note_written(state, task, version, call.outputs[event.index - call.returns], value, task.device)
    freed: list[TaskRecord] = []
    _keep(state, version, value, task.lane.node.name)  # type: ignore[union-attr]
    settle(state, version, value, freed)
    release_successors(state, freed)


def _early_version(state: State, task: TaskRecord, event: OutputReady) -> VersionRecord | None:
    """The version that an early output is; None if an earlier attempt has handed it over already."""
    writes = task.call.writes
    early = state.early.get(task.task)
    if early is None:
        early = state.early[task.task] = Early()
    if event.index < len(writes):
        number = writes[event.index]
        version = state.versions.get(number)
        if version is None or version.outcome is not None:
            _delivered_before(state, task, number, event.value)
            return None
        early.indices.add(event.index)
        return version
    position = event.index - len(writes)
    if position < early.further:
        _forget_segments(state, event.value)
        return None
    if position > early.further:
        raise InternalError(f"task {task.label} handed over output {position} before output {early.further}")
    early.further += 1
    version = state.versions[event.version] = VersionRecord(event.version)
    return version


def _keep(state: State, version: VersionRecord, output: Slot, node: str) -> bool:
    """Note where an output is and what it occupies; whether any of it lies in segments."""
    version.node = node
    stored = False
    if type(output) is Value:
        if (output.buffers or type(output.data) is not bytes) and in_segments(output):
            hold_segments(state, segments_of(output))
            note_value(state, output)
            if state.store is not None and version.uses and not version.held:
                note_passing(state.store, version, output)
            stored = True
        if output.states:
            hold_states(state, output.states)
    elif version.file is not None:
        if output.path != version.file:  # type: ignore[union-attr]
            version.scratch = output.path  # type: ignore[union-attr]
        else:
            note_named(state, version)
    return stored


def _delivered_before(state: State, task: TaskRecord, number: int, output: Slot) -> None:
    """A second attempt made what the first had handed over early: others may have read that, so it stays."""
    if type(output) is Value:
        _forget_segments(state, output)
        return
    path = output.path  # type: ignore[union-attr]
    call = task.call
    index = call.writes.index(number) - call.returns
    version = state.versions.get(number)
    if (index < 0 or path != call.outputs[index].file) and (version is None or path != version.scratch):
        state.out.append(Discard(path))


def _forget_segments(state: State, output: Slot | None) -> None:
    """Free what an unwanted output occupies, unless something wanted occupies it too."""
    segments = segments_of(output)
    hold_segments(state, segments)
    release_segments(state, segments)


def _running(state: State, number: TaskId, attempt: int) -> TaskRecord | None:
    """The task an executor speaks of, unless that attempt is over already."""
    task = state.tasks.get(number)
    if task is None or task.attempt != attempt or task.lane is None or task.lane.queue[0] is not task:
        return None
    return task


def attempt_failed(state: State, event: Failed) -> None:
    """An attempt ended without delivering."""
    task = _running(state, event.task, event.attempt)
    if task is not None:
        _attempt_over(state, task, event.failure)


def _attempt_over(state: State, task: TaskRecord, failure: Failure) -> None:
    lane = task.lane
    assert lane is not None
    doom, task.doom = task.doom, None
    if state.open_files:
        withdraw_open_files(state, task)
    if failure.kind is FailureKind.CANCELLED and doom is not None:
        failure = replace(doom, output=failure.output)  # its body was asked to end, and did
    failure = replace(failure, node=lane.node.name, attempt=task.attempt)
    device = None
    if isinstance(task, IOTaskRecord):
        device = task.device
        learning.attempt_ended(task)
    end_attempt(state, task)
    if task.task in state.interrupted:
        _interrupted(state, task, doom)
        return
    if failure.kind is FailureKind.LOST:
        _inputs_lost(state, task, failure, doom)
        return
    if isinstance(task, IOTaskRecord) and failure.kind is FailureKind.STORAGE_FULL and doom is None:
        if overflows(state, task, device):
            state.reports.append(Report(task.task, failure.attempt, failure.node, failure, final=False))
            begin_again(state, task)
            return
        if device is not None:
            failure = replace(failure, message=f"{failure.message}; {no_room(state, task)}")
    attempts = task.attempt - (task.full_layers if isinstance(task, IOTaskRecord) else 0)
    if task.task in state.recoveries:
        attempts -= state.recoveries[task.task].forgiven
    if tries_again(task.call.spec, failure.kind, attempts):
        if doom is not None and doom.kind is FailureKind.CANCELLED:
            failure = doom  # the program gave it up in the meantime
        elif task.requirements.processes > 1 and state.is_hopeless(task.requirements):
            # It was being killed when the other nodes were told to do without the one that was lost.
            failure = replace(failure, kind=FailureKind.UNPLACEABLE, message=_unplaceable(failure.message))
        elif not task.in_place:
            state.reports.append(Report(task.task, failure.attempt, failure.node, failure, final=False))
            pause = pause_before(task.call.spec, failure, attempts, task.task)
            if pause:
                begin_pause(state, task, pause)
            begin_again(state, task)
            return
        else:
            failure = replace(
                failure,
                message=failure.message + "; it was changing its INOUT argument in place, so it cannot be tried again "
                "(give the task retries=1 or more to make it work on a copy)",
            )
    finish_without_outputs(state, task, failure)


def _inputs_lost(state: State, task: TaskRecord, failure: Failure, doom: Failure | None) -> None:
    """An attempt could not read its inputs, so its body has not begun: it does not count."""
    final = note_lost_inputs(state, task, failure)
    if doom is not None and doom.kind is FailureKind.CANCELLED:
        final = doom  # the program gave it up in the meantime
    if final is not None:
        finish_without_outputs(state, task, final)
        return
    state.reports.append(Report(task.task, failure.attempt, failure.node, failure, final=False))
    forget_needs(state, task)
    begin_again(state, task)


def _interrupted(state: State, task: TaskRecord, doom: Failure | None) -> None:
    """An attempt ended, in whatever manner, after what it read was not written to its end: it does not count."""
    _forgive(state, task)
    if doom is not None:
        finish_without_outputs(state, task, doom)
    else:
        begin_again(state, task)


def _forgive(state: State, task: TaskRecord) -> None:
    """An attempt that may have begun does not count; its number stays its own, by which others know what it made."""
    state.recoveries.setdefault(task.task, Recovery()).forgiven += 1


def attempts_recalled(state: State, event: Recalled) -> None:
    """What a lane had not started goes back among the ready; a task that was being cancelled is."""
    node = state.ledger.nodes.get(event.node)
    if node is None:
        return
    lane = node.lanes[event.lane]
    if not lane.recalling:
        # Nobody asked: its process has ended, and WorkerLost follows. Nothing may be sent in between.
        state.ledger.seclude(lane)
        state.starve(lane)
    _take_back(state, lane, event.tasks)
    for task in lane.queue:
        if task.task in state.interrupted:
            kill(state, lane)  # it has started in the meantime
        elif task.doom is not None:
            # It was to be cancelled while queued, but has started by now.
            if task.spare_started:
                task.doom = None
            else:
                kill(state, lane)


def _take_back(state: State, lane: Lane, tasks: tuple[TaskId, ...]) -> None:
    for task in take_back(state, lane, tasks):
        doom, task.doom = task.doom, None
        if state.open_files:
            withdraw_open_files(state, task)
        given_up = doom is not None and (doom.kind is FailureKind.CANCELLED or task.task in state.interrupted)
        if doom is not None and given_up:
            finish_without_outputs(state, task, doom)
        elif task.requirements.processes > 1 and state.is_hopeless(task.requirements):
            message = _unplaceable("a node was lost" if doom is None else doom.message)
            finish_without_outputs(state, task, Failure(FailureKind.UNPLACEABLE, message))
        else:
            begin_again(state, task)  # also if its time was up: it had none, since it never started


def worker_lost(state: State, event: WorkerLost) -> None:
    """The process behind a lane ended: the attempt that it ran is over."""
    node = state.ledger.nodes.get(event.node)
    if node is None:
        return
    lane = node.lanes[event.lane]
    killed = lane.killed
    if event.replaced:
        state.ledger.reopen(lane)
    else:
        state.ledger.close(lane)
    _lane_lost(state, lane, Failure(FailureKind.DIED, event.reason, output=event.output), killed)
    # A node without compute or without I/O executors is of no use, whatever still runs there.
    if not all(any(lane.open for lane in node.lanes if lane.io is io) for io in {lane.io for lane in node.lanes}):
        _lose_node(state, node, f"the last worker of node {node.name} ended: {event.reason}")


def _lane_lost(state: State, lane: Lane, failure: Failure, killed: bool) -> None:
    """End the attempt at the head, take back the others.

    If we killed the process on account of an attempt that ended just before, then the head is not to blame, and is
    taken back as well; unless it was changing its input in place.
    """
    queue = list(lane.queue)
    blameless = killed and queue and queue[0].doom is None and not queue[0].in_place
    if blameless:
        queue[0].attempt += 1  # unlike what else is taken back, it may have begun
        _forgive(state, queue[0])
    _take_back(state, lane, tuple(task.task for task in (queue if blameless else queue[1:])))
    if lane.queue:
        head = lane.queue[0]
        if head.doom is not None:
            failure = replace(head.doom, output=failure.output)
        _attempt_over(state, head, failure)


def node_lost(state: State, event: NodeLost) -> None:
    """A machine is gone: what ran there is tried elsewhere, what fits nowhere else fails."""
    node = state.ledger.nodes.get(event.name)
    if node is None:
        return
    _lose_node(state, node, f"node {event.name} was lost")


def _lose_node(state: State, node: NodeRecord, why: str) -> None:
    learning.forget_node(state, node)
    steering.forget_node(state, node)
    for gang in state.ledger.dismiss_guests(node):
        # It ends when its process on the node of its lane has ended; until then it holds what it holds elsewhere.
        assert gang.lane is not None
        gang.doom = gang.doom or Failure(FailureKind.DIED, why)
        kill(state, gang.lane)
    for lane in node.lanes:
        state.ledger.close(lane)
        _lane_lost(state, lane, Failure(FailureKind.DIED, why), lane.killed)
    _node_gone(state, node, why)


def _node_gone(state: State, node: NodeRecord, why: str) -> None:
    """Do without a node on which nothing runs: what fits nowhere else fails, or is blocked until a node joins."""
    state.ledger.leave(node.name)
    _cast_off(state)
    for task in list(state.tasks.values()):
        # One that an earlier one took along has left by now.
        if task.state in (TaskState.WAITING, TaskState.READY) and state.is_hopeless(task.requirements):
            finish_without_outputs(state, task, Failure(FailureKind.UNPLACEABLE, _unplaceable(why)))


def _unplaceable(why: str) -> str:
    return f"no node is left that could run it: {why}"


def _cast_off(state: State) -> None:
    """I/O tasks that were bound to a layer which is gone with its node may use any other."""
    left = {device.name for device in state.ledger.devices()}
    for task in list(state.io_ready.tasks()):
        assert isinstance(task, IOTaskRecord)
        if task.anchor and task.anchor not in left:
            state.io_ready.remove(task)
            task.anchor = ""
            state.io_ready.add(task)
    state.io_changed = True
