"""What it means that a task will not deliver: for those that need its outputs, and for the program.

A failure passes along the edges of the graph; each task it ends names the task that failed first and the way from
there. ``on_failure`` of the task that failed first decides whether consumers fail, are cancelled, or run regardless.
"""

from __future__ import annotations

from msgspec.structs import replace

from penstock.engine.lifetimes import (
    drop_if_unused,
    hold_segments,
    hold_states,
    shorten_way_back,
    spoil_replaced,
)
from penstock.engine.origins import note_origin
from penstock.engine.outcomes import leave, release_successors, settle, settle_followers
from penstock.engine.state import State, TaskRecord, VersionRecord
from penstock.engine.unwritten_files import as_before
from penstock.model.commands import Settle
from penstock.model.data import Slot, Value, in_segments, segments_of
from penstock.model.events import Report
from penstock.model.tasks import Failure, FailureKind, OnFailure, TaskState, Use

__all__ = ["NONE", "fail_consumers_of", "fail_for_want_of", "finish_without_outputs", "unchanged"]

#: ``None``, pickled
NONE = Value(b"\x80\x05N.")

#: steps that a failure's path names at most; a long chain would else cost the square of its length
_LONGEST_PATH = 16

#: failures that came from elsewhere and go on as they are
_PASSED_ON = frozenset({FailureKind.DEPENDENCY, FailureKind.CANCELLED})


def finish_without_outputs(state: State, task: TaskRecord, failure: Failure) -> None:
    """End a task that will not deliver and holds nothing, and all that need what it does not deliver."""
    if failure.kind not in _PASSED_ON:
        failure = replace(failure, path=(task.label,))
        tried = task.state is TaskState.RUNNING or failure.kind is FailureKind.STORAGE_FULL
        if task.call.spec.on_failure is OnFailure.IGNORE and tried:
            _finish_ignored(state, task, failure)
            return
    _finish_all(state, [(task, failure)])


def fail_for_want_of(state: State, task: TaskRecord, version: VersionRecord, *, called_after: bool = False) -> None:
    """End a task that needs a version of which it is known that it will never exist."""
    assert version.for_consumers is not None
    failure = _through(version.for_consumers, task)
    _finish_all(state, [(task, replace(failure, called_after=True) if called_after else failure)])


def fail_consumers_of(state: State, version: VersionRecord, failure: Failure) -> None:
    """The program itself failed to make a version."""
    fallen: list[tuple[TaskRecord, Failure]] = []
    _fail_version(state, version, failure, _as_dependency(failure), fallen)
    _finish_all(state, fallen)


def _finish_all(state: State, fallen: list[tuple[TaskRecord, Failure]]) -> None:
    for task, failure in fallen:  # which grows by the consumers of each
        state.reports.append(Report(task.task, failure.attempt, failure.node, failure, final=True))
        if task.state is TaskState.READY:
            state.withdraw(task)
            state.io_changed = True
        if failure.kind is FailureKind.CANCELLED:
            state.move(task, TaskState.CANCELLED)
            state.cancelled += task.call.count
        else:
            state.move(task, TaskState.FAILED)
            state.failed += task.call.count
        for_consumers = _for_consumers(task, failure)
        missing = 0
        _end_reading(state, task)
        for number in task.call.writes:
            version = state.versions.get(number)
            if version is not None and version.outcome is None:
                missing += 1
                if task.in_place:
                    spoil_replaced(state, number)
                _fail_version(state, version, failure, for_consumers, fallen)
        if not missing and failure.kind not in _PASSED_ON:
            state.out.append(Settle(0, failure))
        leave(state, task)


def _end_reading(state: State, task: TaskRecord) -> None:
    """A task that fails reads no longer: who waits to change what it read need not know more."""
    call = task.call
    freed: list[TaskRecord] = []
    for number, output in zip(call.writes[call.returns :], call.outputs, strict=True):
        version = state.versions.get(number)
        if output.use is Use.READ and version is not None and version.outcome is None:
            settle(state, version, NONE, freed)
    release_successors(state, freed)


def _fail_version(
    state: State,
    version: VersionRecord,
    failure: Failure,
    for_consumers: Failure,
    fallen: list[tuple[TaskRecord, Failure]],
) -> None:
    """A version will never exist: tell the program, and add those that wait for it to ``fallen``."""
    version.outcome = failure
    version.for_consumers = for_consumers
    if state.replaced:
        shorten_way_back(state, version)
    if version.held:
        state.out.append(Settle(version.version, failure))
    for waiter in version.waiters:
        if waiter.state is TaskState.WAITING and waiter.doom is None:
            waiter.doom = for_consumers  # it is on the list; it may wait for several of these versions
            fallen.append((waiter, _through(for_consumers, waiter)))
        elif waiter.lane is not None:
            # It was reading what was being written, and is being ended.
            waiter.missing -= 1
            waiter.doom = waiter.doom or _through(for_consumers, waiter)
            waiter.spare_started = False
    version.waiters = ()
    drop_if_unused(state, version)
    if version.version in state.unwritten:
        freed: list[TaskRecord] = []
        settle_followers(state, version, freed)
        release_successors(state, freed)


def _for_consumers(task: TaskRecord, failure: Failure) -> Failure:
    """What the failure of a task means to those that need its outputs."""
    if failure.kind not in _PASSED_ON and task.call.spec.on_failure is OnFailure.CANCEL_SUCCESSORS:
        message = f"it needs an output of {task.label}, which failed: {failure.message}"
        return replace(failure, kind=FailureKind.CANCELLED, message=message)
    return _as_dependency(failure)


def _as_dependency(failure: Failure) -> Failure:
    return failure if failure.kind in _PASSED_ON else replace(failure, kind=FailureKind.DEPENDENCY)


def _through(failure: Failure, task: TaskRecord) -> Failure:
    """A failure that reached one more task."""
    path = (*failure.path, task.label)
    if len(path) > _LONGEST_PATH:
        path = (path[0], "…", *path[3:])
    return replace(failure, path=path, attempt=0, arguments="")


def _finish_ignored(state: State, task: TaskRecord, failure: Failure) -> None:
    """A failure that the user wants ignored: returns are None, updated data keep their old content."""
    state.reports.append(Report(task.task, failure.attempt, failure.node, failure, final=True))
    if task.state is TaskState.READY:
        state.withdraw(task)
        state.io_changed = True
    state.move(task, TaskState.DONE)
    state.failed += task.call.count
    freed: list[TaskRecord] = []
    stored = False
    for number in task.call.writes:
        version = state.versions.get(number)
        if version is not None and version.outcome is None:
            content = unchanged(state, task, version)
            if content is not None:
                stored = stored or in_segments(content)
                settle(state, version, content, freed)
    if stored:
        note_origin(state, task, (), ignored=True)
    leave(state, task)
    release_successors(state, freed)


def unchanged(state: State, task: TaskRecord, version: VersionRecord) -> Slot | None:
    """What an output holds that a task did not change: what it held before, ``None`` in a program where that was
    nothing. A file for which that is not known yet has none: it follows an older version.
    """
    call = task.call
    index = call.writes.index(version.version) - call.returns
    if index < 0:
        return NONE
    if version.file is not None:
        return as_before(state, version)
    slot = call.slots[call.outputs[index].slot] if call.outputs[index].slot >= 0 else None
    if slot is None:
        return NONE
    old = state.versions[slot].outcome if type(slot) is int else slot
    assert type(old) is Value
    hold_segments(state, segments_of(old))
    hold_states(state, old.states)
    return old
