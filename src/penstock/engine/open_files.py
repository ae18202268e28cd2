"""Files that are read while they are being written.

    OutputReady(FileRef, open) ──▶ those who read it as a stream may start       others wait for the version itself
    the attempt delivers       ──▶ the version exists; its readers go on and find its end
    the attempt fails          ──▶ its readers are ended and wait again: they begin anew with the next attempt

A reader ends after the writer, since it waits for the end of what it reads; so none has delivered when the writer
fails.
"""

from __future__ import annotations

from penstock.engine.failures import fail_for_want_of
from penstock.engine.lifetimes import release_segments
from penstock.engine.outcomes import release_successors
from penstock.engine.placement import kill, make_ready, recall
from penstock.engine.segment_store import forget_needs
from penstock.engine.state import OpenFile, State, TaskRecord, VersionRecord
from penstock.model.data import FileRef
from penstock.model.tasks import TaskState

__all__ = ["begin_again", "open_file", "withdraw_open_files"]


def open_file(state: State, version: VersionRecord, ref: FileRef) -> None:
    """A running attempt has begun to write a file: those who read it as a stream need not wait for its end."""
    number = version.version
    opened = state.open_files[number] = OpenFile(ref)
    readers = [waiter for waiter in version.waiters if number in waiter.call.streams]
    version.waiters = [waiter for waiter in version.waiters if number not in waiter.call.streams]
    freed = []
    for reader in readers:
        if state.tasks.get(reader.task) is not reader:
            continue  # it failed for want of something else
        opened.readers[reader] = None
        reader.missing -= 1
        if not reader.missing and reader.state is TaskState.WAITING:
            freed.append(reader)
    release_successors(state, freed)


def withdraw_open_files(state: State, task: TaskRecord) -> None:
    """An attempt ends without delivering: what it was writing is no more, and whoever reads it cannot go on."""
    writers = [task]
    for writer in writers:  # which grows by readers that write for others in their turn
        for number in writer.call.writes:
            opened = state.open_files.pop(number, None)
            if opened is None:
                continue
            version = state.versions[number]
            for reader in opened.readers:
                reader.missing += 1
                version.release_later(reader)
                _stop_reading(state, reader)
                writers.append(reader)


def _stop_reading(state: State, reader: TaskRecord) -> None:
    lane = reader.lane
    if reader.state is TaskState.READY:
        state.withdraw(reader)
        state.io_changed = True
        state.move(reader, TaskState.WAITING)
    elif lane is not None:
        state.interrupted.add(reader.task)
        if reader.state is TaskState.QUEUED:
            recall(state, lane)
        else:
            kill(state, lane)


def begin_again(state: State, task: TaskRecord) -> None:
    """A task that is on no lane any more is tried as soon as all it reads is there."""
    state.interrupted.discard(task.task)
    recovery = state.recoveries.get(task.task)
    if recovery is not None and recovery.spent:
        release_segments(state, recovery.spent)  # what the attempt was to change in place is of no use any more
        recovery.spent = []
    lost: list[VersionRecord] = []
    for number in task.call.reads:
        version = state.versions[number]
        if version.for_consumers is not None:
            fail_for_want_of(state, task, version)
            return
        if version.outcome is None and not _waits_for(state, task, version):
            lost.append(version)  # while the attempt was under way
    if lost:
        forget_needs(state, task)
        task.missing += len(lost)
        for version in lost:
            version.release_later(task)
    if task.missing or task.task in state.recoveries:
        state.move(task, TaskState.WAITING)
    if not task.missing:
        make_ready(state, task)


def _waits_for(state: State, task: TaskRecord, version: VersionRecord) -> bool:
    """Whether a task will be told when a version exists, or need not be since it reads it meanwhile."""
    opened = state.open_files.get(version.version)
    return task in version.waiters or (opened is not None and task in opened.readers)
