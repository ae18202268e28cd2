"""One stream as the driver sees it: each output that comes gets a version and a future, for the program to take.

The futures that the program has not taken are kept here; those taken belong to the program, so that the values of a
long stream go as they are used. The version that the call itself makes says that the stream is over. Holding a producer
back that is too far ahead is here too; ``stream_sources.py`` says when.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from penstock.alert_waits import until
from penstock.model.data import Slot, Value, VersionId
from penstock.model.events import OutputReady, Provided
from penstock.model.tasks import Failure, TaskCall
from penstock.runtime.bundles import bundle
from penstock.runtime.futures import StreamedFuture

if TYPE_CHECKING:
    from penstock.engine.state import State
    from penstock.runtime.runtime import Runtime

__all__ = ["StreamSource"]

#: outputs that a producer may be ahead by when somebody waits for all of its stream, whatever its limit
_FREELY = 1024


class StreamSource:
    """A stream as the driver sees it; waits for the version that says that it is over."""

    def __init__(self, runtime: Runtime, call: TaskCall, ahead: int) -> None:
        self.runtime = runtime
        self.task = call.task
        self.name = call.spec.name
        self.ahead = ahead
        #: the version that says that it is over
        self.end = call.writes[0]
        #: number of its first output among all that the task makes
        self.first = len(call.writes)
        #: outputs so far
        self.count = 0
        #: those that the program has not taken
        self.queue: deque[StreamedFuture[Any]] = deque()
        #: why it ended
        self.outcome: Slot | Failure | None = None
        #: the program can still ask for outputs
        self.wanted = True
        self.condition = threading.Condition()
        #: what threads of the program wait for
        self.awaited: list[Callable[[], bool]] = []
        #: the version that holds all of it, if a task asked for that before the end, and its parts
        self.whole: VersionId = 0
        self._parts: list[StreamedFuture[Any]] = []
        #: it is still to be provided
        self._promised = False
        #: outputs that nobody has used, by version
        self._unused: dict[VersionId, weakref.ref[StreamedFuture[Any]]] = {}
        #: those of them that a task was seen to read
        self._read: set[VersionId] = set()
        self._granted = ahead
        self._attempt = 1
        #: threads of the program that wait for the end, and the outputs that must come for one that waits for the last
        self._awaiting_end = 0
        self._needed = 0

    # --- told by the driver, under its lock ---------------------------------------------------------------------

    def take(self, event: OutputReady) -> OutputReady:
        """An output has come: give it a version and a future, unless an earlier attempt had handed it over."""
        if event.attempt != self._attempt:
            self._attempt = event.attempt
            self._granted = self.ahead  # that is all that the new attempt knows
        if event.index - self.first < self.count:
            return event
        runtime = self.runtime
        version = runtime.new_version()
        future: StreamedFuture[Any] = StreamedFuture(
            runtime, self.task, version, self.name, self._outdate, self.keep_promise
        )
        runtime.driver.waiters[version] = future
        self.count += 1
        if self.ahead:
            self._unused[version] = weakref.ref(future)
        if self._promised:
            future.fixed = True
            self._parts.append(future)
        if self.wanted:
            self.queue.append(future)
            if self.awaited:
                runtime.driver.announce_soon(self)
        return replace(event, version=version)

    def settle(self, outcome: Slot | Failure) -> bool:
        """The task is over; outputs that come now are of no attempt."""
        self.outcome = outcome
        self.runtime.driver.streams.forget(self.task)
        self.runtime.let_go(self.end, None)  # nobody reads it: a task that wants all of the stream waits for another
        return True

    def announce(self) -> None:
        """Give a task that wants all of the stream what it waits for, and wake those who wait."""
        self.keep_promise()
        with self.condition:
            self.condition.notify_all()

    def promise(self, parts: list[StreamedFuture[Any]]) -> None:
        """A task wants all of the stream: it waits for a version that is provided when the stream is over."""
        driver = self.runtime.driver
        self.whole = self.runtime.new_version()
        self._parts = parts
        self._promised = True
        for part in parts:
            part.fixed = True
        driver.handle(Provided(self.whole, None))

    def keep_promise(self, _: object = None) -> None:
        """Provide all of the stream, if it is over and no task is left that updates a part; not under the lock."""
        if self.outcome is None or not self._promised:
            return
        driver = self.runtime.driver
        with driver.lock:
            pending = next((part for part in self._parts if part.outcome is None), None)
            if pending is None and self._promised:
                self._provide()
        if pending is None:
            driver.after()
        else:
            pending.add_done_callback(self.keep_promise)

    def _provide(self) -> None:
        self._promised = False
        parts, self._parts = self._parts, []
        for part in parts:
            part.fixed = False
        self.runtime.driver.handle(Provided(self.whole, self._all(parts)))

    def _outdate(self) -> None:
        """A task updates a part: what was provided is no longer what the parts are."""
        if self.whole and not self._promised:
            self.runtime.let_go(self.whole, None)
            self.whole = 0

    def _all(self, parts: list[StreamedFuture[Any]]) -> Value | Failure:
        outcomes = [part.outcome for part in parts]
        for outcome in (self.outcome, *outcomes):
            if isinstance(outcome, Failure):
                return outcome
        return bundle([outcome for outcome in outcomes if type(outcome) is Value])

    # --- holding the producer back ------------------------------------------------------------------------------

    @property
    def held(self) -> bool:
        """Whether the producer waits, or soon will, for outputs to be used."""
        return self.count >= self._granted

    def grant(self, state: State, more: int) -> int:
        """How many outputs the producer may hand over in all, if that has changed; else 0.

        ``more``: so many that it should not, because nobody else does anything. Whoever waits for all of the stream
        uses nothing before its end, so there is no limit then.
        """
        if self._promised or self._awaiting_end:
            if self._granted - self.count >= _FREELY // 2:
                return 0
            self._granted = self.count + _FREELY
            return self._granted
        for version in [version for version, future in self._unused.items() if self._is_used(state, version, future())]:
            del self._unused[version]
            self._read.discard(version)
        upto = max(self.count - len(self._unused) + self.ahead, self.count + more, self._needed)
        if upto <= self._granted:
            return 0
        self._granted = upto
        return upto

    def _is_used(self, state: State, version: VersionId, future: StreamedFuture[Any] | None) -> bool:
        """Whether an output is gone, or was read by the program, or by tasks of which none is left.

        This is asked after every event, so a task that reads it is seen.
        """
        record = state.versions.get(version)
        if record is None:
            return True
        if record.uses:
            self._read.add(version)
            return False
        return version in self._read or (future is not None and future.loaded)

    # --- asked by the program -----------------------------------------------------------------------------------

    def wait_end(self, timeout: float | None = None) -> None:
        """Block until the task is over."""
        if self.outcome is not None:
            return
        self._awaiting_end += 1
        try:
            self.wait(lambda: self.outcome is not None, timeout)
        finally:
            self._awaiting_end -= 1

    def wait_output(self, index: int) -> None:
        """Block until there is this output, or will not be."""
        self._needed = max(self._needed, index + 1)
        self.wait(lambda: self.count > index or self.outcome is not None)

    def wait(self, reached: Callable[[], bool], timeout: float | None = None) -> None:
        """Block until a condition on this source holds; it is looked at after every output and at the end."""
        runtime = self.runtime
        runtime.before_wait()
        driver = runtime.driver
        self.awaited.append(reached)
        try:
            if driver.look(reached, timeout) or driver.serve_until(reached, timeout):
                return
            with driver.awaiting(), self.condition:
                if not until(self.condition, reached, timeout):
                    raise TimeoutError(f"the stream of task {self.task} is not as far after {timeout:g} s")
        finally:
            self.awaited.remove(reached)
