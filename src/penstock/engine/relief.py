"""How large results that the program has dropped are used up before more are made.

A task *relieves* memory if it reads such a result: that is gone when its readers are over. Policies may serve it first
(``Fifo`` does), functions that make much are not sent far ahead of those who use it up, and while the store is full of
such results, who would make more waits for a task that uses something up, while that runs or data are being moved back
for it. It never waits for anything else.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.engine.segment_store import Store
from penstock.engine.state import IOTaskRecord, State, TaskRecord, VersionRecord
from penstock.model.data import Slot, Value, VersionId, in_segments
from penstock.model.tasks import TaskState

__all__ = ["holds_back", "note_dropped", "note_gone", "note_made", "note_passing", "relieves"]

#: seconds after its start for which others wait for a task that uses something up: longer ones may have to do with much
#: else, and what is made meanwhile can go to disk
PATIENCE = 5.0


def relieves(state: State, store: Store, task: TaskRecord) -> bool:
    """Whether a task brings something large nearer to its end: the program has dropped it, and it is not updated."""
    call = task.call
    updated = [call.slots[index] for index in call.writable]
    large = [number for number in call.reads if in_segments(state.versions[number].outcome) and number not in updated]
    if any(not state.versions[number].held for number in large):
        return True
    for number in large:
        store.readers.setdefault(number, {})[task.task] = task
    return False


def note_dropped(state: State, store: Store, version: VersionRecord) -> None:
    """The program has dropped a version: ready tasks that read it, if it is large, use it up from now on."""
    if version.uses and in_segments(version.outcome):
        note_passing(store, version, version.outcome)
    for task in store.readers.pop(version.version, {}).values():
        alone = not isinstance(task, IOTaskRecord) and task.requirements.processes == 1
        if alone and task.state is TaskState.READY and not task.relieves:
            state.ready.remove(task)
            task.relieves = True
            state.ready.add(task)


def note_passing(store: Store, version: VersionRecord, content: object) -> None:
    """Only tasks that have been called need a large version any more."""
    if version.version not in store.passing and isinstance(content, Value):
        size = store.passing[version.version] = content.nbytes()
        store.passing_bytes += size


def note_gone(store: Store, version: VersionId) -> None:
    """Nobody needs a version any more."""
    store.passing_bytes -= store.passing.pop(version, 0)


def note_made(store: Store, task: TaskRecord, outputs: Iterable[Slot | None]) -> None:
    """A task has made something large: others of its function will too."""
    values = [output for output in outputs if type(output) is Value]
    store.makes[task.call.spec.function] = sum(piece.size for value in values for piece in value.pieces())


def holds_back(state: State, store: Store, task: TaskRecord) -> bool:
    """Whether a task waits because it would make more than the store holds while others use up what lies there.

    For each of these that ends one goes on: so neither those who make nor those who use up ever run dry, and what has
    nothing to do with either is slowed, not stopped.
    """
    made = store.makes.get(task.call.spec.function)
    if made is None or task.relieves or 2 * store.passing_bytes < store.capacity:
        return False
    if store.turn:
        store.turn = False
        return False
    running = [state.tasks[holder] for holder in state.ledger.holders]
    about = sum(store.makes.get(other.call.spec.function, 0) for other in running)
    if store.used + about + made <= store.capacity:
        return False
    using_up = [other.lane.since for other in running if other.relieves and other.lane and not other.call.spec.yields]
    store.patient_until = max(using_up, default=0.0) + PATIENCE
    return bool(store.restores) or (bool(using_up) and state.now < store.patient_until)
