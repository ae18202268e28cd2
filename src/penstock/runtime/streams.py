"""Streams: what a call gives whose task has any number of outputs, ``@task(returns=...)``.

    worker ── OutputReady ──▶ Driver ── StreamSource.take: a version, a future ──▶ engine
    program ── next(stream) ──▶ the next future, as soon as its value is there

The source is the driver's side. It keeps the futures that the program has not taken yet; those taken belong to the
program, so that the values of a long stream go as they are used. The version that the call itself makes says that the
stream is over. Holding a producer back that is too far ahead is here too.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec.structs import replace

from penstock.data.slots import current
from penstock.errors import PenstockError
from penstock.model.data import Slot, Value, VersionId
from penstock.model.events import OutputReady, Provided
from penstock.model.tasks import Failure, TaskCall
from penstock.runtime.bundles import bundle
from penstock.runtime.futures import Future, StreamedFuture

if TYPE_CHECKING:
    from penstock.engine.state import State
    from penstock.runtime.runtime import Runtime

__all__ = ["Stream", "StreamSource", "open_stream"]

T = TypeVar("T")


class StreamSource:
    """A stream as the driver sees it; waits for the version that says that it is over."""

    def __init__(self, runtime: Runtime, call: TaskCall, ahead: int) -> None:
        self.runtime = runtime
        self.task = call.task
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
        future: StreamedFuture[Any] = StreamedFuture(runtime, self.task, version)
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
        return True

    def announce(self) -> None:
        """Wake those who wait, and give a task that wants all of the stream what it waits for."""
        with self.condition:
            self.condition.notify_all()
        driver = self.runtime.driver
        if self.outcome is not None and self._promised:
            with driver.lock:
                self._keep_promise()
            driver.after()

    def promise(self, parts: list[StreamedFuture[Any]]) -> None:
        """A task wants all of the stream: it waits for a version that is provided when the stream is over."""
        driver = self.runtime.driver
        self.whole = self.runtime.new_version()
        self._parts = parts
        self._promised = True
        for part in parts:
            part.fixed = True
        driver.handle(Provided(self.whole, None))
        if self.outcome is not None:
            self._keep_promise()

    def _keep_promise(self) -> None:
        if self._promised:
            self._promised = False
            parts, self._parts = self._parts, []
            for part in parts:
                part.fixed = False
            self.runtime.driver.handle(Provided(self.whole, self._all(parts)))

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

        ``more``: so many that it should not, because nobody else does anything.
        """
        for version in [version for version, future in self._unused.items() if self._is_used(state, version, future())]:
            del self._unused[version]
            self._read.discard(version)
        upto = max(self.count - len(self._unused) + self.ahead, self.count + more)
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
                if not self.condition.wait_for(reached, timeout):
                    raise TimeoutError(f"the stream of task {self.task} is not as far after {timeout:g} s")
        finally:
            self.awaited.remove(reached)


class Stream(Iterator[Future[T]], Generic[T]):
    """The outputs of a task that has any number of them, in order, each as soon as it is there.

    A stream is gone through once, like a generator: the loop takes the futures, and a value lives as long as its
    future does or a task reads it. ``stream[i]`` is a future that was not taken, or that the program still has.
    """

    def __init__(self, source: StreamSource) -> None:
        self._source = source
        self._taken = 0
        self._lock = threading.Lock()
        self._known: weakref.WeakValueDictionary[int, Future[T]] = weakref.WeakValueDictionary()

    def __iter__(self) -> Stream[T]:
        return self

    def __next__(self) -> Future[T]:
        """The next output; waits for it. Raises what the task raised when there will be none."""
        future = self._next(None)
        if future is None:
            raise StopIteration
        return future

    def _next(self, timeout: float | None) -> Future[T] | None:
        source = self._source
        while True:
            with self._lock:
                if source.queue:
                    future = source.queue.popleft()
                    self._known[self._taken] = future
                    self._taken += 1
                    return future
            if source.outcome is not None:
                if source.queue:
                    continue
                self._raise_failure()
                return None
            source.wait(lambda: bool(source.queue) or source.outcome is not None, timeout)

    def __aiter__(self) -> AsyncIterator[Future[T]]:
        return _Outputs(self)

    def __len__(self) -> int:
        if self._source.outcome is None:
            raise TypeError(f"{self!r} has no length yet: its task goes on")
        return self._source.count

    def __bool__(self) -> bool:
        raise PenstockError(f"{self!r} has no truth value: loop over it, or use wait_on(it)")

    def __getitem__(self, index: int) -> Future[T]:
        """One output; waits for it."""
        source = self._source
        if not isinstance(index, int):
            raise TypeError(f"an output of a stream has a number, not {index!r:.60}; list(stream) has slices too")
        if index < 0:
            source.wait(lambda: source.outcome is not None)
            index += source.count
        if index >= source.count and source.outcome is None:
            source.wait(lambda: source.count > index or source.outcome is not None)
        if not 0 <= index < source.count:
            self._raise_failure()
            raise IndexError(f"{self!r} has {source.count} outputs, and no output {index}")
        future: Future[T] = self._present(index)
        return future

    def _present(self, index: int) -> Any:
        """An output that has come."""
        future = self._at(index)
        if future is None:
            raise PenstockError(
                f"output {index} of {self!r} was taken and let go, so its value is gone; keep its future, or all of "
                f"them: list(stream)"
            )
        return future

    def _at(self, index: int) -> Future[T] | None:
        with self._lock:
            if index >= self._taken:
                return self._source.queue[index - self._taken]
            return self._known.get(index)

    def futures(self) -> list[Future[T]]:
        """All outputs; waits for the end of the task. They are not taken by this."""
        source = self._source
        if source.outcome is None:
            source.wait(lambda: source.outcome is not None)
        self._raise_failure()
        return [self[index] for index in range(source.count)]

    def result(self, timeout: float | None = None) -> list[T]:
        """All values; waits for them. Raises what the task raised."""
        source = self._source
        if source.outcome is None:
            source.wait(lambda: source.outcome is not None, timeout)
        return [future.result() for future in self.futures()]

    def done(self) -> bool:
        """Whether the task is over."""
        return self._source.outcome is not None

    def cancel(self) -> bool:
        """Cancel the task if it has not started; ``penstock.cancel`` also ends one that runs."""
        return self.runtime.cancel(self.task_id, kill=False)

    @property
    def runtime(self) -> Runtime:
        """The run it belongs to."""
        return self._source.runtime

    @property
    def task_id(self) -> int:
        """Number of the task that makes it."""
        return self._source.task

    def look(self) -> None:
        """If it has failed, the program knows."""
        if isinstance(self._source.outcome, Failure):
            self.runtime.observe(self._source.outcome)

    def _raise_failure(self) -> None:
        if isinstance(self._source.outcome, Failure):
            raise self.runtime.observe(self._source.outcome)

    # --- as an argument of tasks --------------------------------------------------------------------------------

    def source(self) -> tuple[VersionId, None]:
        """The version that holds all outputs as a list, promised until the task is over."""
        source, driver = self._source, self.runtime.driver
        with driver.lock:
            if not source.whole:
                known = 0 if isinstance(source.outcome, Failure) else source.count
                source.promise([self._present(index) for index in range(known)])
        driver.after()
        return source.whole, None

    def __reduce__(self) -> tuple[Any, ...]:
        if current.outgoing is None:
            raise TypeError(f"{self!r} cannot be pickled: pass it to a task, or pickle its result()")
        if self._source.whole or self._source.outcome is None or isinstance(self._source.outcome, Failure):
            return current.outgoing(self)
        return _listed, tuple(self.futures())

    def __repr__(self) -> str:
        source = self._source
        state = "going on" if source.outcome is None else "failed" if isinstance(source.outcome, Failure) else "over"
        return f"<Stream of task {source.task}: {source.count} outputs, {state}>"

    def __del__(self) -> None:
        source = getattr(self, "_source", None)
        if source is not None:
            source.wanted = False
            source.queue.clear()
            source.runtime.let_go(source.whole, None)


def open_stream(runtime: Runtime, call: TaskCall, ahead: int) -> Stream[Any]:
    """What a call gives whose task has any number of outputs; to be made before the call is submitted."""
    source = StreamSource(runtime, call, ahead)
    with runtime.driver.lock:
        runtime.driver.streams.expect(source)
    return Stream(source)


def _listed(*values: Any) -> list[Any]:
    return list(values)


class _Outputs(Generic[T]):
    """``async for`` over a stream: each wait is in a thread of its own, so that the event loop goes on."""

    def __init__(self, stream: Stream[T]) -> None:
        self._stream = stream

    def __aiter__(self) -> _Outputs[T]:
        return self

    async def __anext__(self) -> Future[T]:
        import asyncio

        future = await asyncio.to_thread(self._stream._next, None)
        if future is None:
            raise StopAsyncIteration
        return future
