"""Workers that were asked to end the attempt that they carry out, and when they are killed if they do not.

    Kill with a task ──▶ NodeExecutor ── Stop ──▶ worker: at the next ``yield`` the generator is closed
    its end, or the time is up ──▶ the process is killed, as one whose body cannot be asked is at once

Pure: the node executor says what time it is.
"""

from __future__ import annotations

from penstock.executors.pools import Worker

__all__ = ["Endings"]

#: seconds in which a body must come to a ``yield``
_GRACE = 2.0
#: seconds for its ``finally`` and ``with`` blocks from then on
_CLEARING = 30.0


class Endings:
    """The tasks that are to end by themselves, by worker."""

    def __init__(self) -> None:
        #: those that were asked to, and of what
        self.asked: dict[Worker, int] = {}
        self._due: dict[Worker, float] = {}

    def ask(self, worker: Worker, task: int, now: float) -> None:
        """A worker is being asked."""
        self.asked[worker] = task
        self._due[worker] = now + _GRACE

    def clearing(self, worker: Worker, now: float) -> None:
        """A body has heard it, and clears up."""
        if worker in self.asked:
            self._due[worker] = now + _CLEARING

    def is_over(self, worker: Worker, task: int) -> bool:
        """Whether the task that has just ended is the one that was to."""
        return self.asked.get(worker) == task

    def overdue(self, now: float) -> list[Worker]:
        """Workers whose time is up; each is named once."""
        late = [worker for worker, due in self._due.items() if due <= now]
        for worker in late:
            self.forget(worker)
        return late

    def next_look(self) -> float | None:
        """When the next one's will be."""
        return min(self._due.values(), default=None)

    def forget(self, worker: Worker) -> None:
        """A worker is being killed, or is gone."""
        self.asked.pop(worker, None)
        self._due.pop(worker, None)
