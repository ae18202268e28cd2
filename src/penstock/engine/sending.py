"""What an attempt is told when it is sent to a lane: where its data are, what it may change, where it writes."""

from __future__ import annotations

from penstock.engine.deadlines import note_deadline
from penstock.engine.devices import DeviceRecord
from penstock.engine.ledger import Lane
from penstock.engine.placed_files import is_redirected
from penstock.engine.state import IOTaskRecord, State, TaskRecord
from penstock.model.commands import Launch
from penstock.model.data import Piece, SegmentId, Slot, segments_of
from penstock.model.tasks import Failure, OnFailure

__all__ = ["send"]

#: answers to a failure for which the input must still exist
_KEEPS_INPUT = frozenset({OnFailure.RETRY, OnFailure.IGNORE})


def send(state: State, task: TaskRecord, lane: Lane) -> None:
    """Send an attempt to a lane, with the content of its slots and what it may do with them."""
    task.attempt += 1
    task.lane = lane
    lane.queue.append(task)
    call = task.call
    timeout = call.spec.timeout
    if timeout is not None:
        note_deadline(state, task, timeout)
    gangs = state.ledger.gangs
    early = state.early.get(task.task) if state.early else None
    countable = task.requirements.countable
    if not (call.slots or call.outputs or lane.io or gangs or early or countable):
        state.out.append(Launch(task.task, task.attempt, lane.node.name, lane.index, call))
        return
    slots: list[Slot] = []
    for slot in call.slots:
        if type(slot) is int:
            outcome = state.versions[slot].outcome
            if outcome is None:
                outcome = state.open_files[slot].ref
            assert not isinstance(outcome, Failure)
            slots.append(outcome)
        else:
            slots.append(slot)  # type: ignore[arg-type]
    in_place = tuple(i for i in call.writable if _sole_user(state, task, i, slots[i]))
    args_in_place = call.writable_buffers > 0 and _sole_owner(state, task)
    task.in_place = bool(in_place) or args_in_place
    delivered = () if early is None else tuple(sorted(early.indices))
    publish = all(
        output.file is None or output.update or index in delivered or _may_publish(state, task, output.file)
        for index, output in enumerate(call.outputs, start=call.returns)
    )
    layer, bandwidth, redirected = _storage(task, lane)
    state.out.append(
        Launch(
            task.task,
            task.attempt,
            lane.node.name,
            lane.index,
            call,
            tuple(slots),
            in_place,
            publish,
            args_in_place,
            layer,
            bandwidth,
            redirected,
            state.ledger.hosts(task) if task.task in gangs else (),
            delivered,
            state.ledger.gpus(lane.queue[0]) if countable else (),
        )
    )


def _storage(task: TaskRecord, lane: Lane) -> tuple[str, float, tuple[int, ...]]:
    """The layer that an attempt uses, the bandwidth it has there, and the outputs that it writes there."""
    head = lane.queue[0]
    if not isinstance(head, IOTaskRecord) or head.device is None:
        return "", 0.0, ()
    device: DeviceRecord = head.device
    outputs = enumerate(task.call.outputs)
    redirected = tuple(i for i, output in outputs if is_redirected(output, lane.node, device))
    return device.name, head.bandwidth, redirected


def _keeps_input(task: TaskRecord) -> bool:
    """Whether what an attempt updates must survive it: the task may begin again, or its failure be ignored."""
    spec = task.call.spec
    again = bool(spec.retries) or spec.on_failure in _KEEPS_INPUT or bool(task.call.streams)
    return again or spec.requirements.layered


def _sole_owner(state: State, task: TaskRecord) -> bool:
    """Whether the objects that came with the call, and that the task changes, are in segments made for it alone."""
    call = task.call
    if _keeps_input(task):
        return False
    pieces = [buffer for buffer in call.args.buffers[: call.writable_buffers] if type(buffer) is Piece]
    return _is_ours(state, {piece.segment for piece in pieces})


def _sole_user(state: State, task: TaskRecord, index: int, content: Slot) -> bool:
    """Whether this attempt is the last that can ever read what is in a slot it updates.

    The input must survive the attempt if the task may be tried again or if its failure is to be ignored. A file is
    never changed in place: what is published must not be half-written.
    """
    if _keeps_input(task):
        return False
    slot = task.call.slots[index]
    if type(slot) is int:
        version = state.versions[slot]
        if version.held or version.uses > 1:
            return False
    return _is_ours(state, segments_of(content))


def _is_ours(state: State, segments: set[SegmentId]) -> bool:
    """Whether these exist for one user only, and in memory: what lies on disk has a checksum, so it stays as it is."""
    if not segments or any(state.segments[segment] != 1 for segment in segments):
        return False
    return state.store is None or not state.store.is_spilled(segments)


def _may_publish(state: State, task: TaskRecord, file: str) -> bool:
    """Whether everybody is done with the older versions of a file; also the task itself, which may hand over early."""
    for number in state.files[file]:
        version = state.versions[number]
        if number in task.call.writes:
            return True
        if version.outcome is None or (version.scratch is not None and version.placed is None):
            return False
        if version.placed is not None and (version.placed.moving is not None or not version.published):
            return False
        if version.uses:
            return False
    return True
