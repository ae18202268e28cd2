"""Pauses before further attempts: a heap of times, with entries of tasks that are over left in it.

A task that pauses misses one thing more than versions: the end of its pause.
"""

from __future__ import annotations

import heapq

from penstock.engine.outcomes import release_successors
from penstock.engine.segment_store import forget_needs
from penstock.engine.state import State, TaskRecord
from penstock.model.tasks import TaskState

__all__ = ["begin_pause", "end_pauses", "next_end"]


def begin_pause(state: State, task: TaskRecord, seconds: float) -> None:
    """A task must not start before so many seconds have passed; meanwhile it keeps no data in memory."""
    forget_needs(state, task)
    until = state.now + seconds
    state.pauses[task.task] = until
    heapq.heappush(state.pause_ends, (until, task.task))
    task.missing += 1


def end_pauses(state: State) -> None:
    """Tasks whose pause is over want a place, unless they wait for data too."""
    freed: list[TaskRecord] = []
    while state.pause_ends and (end := next_end(state)) is not None and end <= state.now:
        _, number = heapq.heappop(state.pause_ends)
        del state.pauses[number]
        task = state.tasks[number]
        task.missing -= 1
        if not task.missing and task.state is TaskState.WAITING:
            freed.append(task)
    release_successors(state, freed)


def next_end(state: State) -> float | None:
    """When the next pause is over."""
    ends = state.pause_ends
    while ends and state.pauses.get(ends[0][1]) != ends[0][0]:
        heapq.heappop(ends)  # of a task that is over
    return ends[0][0] if ends else None
