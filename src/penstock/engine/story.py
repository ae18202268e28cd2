"""The recent moves of tasks, for error messages: what happened to this task before things went wrong?"""

from __future__ import annotations

from collections import deque

from penstock.model.tasks import TaskState

__all__ = ["Story"]

_KEPT = 10_000


class Story:
    """A bounded memory of transitions, cheap to write and searched only when something broke."""

    def __init__(self) -> None:
        self._moves: deque[tuple[float, int, int, int]] = deque(maxlen=_KEPT)
        #: called for every transition, with numbers alone: the garbage collector has no use for them
        self.note = self._moves.append

    def of(self, task: int) -> str:
        """The moves of one task, oldest first."""
        moves = [(now, TaskState(a), TaskState(b)) for now, number, a, b in self._moves if number == task]
        lines = [f"  {now:.6f}: {a.name} → {b.name}" for now, a, b in moves]
        return "\n".join(lines) or "  (nothing recorded)"
