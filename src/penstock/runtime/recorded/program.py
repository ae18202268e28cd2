"""What the program did between two calls, as a log tells it: its own time, and tasks that it waited for.

The log says when the program waited, not for what. A wait that ended with no task left was a barrier; any other ended
with the task that was over last. That task is awaited in the replay too, and what the program did before and after it
takes the time that it took. A call made while the program waited came from a callback of the task that ended last.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from penstock.model.data import TaskId
from penstock.runtime.recorded.run import Call, RecordedRun

__all__ = ["Steps", "steps_of"]

#: seconds of the program's own time, and numbers of tasks that it waited for, in order
Steps = list[float | TaskId]


def steps_of(run: RecordedRun) -> dict[TaskId, Steps]:
    """For each call, what the program did after the call before it."""
    reader = _Reader(run)
    steps, cursor = {}, 0.0
    for call in run.calls.values():
        steps[call.task] = list(reader.between(cursor, call.at))
        cursor = call.at
        reader.called += 1
    return steps


class _Reader:
    """Goes through the times of a run once."""

    def __init__(self, run: RecordedRun) -> None:
        self._calls: list[Call] = list(run.calls.values())
        self._ended = run.ended
        self._end_times = [call.over for call in run.ended]
        self._waits = _merged(run.waits)
        self._wait = 0
        #: calls made so far, and how many of them were awaited by the last barrier
        self.called = 0
        self._behind_barrier = 0

    def between(self, since: float, until: float) -> Iterator[float | TaskId]:
        """What happened in the program from one time to another."""
        for begin, end in self._waits_between(since, until):
            ended = bisect_right(self._end_times, end)
            if not ended or self._end_times[ended - 1] < max(begin, since):
                continue  # nothing ended meanwhile: whatever it waited for, it takes its time
            if begin > since:
                yield begin - since
            yield from self._awaited(ended)
            since = self._end_times[ended - 1]  # waking up is the program's own time
        if until > since:
            yield until - since

    def _waits_between(self, since: float, until: float) -> Iterator[tuple[float, float]]:
        waits = self._waits
        while self._wait < len(waits) and waits[self._wait][1] <= since:
            self._wait += 1
        for index in range(self._wait, len(waits)):
            begin, end = waits[index]
            if begin >= until:
                return
            yield begin, min(end, until)

    def _awaited(self, ended: int) -> Iterator[TaskId]:
        """The tasks that a wait was for which ended when this many tasks were over."""
        if ended < self.called:
            yield self._ended[ended - 1].task
            return
        for call in self._calls[self._behind_barrier : self.called]:
            yield call.task
        self._behind_barrier = self.called


def _merged(waits: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Times in which any thread waited."""
    merged: list[tuple[float, float]] = []
    for begin, end in sorted(waits):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged
