"""Futures: what a task call gives at once, and where its value will be. It is long because a future answers to the
standard library, to the driver, to tasks that update it and to the program, and what each sees must agree.

A ``Future`` is a ``concurrent.futures.Future``: the standard library's ``wait`` and ``as_completed`` accept it, and it
can be awaited. There may be a million of them, so the parts that only a waiting thread needs (a condition, a list
of waiters) are made when somebody waits.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from penstock.alert_waits import LOOK, until, until_set
from penstock.data.limits import behind
from penstock.data.segments import Access, SegmentLost, Segments
from penstock.data.serializer import load
from penstock.data.slots import current
from penstock.data.stand_ins import Promised
from penstock.errors import CallError, NotAValue, PenstockError, SerializationError, StorageError
from penstock.model.data import FileRef, Slot, Value, VersionId, in_segments
from penstock.model.tasks import Failure, FailureKind
from penstock.own_threads import as_the_program
from penstock.runtime.recovery import read
from penstock.runtime.reverting import Placed, takes_back

if TYPE_CHECKING:
    from penstock.runtime.driver import Driver
    from penstock.runtime.runtime import Runtime

__all__ = ["Future", "PlacedFuture", "StreamedFuture", "as_completed", "await_futures", "wait"]

T = TypeVar("T")

UNLOADED = object()
_PENDING = "PENDING"
_FINISHED = "FINISHED"
_CANCELLED = "CANCELLED_AND_NOTIFIED"
#: seconds between two looks for each future that is looked at, which takes some microseconds
_ASKED = 0.002
_making = threading.Lock()


class Future(Promised, concurrent.futures.Future[T], Generic[T]):
    """The value of a task's output, now or later."""

    __slots__ = (
        *("_callbacks", "_cond", "_name", "_outcome", "_runtime", "_state", "_task", "_value", "_version", "_waiting"),
        "loaded_at",
    )

    _runtime: Runtime
    _outcome: Slot | Failure | None
    #: when the program asked for the value, as ``OwnResults`` counts; there is none before that
    loaded_at: int

    def __init__(self, runtime: Runtime, task: int, version: VersionId, name: str = "") -> None:
        # The base class is not initialised: it would make a lock and two lists for each of a million futures.
        self._runtime = runtime
        self._task = task
        #: of the function
        self._name = name
        self._version = version
        self._state = _PENDING
        self._outcome = None
        self._value: Any = UNLOADED
        self._cond: threading.Condition | None = None
        self._waiting: list[Any] | None = None
        self._callbacks: list[Callable[[Any], object]] | None = None

    # What the standard library's wait() and as_completed() use of a future.

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        if self._cond is None:
            made = threading.Condition()  # not under the lock: where objects are made, finalisers run that may wait too
            with _making:
                if self._cond is None:
                    self._cond = made
        return self._cond

    @property
    def _waiters(self) -> list[Any]:  # type: ignore[override]
        if self._waiting is None:
            self._waiting = []
        return self._waiting

    # --- told by the driver -------------------------------------------------------------------------------------

    def settle(self, outcome: Slot | Failure) -> bool:
        """Take the outcome; True if somebody is to be told."""
        self._outcome = outcome
        cancelled = type(outcome) is Failure and outcome.kind is FailureKind.CANCELLED
        self._state = _CANCELLED if cancelled else _FINISHED
        if type(outcome) is Value and (outcome.buffers or type(outcome.data) is not bytes) and in_segments(outcome):
            self._runtime.stored.add(self)
        # Whoever makes the condition after this line looks at the state afterwards; nobody is missed.
        return self._cond is not None or self._callbacks is not None

    def announce(self) -> None:
        """Wake those who wait and call those who asked for it."""
        if self._cond is not None:
            with self._cond:
                for waiter in self._waiting or ():
                    if self._state == _CANCELLED:
                        waiter.add_cancelled(self)
                    elif type(self._outcome) is Failure:
                        waiter.add_exception(self)
                    else:
                        waiter.add_result(self)
                self._cond.notify_all()
                callbacks, self._callbacks = self._callbacks, None
        else:
            callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            self._call_back(callback)

    def _call_back(self, callback: Callable[[Any], object]) -> None:
        try:
            as_the_program(callback, self)
        except Exception:
            import logging

            logging.getLogger("penstock").exception("a callback of %r raised", self)

    def keep(self) -> None:
        """The run is over: map the value while its segment is still there."""
        if self._value is UNLOADED:
            with contextlib.suppress(Exception):  # whoever asks for the value will be told
                self._load()

    def renew(self, task: int, version: VersionId, name: str) -> VersionId:
        """A task updates the value this future stands for: it is pending again; gives the version it stood for."""
        old, self._version, self._task, self._name = self._version, version, task, name
        self._state = _PENDING
        self._outcome = None
        self._value = UNLOADED
        return old

    def settle_with(self, value: Any) -> None:
        """It stands for a value that the program has."""
        self.loaded_at = self._runtime.own_results.now
        self._state = _FINISHED
        self._value = value

    @property
    def outcome(self) -> Slot | Failure | None:
        """Its value as it lies in the store, or why there is none."""
        return self._outcome

    @property
    def version(self) -> VersionId:
        """The version this future stands for."""
        return self._version

    def source(self) -> tuple[VersionId, int | None]:
        """The version to read for its value, and the position in it if that version is a piece of a map."""
        return self._version, None

    @property
    def known(self) -> Any:
        """The value as the program has it, which it may have given to tasks since; None if it has not asked for it."""
        return None if self._value is UNLOADED else self._value

    @property
    def runtime(self) -> Runtime:
        """The run it belongs to."""
        return self._runtime

    @property
    def task_id(self) -> int:
        """Number of the task that makes it."""
        return self._task

    @property
    def name(self) -> str:
        """Name of that task's function."""
        return self._name

    @property
    def label(self) -> str:
        """How messages call the task."""
        return f"task {self._name}#{self._task}" if self._name else f"task {self._task}"

    # --- concurrent.futures -------------------------------------------------------------------------------------

    def cancel(self) -> bool:
        """Cancel the task if it has not started; ``penstock.cancel`` also ends one that runs."""
        return self._state == _CANCELLED or self._runtime.cancel(self._task, kill=False)

    def cancelled(self) -> bool:
        return self._state == _CANCELLED

    def running(self) -> bool:
        return self._runtime.is_running(self._task)

    def done(self) -> bool:
        return self._state != _PENDING

    def result(self, timeout: float | None = None) -> T:
        """The value; waits for it. Raises what the task raised."""
        if self._state == _PENDING:
            self._wait(timeout)
        if self._runtime.driver.engine.naming:
            self._runtime.driver.await_names()
        if self._value is UNLOADED:
            if type(self._outcome) is Failure and takes_back(self._runtime, self):
                return self.result(timeout)
            self._load(timeout)
        elif self._runtime.identity.by_address:
            return self._runtime.newest(self._value, "result")  # type: ignore[no-any-return]
        return self._value  # type: ignore[no-any-return]

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What the task raised, or None."""
        if self._state == _PENDING:
            self._wait(timeout)
        if type(self._outcome) is not Failure:
            if self._runtime.driver.engine.naming:
                self._runtime.driver.await_names()
            return None
        if takes_back(self._runtime, self):
            return self.exception(timeout)
        error = self._error(self._outcome)
        if self._state == _CANCELLED:
            raise error
        return error

    def _error(self, failure: Failure) -> BaseException:
        """What the program is told of a failure."""
        return self._runtime.observe(failure)

    def look(self) -> None:
        """If it has failed, the program knows."""
        if isinstance(self._outcome, Failure):
            self._runtime.observe(self._outcome)

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call ``fn(future)`` when it is done, in the control thread; at once if it is done already."""
        with self._condition:
            if self._state == _PENDING:
                self._callbacks = [*(self._callbacks or ()), fn]
                return
        self._call_back(fn)

    def set_result(self, result: T) -> None:
        raise PenstockError("a task's future gets its result from the task")

    def set_exception(self, exception: BaseException | None) -> None:
        raise PenstockError("a task's future gets its exception from the task")

    def __await__(self) -> Generator[Any, Any, T]:
        import asyncio

        return asyncio.wrap_future(self).__await__()

    def _wait(self, timeout: float | None) -> None:
        self._runtime.before_wait()
        driver = self._runtime.driver
        if driver.look(self.done, timeout) or driver.serve_until(self.done, timeout):
            return
        with driver.awaiting(), self._condition:
            if not until(self._condition, lambda: self._state != _PENDING, timeout):
                raise TimeoutError(f"{self!r} is not done after {timeout:g} s")

    def _load(self, timeout: float | None = None) -> None:
        outcome, runtime = self._outcome, self._runtime
        segments = runtime.segments
        if type(outcome) is Value:
            self.loaded_at = runtime.own_results.now
            if not outcome.buffers and not outcome.states and type(outcome.data) is bytes:
                self._value = _load(outcome, segments, self)  # all of it is here: nothing can be lost, or kept
                return
            self._value = read(runtime, self._version, outcome, lambda one: _load(one, segments, self), timeout)
        elif type(outcome) is FileRef:
            self.loaded_at = runtime.own_results.now
            self._value = outcome.path
        else:
            assert type(outcome) is Failure
            raise self._error(outcome)

    # --- the rest -----------------------------------------------------------------------------------------------

    def __copy__(self) -> Self:
        """Itself: a copy of what holds futures holds the same ones."""
        self._runtime.copied.add(self)
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        if current.outgoing is None:
            raise TypeError(f"{self!r} cannot be pickled: pass it to a task, or pickle its result()")
        return current.outgoing(self)

    def __repr__(self) -> str:
        state = {_PENDING: "pending", _CANCELLED: "cancelled"}.get(self._state, "done")
        if type(self._outcome) is Failure and state == "done":
            state = "failed"
        return f"<Future of {self.label}: {state}>"

    def __bool__(self) -> bool:
        if type(self._outcome) is Failure:
            return True  # the standard library asks this of failed ones, in wait() for the first exception
        raise NotAValue(f"{self!r} has no truth value yet: use wait_on(it) or it.result()")

    def __del__(self) -> None:
        runtime = getattr(self, "_runtime", None)
        if runtime is not None:
            runtime.let_go(self._version, self._outcome)


class StreamedFuture(Future[T]):
    """An output of a stream."""

    __slots__ = ("_on_update", "_release", "fixed")

    def __init__(
        self,
        runtime: Runtime,
        task: int,
        version: VersionId,
        name: str,
        on_update: Callable[[], None],
        release: Callable[[], None],
    ) -> None:
        super().__init__(runtime, task, version, name)
        self._on_update = on_update
        self._release = release
        #: it is part of a stream that a task was given as a whole, so no task may update it before that is over
        self.fixed = False

    def release(self) -> None:
        """If its stream is over, let tasks update it: the program may know of the end before our own thread is done."""
        if self.fixed:
            self._release()

    @property
    def loaded(self) -> bool:
        """Whether the program has its value."""
        return self._value is not UNLOADED

    def renew(self, task: int, version: VersionId, name: str) -> VersionId:
        self._on_update()
        return super().renew(task, version, name)


class PlacedFuture(Placed, Future[T]):
    """Stands in a collection of the program for a number or string that a task replaces; ``wait_on`` takes it out."""

    __slots__ = ("original",)

    def be_original(self) -> None:
        self.settle_with(self.original)


def _load(outcome: Any, segments: Segments, future: Future[Any]) -> Any:
    try:
        return load(outcome, segments, Access.COPY)
    except (StorageError, SegmentLost):
        raise  # the result is there, but the object in the store that it refers to is not; or it can be had again
    except Exception as error:
        # Who waits for an object of the program has a future of no task.
        what = f"the result of {future.label}" if future._task else "what tasks have made of an object"
        if isinstance(error, OSError) and segments.holds(error.filename):
            raise PenstockError(f"{what} cannot be read from the store: {error}") from error
        if limit := behind(error):
            raise PenstockError(f"{what} cannot be loaded: {error}; {limit}") from error
        raise SerializationError(
            f"{what} cannot be loaded in the main program: {type(error).__name__}: {error}. "
            f"Defining its class in a module instead of the main program usually helps."
        ) from error


def _prepare(futures: list[Any], call: str) -> None:
    """Whoever waits for these must not wait in vain; futures of calls inside a task are done already."""
    for future in futures:
        if not isinstance(future, concurrent.futures.Future):
            what = f"{call}() takes futures, but was given {future!r:.80} among them"
            hint = f"; what holds several is given by itself, or as one of many: {call}([*a, *b])"
            raise CallError(what + hint if isinstance(future, Iterable) else what)
    for future in futures[:1]:
        if isinstance(future, Future):
            future._runtime.before_wait()


def as_completed(futures: Iterable[Future[T]], timeout: float | None = None) -> Iterator[Future[T]]:
    """The futures in the order in which they are done."""
    awaited: list[Any] = list(dict.fromkeys(futures))
    _prepare(awaited, "as_completed")
    driver = _driver_of(awaited)
    if driver is None:
        yield from concurrent.futures.as_completed(awaited, timeout)  # type: ignore[misc]
    elif awaited[0].runtime.simulated:
        from penstock.runtime.simulated_values import as_completed as in_virtual_time

        yield from in_virtual_time(awaited, timeout)
    else:
        yield from _in_real_time(awaited, timeout, driver)


def _in_real_time(futures: list[Any], timeout: float | None, driver: Driver) -> Iterator[Any]:
    """Each is noted when it is done; the driver is told only when there is something to wait for."""
    latest = None if timeout is None else time.monotonic() + timeout
    finished: deque[Any] = deque()
    news = threading.Event()

    def note(future: Any) -> None:
        finished.append(future)
        news.set()

    for future in futures:
        future.add_done_callback(note)
    for number in range(len(futures)):
        while not finished:
            left = None if latest is None else latest - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError(f"{len(futures) - number} (of {len(futures)}) futures unfinished")
            with driver.awaiting():
                until_set(news, left)
            news.clear()
        yield finished.popleft()


def _driver_of(futures: list[Any]) -> Driver | None:
    """The driver behind futures, if there is any."""
    return futures[0].runtime.driver if futures and isinstance(futures[0], Future) else None


def wait(
    futures: Iterable[Future[T]], timeout: float | None = None, return_when: str = concurrent.futures.ALL_COMPLETED
) -> Any:
    """``concurrent.futures.wait``: the sets of those done and not done."""
    futures = list(futures)
    _prepare(futures, "wait")
    driver = _driver_of(futures)
    if driver is None or futures[0].runtime.simulated:  # whose time passes in the waits of the standard library
        return concurrent.futures.wait(futures, timeout, return_when)
    with driver.awaiting():
        return await_futures(futures, timeout, return_when)


def await_futures(
    futures: list[Any], timeout: float | None = None, return_when: str = concurrent.futures.ALL_COMPLETED
) -> Any:
    """What the standard library does, without a wait that no signal ends."""
    latest = math.inf if timeout is None else time.monotonic() + timeout
    if return_when == concurrent.futures.ALL_COMPLETED:
        for future in futures:  # one after the other, which is less work than to be told of each
            if future.done():
                continue
            with future._condition:
                left = None if timeout is None else latest - time.monotonic()
                if not until(future._condition, future.done, left):
                    break
        return concurrent.futures.wait(futures, 0, return_when)
    # To ask again is work for each future.
    look = max(LOOK, len(futures) * _ASKED)
    while True:
        left = latest - time.monotonic()
        waited = concurrent.futures.wait(futures, max(0.0, min(left, look)), return_when)
        failed = return_when == concurrent.futures.FIRST_EXCEPTION and any(map(_has_failed, waited.done))
        completed = return_when == concurrent.futures.FIRST_COMPLETED and waited.done
        if failed or completed or not waited.not_done or left <= look:
            return waited


def _has_failed(future: Any) -> bool:
    if isinstance(future, Future):
        return type(future.outcome) is Failure and not future.cancelled()
    return not future.cancelled() and future.exception() is not None
