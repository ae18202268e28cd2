"""Says so when nothing moves although tasks are pending: who waits for what, on standard error and in the log.

Asked by the control thread whenever it goes to sleep; in a program that is idle, or whose tasks run, there is nothing
to ask for.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable

from penstock.engine.engine import Engine
from penstock.model.waits import START, Wait
from penstock.runtime.recorder import Recorder
from penstock.units import format_duration

__all__ = ["StallWatch"]

#: waits that a message names
_NAMED = 5


class StallWatch:
    """Used under the driver's lock."""

    def __init__(
        self, engine: Engine, recorder: Recorder, limit: float | None, only_starts: Callable[[], bool]
    ) -> None:
        self._engine = engine
        self._recorder = recorder
        #: seconds without anything happening after which it is told; None: never
        self._limit = limit
        #: whether all that was launched waits for processes that have not started
        self._only_starts = only_starts
        #: since when nothing has moved, what had happened by then, and after how long it is told next
        self._since: float | None = None
        self._mark = (0, 0)
        self._next = 0.0

    def next_look(self, now: float) -> float | None:
        """Tell of a stall that has lasted; gives when to ask again although nothing happens, None if that is never."""
        limit, state = self._limit, self._engine.state
        runs = bool(state.ledger.holders) and not self._only_starts()
        if limit is None or runs or len(state.tasks) <= len(state.pauses) or state.draining:
            self._since = None
            return None
        mark = (state.serials, state.done + state.failed + state.cancelled)
        if self._since is None or mark != self._mark:
            self._since, self._mark, self._next = now, mark, limit
        if now >= self._since + self._next:
            self._tell(now - self._since, now)
            self._next *= 2
        return self._since + self._next

    def _tell(self, seconds: float, now: float) -> None:
        launched = Counter(task.call.spec.name for task in self._engine.state.tasks.values() if task.lane is not None)
        waits = [Wait(name, count, START) for name, count in launched.most_common()] + self._engine.waits()
        self._recorder.stuck(seconds, waits, now)
        sys.stderr.write(f"penstock: nothing has moved for {format_duration(seconds)}: {_sentence(waits)}\n")
        sys.stderr.flush()


def _sentence(waits: list[Wait]) -> str:
    words = [wait.words for wait in waits[:_NAMED]]
    if len(waits) > _NAMED:
        words.append(f"and {sum(wait.count for wait in waits[_NAMED:])} others for other reasons")
    return "; ".join(words)
