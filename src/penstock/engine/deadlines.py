"""When attempts with a timeout must be over: a heap of times, with entries of attempts that are over left in it."""

from __future__ import annotations

import heapq

from penstock.engine.state import State, TaskRecord
from penstock.model.data import TaskId

__all__ = ["is_due", "note_deadline"]


def note_deadline(state: State, task: TaskRecord, timeout: float) -> None:
    """Remember when an attempt that is sent now must be over."""
    deadlines = state.deadlines
    heapq.heappush(deadlines, (state.now + timeout, task.task, task.attempt))
    if len(deadlines) > 64 + 2 * len(state.tasks):
        # Most are of tasks long over.
        deadlines[:] = [deadline for deadline in deadlines if is_due(state, deadline)]
        heapq.heapify(deadlines)


def is_due(state: State, deadline: tuple[float, TaskId, int]) -> bool:
    """Whether the attempt that a deadline was set for still runs, and nothing else is about to end it."""
    time, number, attempt = deadline
    task = state.tasks.get(number)
    if task is None or task.attempt != attempt or task.lane is None or task.doom is not None:
        return False
    # Taken back and sent again, an attempt keeps its number but gets a later deadline.
    return task.lane.since + (task.call.spec.timeout or 0.0) <= time
