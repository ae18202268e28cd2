"""Says so when nothing moves although tasks are pending: who waits for what, on standard error and in the log.

Says so too when a worker process has ended and the fork server, which is stopped perhaps, does not tell: to the engine
its task still runs. Asked by the control thread whenever it goes to sleep; in a program that is idle, or whose tasks
run, there is nothing to ask for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from penstock.engine.engine import Engine
from penstock.executors.saying import say
from penstock.model.waits import END, START, Wait
from penstock.runtime.recorder import Recorder
from penstock.units import format_duration

__all__ = ["StallWatch"]

#: waits that a message names
_NAMED = 5


class _Lasting:
    """Something that is told of once it has lasted for some time, then after twice that time, and so on."""

    def __init__(self) -> None:
        #: since when it is as it is, and after how long it is told next; None: it is not
        self.since: float | None = None
        self._mark: Any = None
        self._next = 0.0

    def is_due(self, mark: Any, limit: float, now: float) -> bool:
        """Whether to tell of it now; it begins anew when the mark is another one."""
        if self.since is None or mark != self._mark:
            self.since, self._mark, self._next = now, mark, limit
        if now < self.since + self._next:
            return False
        self._next *= 2
        return True

    def next_look(self) -> float | None:
        """When it will be due, should it last."""
        return None if self.since is None else self.since + self._next


class StallWatch:
    """Used under the driver's lock."""

    def __init__(
        self,
        engine: Engine,
        recorder: Recorder,
        limit: float | None,
        only_starts: Callable[[], bool],
        unheard: Callable[[], tuple[frozenset[int], int]],
    ) -> None:
        self._engine = engine
        self._recorder = recorder
        #: seconds without anything happening after which it is told; None: never
        self._limit = limit
        #: whether all that was launched waits for processes that have not started
        self._only_starts = only_starts
        #: lanes whose process has ended without the fork server saying so, and the process of that
        self._unheard = unheard
        self._stall = _Lasting()
        self._silence = _Lasting()

    def next_look(self, now: float) -> float | None:
        """Tell of what has lasted; gives when to ask again although nothing happens, None if that is never."""
        if self._limit is None:
            return None
        self._look_for_stall(self._limit, now)
        self._look_for_silence(self._limit, now)
        if self._stall.since is None and self._silence.since is None:
            return None
        dues = (self._stall.next_look(), self._silence.next_look())
        return min((due for due in dues if due is not None), default=None)

    def _look_for_stall(self, limit: float, now: float) -> None:
        state = self._engine.state
        runs = bool(state.ledger.holders) and not self._only_starts()
        if runs or len(state.tasks) <= len(state.pauses) or state.draining:
            self._stall.since = None
            return
        if self._stall.is_due((state.serials, state.done + state.failed + state.cancelled), limit, now):
            launched = Counter(task.call.spec.name for task in state.tasks.values() if task.lane is not None)
            waits = [Wait(name, count, START) for name, count in launched.most_common()] + self._engine.waits()
            self._tell("nothing has moved", self._stall, waits, now)

    def _look_for_silence(self, limit: float, now: float) -> None:
        lanes, server = self._unheard()
        if not lanes:
            self._silence.since = None
            return
        if self._silence.is_due(lanes, limit, now):
            tasks = self._engine.state.tasks.values()
            names = Counter(task.call.spec.name for task in tasks if task.lane is not None and task.lane.index in lanes)
            holder = f"process {server}; if it is stopped, kill -CONT {server}"
            waits = [Wait(name, count, END, holder) for name, count in names.most_common()]
            self._tell("nobody has told of the end of a process", self._silence, waits, now)

    def _tell(self, what: str, lasting: _Lasting, waits: list[Wait], now: float) -> None:
        seconds = now - (lasting.since or now)
        self._recorder.stuck(seconds, waits, now)
        say(f"penstock: {what} for {format_duration(seconds)}: {_sentence(waits)}\n")


def _sentence(waits: list[Wait]) -> str:
    words = [wait.words for wait in waits[:_NAMED]]
    if len(waits) > _NAMED:
        words.append(f"and {sum(wait.count for wait in waits[_NAMED:])} others for other reasons")
    return "; ".join(words)
