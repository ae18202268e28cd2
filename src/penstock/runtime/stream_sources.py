"""The streams that are going on, and which of their producers are held back.

A producer with a limit (``ahead=8``) may hand over so many outputs that nobody has used yet, then it waits. It holds
its computing units meanwhile, and those who would use the outputs may need them: so when nothing runs but producers
that wait, and the program waits too, some outputs are let through. With one worker that soon makes the limit no limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.executors.node import NodeExecutor
from penstock.model.events import OutputReady

if TYPE_CHECKING:
    from penstock.runtime.driver import Driver
    from penstock.runtime.stream_source import StreamSource

__all__ = ["StreamSources"]

#: seconds between two looks at whether outputs of producers that are held back were used
_LOOK = 0.01
#: seconds in which a program that waits would have gone on, had anything happened that it waits for
_STALLED = 0.03
#: seconds without anything but producers that wait, after which the program is taken to wait in a way we do not know of
_PATIENCE = 2.0
#: outputs that are let through at once, at most
_MOST = 1024


class StreamSources:
    """Used under the driver's lock."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._sources: dict[int, StreamSource] = {}
        #: those that may be held back
        self.limited: dict[int, StreamSource] = {}
        #: since when nothing runs but producers that wait
        self._stalled: float | None = None
        #: how many outputs are let through the next time; the longer nothing else runs, the more
        self._extra = 1

    def expect(self, source: StreamSource) -> None:
        """A call is about to be made that gives a stream."""
        self._driver.waiters[source.end] = source
        self._sources[source.task] = source
        if source.ahead and isinstance(self._driver.executor, NodeExecutor):
            self.limited[source.task] = source

    def take(self, event: OutputReady) -> OutputReady:
        """An output was handed over early; if it is one of a stream, it gets a version."""
        source = self._sources.get(event.task)
        return event if source is None or event.index < source.first else source.take(event)

    def forget(self, task: int) -> None:
        """A task is over."""
        self._sources.pop(task, None)
        self.limited.pop(task, None)

    def regulate(self, now: float) -> None:
        """Let producers go on whose outputs were used."""
        state = self._driver.engine.state
        more = self._more(now)
        for task, source in self.limited.items():
            record = state.tasks.get(task)
            if record is None or record.lane is None or record.lane.queue[0] is not record:
                continue
            upto = source.grant(state, more if source.held else 0)
            if upto:
                self._stalled = None
                self._driver.executor.grant(record.lane.index, task, upto)  # type: ignore[union-attr]

    def _more(self, now: float) -> int:
        """How many outputs are let through although none was used, because nothing else happens."""
        running = self._driver.engine.state.ledger.holders
        if not all(task in self.limited for task in running):
            self._stalled, self._extra = None, 1
            return 0
        if not running or not all(self.limited[task].held for task in running) or self._is_about_to_go_on():
            self._stalled = None
            return 0
        if self._stalled is None:
            self._stalled = now
        if now - self._stalled < (_STALLED if self._driver.is_awaited else _PATIENCE):
            return 0
        more, self._extra = self._extra, min(2 * self._extra, _MOST)
        return more

    def _is_about_to_go_on(self) -> bool:
        """Whether a thread that waits for a stream has what it waits for, and was not yet woken."""
        return any(reached() for source in self._sources.values() for reached in list(source.awaited))

    def next_look(self, now: float) -> float | None:
        """When to look again although nothing happened: that the program has used a value is told by nobody."""
        limited = self.limited
        return now + _LOOK if limited and any(source.held for source in limited.values()) else None
