"""Who waits for what, held by whom: read from the state, for whoever has to explain a run that stands still."""

from __future__ import annotations

from collections import Counter

from penstock.engine.state import IOTaskRecord, State, TaskRecord
from penstock.model.data import VersionId
from penstock.model.tasks import TaskState
from penstock.model.waits import BLOCKED, DATA, EXECUTOR, GANG, LEARNING, MEMORY, PAUSE, STORE, TURN, UNITS, Wait

__all__ = ["waits"]


def waits(state: State) -> list[Wait]:
    """All that wait, alike ones together, those with the most tasks first. Costs a look at every task."""
    makers = {number: task for task in state.tasks.values() for number in task.call.writes}
    running = _running(state)
    counted: Counter[tuple[str, str, str]] = Counter()
    for task in state.tasks.values():
        if task.lane is None:
            counted[task.call.spec.name, *_reason(state, task, makers, running)] += task.call.count
    if state.publishing:
        counted["files", "their names", "the thread that gives them"] += len(state.publishing)
    return [Wait(name, count, reason, holder) for (name, reason, holder), count in counted.most_common()]


def _running(state: State) -> str:
    heads = Counter(task.call.spec.name for task in state.tasks.values() if task.state is TaskState.RUNNING)
    return ", ".join(f"{name} × {count}" for name, count in heads.most_common(3))


def _reason(state: State, task: TaskRecord, makers: dict[VersionId, TaskRecord], running: str) -> tuple[str, str]:
    if task.task in state.pauses:
        return PAUSE, ""
    if task.state is TaskState.WAITING:
        return _data(state, task, makers)
    held = f"held by {running}" if running else ""
    if not state.ledger.is_possible(task.requirements):
        return BLOCKED, "none has joined"
    if isinstance(task, IOTaskRecord):
        return _io(state, task, held)
    if task.requirements.processes > 1:
        return GANG, held
    need = task.requirements
    for name, count in need.countable:
        if not any(len(node.free_countable.get(name, ())) >= count for node in state.ledger.nodes.values()):
            return name, held
    free = any(node.free_cpus >= need.cpus for node in state.ledger.nodes.values())
    return (MEMORY if free and need.memory else UNITS), held


def _data(state: State, task: TaskRecord, makers: dict[VersionId, TaskRecord]) -> tuple[str, str]:
    if state.store is not None and state.store.waits(task.task):
        return STORE, "that other data leave it, or come back from disk"
    for number in task.call.reads:
        if state.versions[number].outcome is None:
            maker = makers.get(number)
            if maker is None:
                return "data that the program has promised", ""
            return DATA, f"made by {maker.call.spec.name}"
    return DATA, ""


def _io(state: State, task: IOTaskRecord, held: str) -> tuple[str, str]:
    for course in state.courses.values():
        if course.function == task.function:
            where = f"{LEARNING} on {course.device.name}"
            if not course.warm:
                return where, f"which waits for I/O workers of {course.node.name} to start"
            if course.open:
                return where, f"whose epoch is under way with {course.tuner.learner.running} running"
            return where, "which waits for the device to be quiet, or for more of these tasks"
    if not state.ledger.open_io:
        return EXECUTOR, held
    if state.crowded_since is not None:
        return "room on a storage layer", ", ".join(device.name for device in state.ledger.full)
    kept = next((device.course for device in state.ledger.devices() if device.course is not None), None)
    if kept is not None:
        return TURN, f"after a learning phase of {kept.name}"
    shared = [device.name for device in state.ledger.devices() if device.others]
    if shared and not held:
        return TURN, f"which other programs have that use {', '.join(shared)}"
    return TURN, held
