"""What it means that a version exists and that a task is over: waiters may be ready, data may be forgotten."""

from __future__ import annotations

from penstock.engine.lifetimes import drop_if_unused, let_replaced_go, note_published, release_segments
from penstock.engine.placement import make_ready
from penstock.engine.segment_store import forget_needs
from penstock.engine.state import State, TaskRecord, VersionRecord
from penstock.engine.unwritten_files import as_before, following
from penstock.model.commands import Settle
from penstock.model.data import Slot
from penstock.model.events import Published
from penstock.model.tasks import TaskState

__all__ = ["file_published", "leave", "release_successors", "settle", "settle_followers"]


def settle(state: State, version: VersionRecord, content: Slot, freed: list[TaskRecord]) -> None:
    """A version exists now: tell the program, and add to ``freed`` the tasks that waited for nothing else."""
    version.outcome = content
    if state.replaced:
        let_replaced_go(state, version.version)
    if state.open_files:
        state.open_files.pop(version.version, None)
    if version.held:
        state.out.append(Settle(version.version, content))
    if version.waiters:
        for waiter in version.waiters:
            waiter.missing -= 1
            if not waiter.missing and waiter.state is TaskState.WAITING:
                freed.append(waiter)
        version.waiters = ()
    if version.file is not None:
        drop_if_unused(state, version)
        if version.version in state.unwritten:
            settle_followers(state, version, freed)
    elif not version.held:
        drop_if_unused(state, version)


def settle_followers(state: State, version: VersionRecord, freed: list[TaskRecord]) -> None:
    """More is known of a version of a file: those that are the same as it exist now too, if they can."""
    follower = following(state, version)
    while follower is not None:
        content = as_before(state, follower)
        if content is None:
            return  # it has found another version to follow
        after = following(state, follower)  # asked here, so that a long row of them needs no deep recursion
        settle(state, follower, content, freed)
        follower = after


def file_published(state: State, event: Published) -> None:
    """A version bears its file's name."""
    version = state.versions[event.version]
    note_published(state, version, event.path)
    if event.version in state.unwritten:
        freed: list[TaskRecord] = []
        settle_followers(state, version, freed)
        release_successors(state, freed)


def release_successors(state: State, freed: list[TaskRecord]) -> None:
    """Tasks whose last missing version exists now want a place."""
    if freed and state.follows_data:
        min(freed, key=lambda task: task.task).freed = True
    for task in freed:
        make_ready(state, task)


def leave(state: State, task: TaskRecord) -> None:
    """A task is over: what it read has one reader less."""
    del state.tasks[task.task]
    if state.store is not None and state.store.records:
        forget_needs(state, task)
    if state.early:
        state.early.pop(task.task, None)
    if state.pauses:
        state.pauses.pop(task.task, None)
    if state.recoveries:
        recovery = state.recoveries.pop(task.task, None)
        if recovery is not None and recovery.spent:
            release_segments(state, recovery.spent)
    call = task.call
    if call.streams:
        _stop_counting_on(state, task)
    for number in call.reads:
        version = state.versions[number]
        version.uses -= 1
        if not version.uses:
            drop_if_unused(state, version)
    if call.segments:
        release_segments(state, call.segments)


def _stop_counting_on(state: State, task: TaskRecord) -> None:
    """A task is over that reads files which may still be being written."""
    state.interrupted.discard(task.task)
    for number in task.call.streams:
        opened = state.open_files.get(number)
        if opened is not None:
            opened.readers.pop(task, None)
