"""One moment of the storage, and what I/O schedulers ask about it: where a task fits, and how long things will take.

Nothing is reserved here: a task that a scheduler places but would rather not launch has taken nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from penstock.scheduling.io_spots import Spots
from penstock.scheduling.io_view import IOTask, Placement, StorageView

__all__ = ["Moment"]


class Moment:
    """The storage as it is now, and where tasks could go."""

    __slots__ = ("_spots", "_storage", "now")

    def __init__(self, spots: Callable[[IOTask], Spots], storage: StorageView, now: float) -> None:
        self._spots = spots
        self._storage = storage
        self.now = now

    def _of(self, task: IOTask) -> Spots:
        spots = self._spots(task)
        spots.catch_up(task, self._storage)
        return spots

    def place(self, task: IOTask) -> Placement | None:
        """Where the task should go, if it fits anywhere."""
        return self._of(task).place(task)

    def waits_for_storage(self, task: IOTask) -> bool:
        """Whether a task that is not placed waits for something that others hold.

        If not, it may not start anywhere whatever is free (it waits for a learning phase), and nobody helps it by
        waiting with it.
        """
        return self._of(task).may_start()

    def bandwidth(self, task: IOTask) -> float:
        """The bandwidth by which the task takes its place in the order."""
        need = task.requirements
        return need.bandwidth if need.bandwidth > 0 or not need.layered else self._of(task).most()

    def can_maximize(self, placement: Placement) -> bool:
        """Whether the task would end sooner if it waited for a higher layer than the one it is given.

        Waiting helps only on a layer where something runs, where the task may start and has room, and of which it is
        known how long the task takes there. Without measured times the answer is no.
        """
        task, given = placement.task, placement.device
        here = None if given is None else given.seconds(task.function)
        if here is None:
            return False
        layer = next(i for i, device in enumerate(placement.node.devices) if device is given)
        return any(wait + there < here for wait, there in self._of(task).shortest_wait(task, layer, self.now))

    def anything_runs(self) -> bool:
        """Whether any attempt holds bandwidth, so that some will be given back."""
        return any(True for _ in self._storage.oldest())

    def seconds_to_next_end(self) -> float:
        """Until the first attempt on any device ends: 0 if that may be at once, infinite if nothing runs.

        Of attempts whose times have one mean, the one that started first is taken to end first.
        """
        left = (0.0 if mean is None else max(0.0, mean - (self.now - start)) for mean, start in self._storage.oldest())
        return min(left, default=inf)

    def duration(self, placement: Placement) -> float:
        """Seconds that a placed task will take: measured, else its bytes at its bandwidth, else infinite."""
        task, _, device, bandwidth = placement
        measured = None if device is None else device.seconds(task.function)
        if measured is not None:
            return measured
        capacity = task.requirements.capacity
        return capacity / bandwidth if capacity > 0 and bandwidth > 0 else inf
