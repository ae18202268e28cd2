"""Streams: what a call gives whose task has any number of outputs, ``@task(returns=...)``.

    worker ── OutputReady ──▶ Driver ── StreamSource.take: a version, a future ──▶ engine
    program ── next(stream) ──▶ the next future, as soon as its value is there

This is the program's side; ``stream_source.py`` is the driver's.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from penstock.data.slots import current
from penstock.data.stand_ins import PromisedSequence
from penstock.errors import NotAValue, PenstockError
from penstock.model.data import VersionId
from penstock.model.tasks import Failure, TaskCall
from penstock.runtime.futures import Future
from penstock.runtime.stream_source import StreamSource

if TYPE_CHECKING:
    from penstock.runtime.runtime import Runtime

__all__ = ["Stream", "open_stream"]

T = TypeVar("T")


class Stream(PromisedSequence, Iterator[Future[T]], Generic[T]):
    """The outputs of a task that has any number of them, in order, each as soon as it is there.

    A stream is gone through once, like a generator: the loop takes the futures, and a value lives as long as its
    future does or a task reads it. ``stream[i]`` is a future that was not taken, or that the program still has.
    """

    def __init__(self, source: StreamSource) -> None:
        self._source = source
        self._taken = 0
        #: whether who goes through it has been told that it failed: a generator raises once, and is over
        self._raised = False
        self._lock = threading.RLock()  # a finaliser may use the stream while this very thread has it
        self._known: weakref.WeakValueDictionary[int, Future[T]] = weakref.WeakValueDictionary()

    def __iter__(self) -> Stream[T]:
        return self

    def __next__(self) -> Future[T]:
        """The next output; waits for it. Raises what the task raised when there will be none, and once."""
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
                if not self._raised:
                    self._raised = True
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
        raise NotAValue(f"{self!r} has no truth value: loop over it, or use wait_on(it)")

    def __getitem__(self, index: int) -> Future[T]:
        """One output; waits for it."""
        source = self._source
        if not isinstance(index, int):
            raise TypeError(f"an output of a stream has a number, not {index!r:.60}; list(stream) has slices too")
        if index < 0:
            source.wait_end()
            index += source.count
        if index >= source.count and source.outcome is None:
            source.wait_output(index)
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
        source.wait_end()
        self._raise_failure()
        return [self[index] for index in range(source.count)]

    def result(self, timeout: float | None = None) -> list[T]:
        """All values; waits for them. Raises what the task raised."""
        self._source.wait_end(timeout)
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
            whole = source.whole
        driver.after()
        source.keep_promise()
        return whole, None

    def __copy__(self) -> NoReturn:
        raise TypeError(f"{self!r} cannot be copied: it is gone through once; copy list(stream), or its result()")

    def __deepcopy__(self, memo: object) -> NoReturn:
        self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        if current.outgoing is None:
            raise TypeError(f"{self!r} cannot be pickled: pass it to a task, or pickle its result()")
        if self._source.whole or self._source.outcome is None or isinstance(self._source.outcome, Failure):
            return current.outgoing(self)
        return _listed, tuple(self.futures())

    def __repr__(self) -> str:
        source = self._source
        state = "going on" if source.outcome is None else "failed" if isinstance(source.outcome, Failure) else "over"
        return f"<Stream of task {source.name}#{source.task}: {source.count} outputs, {state}>"

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
