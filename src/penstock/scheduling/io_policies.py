"""The I/O schedulers: in which order I/O tasks are served, and which would rather wait. Each says what it is bad at.

A policy is shown one task of each kind (the first of those that are alike) and answers with the next to launch. It
is asked again after each launch; a *round* is the asking up to the answer ``None``. Where a task would go, and how
long things take, it learns from a ``Moment``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from math import inf

from penstock.errors import ConfigError, did_you_mean
from penstock.scheduling.io_fit import Moment
from penstock.scheduling.io_view import IOTask, Placement

__all__ = ["Backfilling", "Fcfs", "IOPolicy", "Priority", "io_policy", "io_scheduler_names"]


class IOPolicy(ABC):
    """What every I/O scheduler has. All serve larger user priority first."""

    #: whether age can change its order, so that time alone can
    ages = False
    #: whether it asks if waiting for a higher layer is better
    maximizes = False

    def __init__(self, ageing: float = inf) -> None:
        #: seconds after which a task is served before others of its priority
        self.ageing = ageing

    @abstractmethod
    def choose(self, heads: Sequence[IOTask], moment: Moment) -> Placement | None:
        """The next task to launch; ``heads`` is not empty, and some node has an idle executor."""

    def removed(self, task: IOTask) -> None:  # noqa: B027 - most remember no task
        """A task is no longer ready."""

    def end_round(self) -> None:  # noqa: B027
        """Nothing more can be launched until something happens."""

    def _by_bandwidth(self, heads: Sequence[IOTask], moment: Moment) -> Sequence[IOTask]:
        """Larger bandwidth first, then arrival; but before those, what has waited too long, by arrival."""
        if len(heads) < 2:
            return heads

        def rank(task: IOTask) -> tuple[int, float, int]:
            aged = task.ready_since + self.ageing <= moment.now
            return -task.priority, -inf if aged else -moment.bandwidth(task), task.serial

        return sorted(heads, key=rank)


class Fcfs(IOPolicy):
    """First come, first served; what does not fit is passed over, so it blocks nobody.

    Weakness: early tasks of little bandwidth fill the fast layers before those that need them, and a task of large
    bandwidth starves as long as smaller ones keep the device busy. Age changes nothing: the oldest is first already.
    """

    def choose(self, heads: Sequence[IOTask], moment: Moment) -> Placement | None:
        for task in heads if len(heads) == 1 else sorted(heads, key=lambda task: (-task.priority, task.serial)):
            placement = moment.place(task)
            if placement is not None:
                return placement
        return None


class Priority(IOPolicy):
    """Larger bandwidth first, and strictly: when one cannot be placed, or would end sooner by waiting for a higher
    layer, all behind it wait too. Only if nothing runs is it passed over: then no end is what it waits for.

    Weakness: bandwidth and executors idle while the first in line waits. Tasks of little bandwidth starve as long as
    larger ones keep coming, unless ageing is on; an aged task that does not fit then holds everybody back in turn.
    """

    ages = True
    maximizes = True

    def choose(self, heads: Sequence[IOTask], moment: Moment) -> Placement | None:
        for task in self._by_bandwidth(heads, moment):
            placement = moment.place(task)
            if placement is not None:
                return None if moment.can_maximize(placement) else placement
            if moment.waits_for_storage(task) and moment.anything_runs():
                return None
        return None


class Backfilling(IOPolicy):
    """Larger bandwidth first. The first that cannot be placed becomes the *waiting task*. From then on it is the first
    in line, and others start only if they will have ended when it could start at the earliest.

    That earliest start is when the first running attempt ends, whether or not this frees enough; it is estimated once
    a round. A task of larger user priority than the waiting one does not wait for it, and takes its part if need be.

    Weakness: it is as good as the estimates, and until the times of all that runs are known nothing is backfilled.
    What is backfilled fills the fast layers' capacity, so without flushing larger tasks end up on slow ones. Tasks
    that are long, or of unknown length, starve as long as some task of larger bandwidth waits, unless ageing is on.
    """

    ages = True

    def __init__(self, ageing: float = inf) -> None:
        super().__init__(ageing)
        self._waiting: IOTask | None = None
        #: seconds to its earliest start, as estimated at ``_estimated``; ``None``: to be estimated
        self._seconds: float | None = None
        self._estimated = -inf

    def choose(self, heads: Sequence[IOTask], moment: Moment) -> Placement | None:
        if self._waiting is not None and not moment.waits_for_storage(self._waiting):
            self._waiting = None
        for task in self._in_line(heads, moment):
            placement = moment.place(task)
            bound = self._waiting is not None and task.priority <= self._waiting.priority
            if placement is not None:
                if not bound or task is self._waiting or self._ends_in_time(placement, moment):
                    return placement
            elif not bound and moment.waits_for_storage(task):
                self._waiting, self._seconds = task, None
        return None

    def _in_line(self, heads: Sequence[IOTask], moment: Moment) -> Sequence[IOTask]:
        waiting = self._waiting
        if waiting is None:
            return self._by_bandwidth(heads, moment)
        # It need not be a head: one that is alike may have come before it meanwhile.
        others = self._by_bandwidth([head for head in heads if head is not waiting], moment)
        return sorted([waiting, *others], key=lambda task: -task.priority)

    def _ends_in_time(self, placement: Placement, moment: Moment) -> bool:
        """Whether a task ends before the waiting one could start. If nothing runs, no end is what that waits for."""
        if self._seconds is None or self._estimated != moment.now:
            self._seconds, self._estimated = moment.seconds_to_next_end(), moment.now
        return self._seconds == inf or moment.duration(placement) < self._seconds

    def removed(self, task: IOTask) -> None:
        if task is self._waiting:
            self._waiting = None

    def end_round(self) -> None:
        self._seconds = None


_policies: dict[str, Callable[[float], IOPolicy]] = {"backfilling": Backfilling, "fcfs": Fcfs, "priority": Priority}
_other_spellings = {
    "fcfsscheduler": "fcfs",
    "iopriorityscheduler": "priority",
    "iobackfillingscheduler": "backfilling",
}


def io_scheduler_names() -> list[str]:
    return sorted(_policies)


def io_policy(name: str, ageing: float | None = None) -> IOPolicy:
    """A new I/O scheduler of that name, also as PyCOMPSs spells it; ``ageing`` in seconds, ``None`` for never."""
    wanted = name.casefold()
    make = _policies.get(_other_spellings.get(wanted, wanted))
    if make is None:
        known = ", ".join(io_scheduler_names())
        raise ConfigError(f"unknown I/O scheduler {name!r}: known are {known}{did_you_mean(wanted, _policies)}")
    return make(inf if ageing is None else ageing)
