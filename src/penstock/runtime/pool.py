"""What a ``penstock.Executor`` has accepted: the futures that are not done, the run that works on them, and their end.

    Executor.submit ─▶ Pool.submit ─▶ Runtime.call ─▶ PoolFuture
    shutdown, the executor's own end, the program's end ─▶ Pool.close ─▶ all accepted work is done ─▶ Runtime.stop

It is apart from the executor so that a program can drop that one: accepted work is done all the same, and then the
processes end. As in the standard library, a process that dies breaks the pool: whatever is pending fails, and nothing
more is accepted.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import threading
from pickle import PicklingError
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec.structs import replace

from penstock.errors import ConstraintError, RuntimeStopped, SerializationError
from penstock.model.data import Slot, VersionId
from penstock.model.tasks import Failure, FailureKind
from penstock.own_threads import OwnThread
from penstock.runtime import session
from penstock.runtime.futures import Future, await_futures

if TYPE_CHECKING:
    from penstock.runtime.declaration import Declaration
    from penstock.runtime.runtime import Runtime

__all__ = ["Pool", "PoolFuture", "broken_pool"]

T = TypeVar("T")

#: what breaks a pool, in words
_BREAKING = {
    FailureKind.DIED: "a worker process ended abruptly",
    FailureKind.SETUP: "the initializer failed",
    FailureKind.UNPLACEABLE: "no worker process lives long enough to begin",
}


class Pool:
    """Accepted work. ``settings`` are those of a run of its own; without, it uses the program's current one."""

    def __init__(self, settings: dict[str, Any] | None) -> None:
        self._settings = settings
        self._runtime: Runtime | None = None
        self._owner = os.getpid()
        #: held while the run starts; finalisers, which may come at any moment, do not ask for it
        self._lock = threading.Lock()
        #: futures that are not done
        self.pending: set[concurrent.futures.Future[Any]] = set()
        #: why nothing is accepted any more
        self.broken = ""
        self._closed = False

    def runtime(self) -> Runtime:
        """The run that new work goes to; raises if none is accepted."""
        if self.broken:
            raise broken_pool(self.broken)
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        if os.getpid() != self._owner:
            raise RuntimeError("this executor belongs to the process that made it; make another one in its child")
        self._watch_end()
        if self._settings is None and self._runtime is None:
            with contextlib.suppress(RuntimeStopped):  # whoever used tasks before may still want an executor
                return session.current()
        with self._lock:
            if self._runtime is None:
                from penstock.runtime.runtime import Runtime

                self._runtime = Runtime(**(self._settings or {}))
            return self._runtime

    def submit(
        self, runtime: Runtime, declaration: Declaration, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> concurrent.futures.Future[Any]:
        """Accept a call."""
        if runtime.simulated:
            future: concurrent.futures.Future[Any] = runtime.call(declaration, args, kwargs)
            self.pending.add(future)
            future.add_done_callback(self.pending.discard)
            return future
        made: list[PoolFuture[Any]] = []

        def make(runtime: Runtime, task: int, version: VersionId, name: str) -> PoolFuture[Any]:
            made.append(PoolFuture(runtime, task, version, name, self))
            self.pending.add(made[-1])
            return made[-1]

        try:
            return runtime.call(declaration, args, kwargs, make)  # type: ignore[no-any-return]
        except BaseException as error:
            self.pending.difference_update(made)
            if isinstance(error, RuntimeStopped) and self._runtime is not None:
                raise RuntimeError("cannot schedule new futures after shutdown") from error
            if isinstance(error, ConstraintError) and not runtime.driver.engine.state.ledger.nodes:
                raise broken_pool(f"{_BREAKING[FailureKind.UNPLACEABLE]}: {error}") from error
            raise

    def over(self, future: PoolFuture[Any], failure: Failure | None) -> None:
        """A future is done."""
        self.pending.discard(future)
        if failure is not None and failure.kind in _BREAKING and not self.broken:
            self.broken = f"{_BREAKING[failure.kind]}, and the executor is not usable any more: {failure.message}"
            for other in list(self.pending):
                assert isinstance(other, PoolFuture)
                other.break_off()

    # --- the end ------------------------------------------------------------------------------------------------

    def close(self, *, wait: bool, cancel: bool = False, gives_back: bool = True) -> None:
        """Accept nothing more, and end the processes when all that was accepted is done; see ``Runtime.stop``."""
        self._closed = True
        if os.getpid() != self._owner:
            return
        if cancel:
            for future in list(self.pending):
                future.cancel()
        if wait and type(threading.current_thread()) is not OwnThread:
            self._finish(gives_back=gives_back)
        elif self._runtime is not None and not self._runtime.stopped:
            with contextlib.suppress(RuntimeError):  # too late for a thread: the program's end does it
                threading.Thread(target=self._finish, name="executor-end", daemon=True).start()

    def _finish(self, *, gives_back: bool = True) -> None:
        try:
            while self.pending:
                await_futures(list(self.pending))
                self._settle_pending()
        except BaseException:
            if self._runtime is not None:
                self._runtime.stop(abort=True)
            raise
        if self._runtime is not None:
            self._runtime.stop(gives_back=gives_back)
        _live.discard(self)

    def _settle_pending(self) -> None:
        """A future is done a moment before we are told."""
        for future in list(self.pending):
            if future.done():
                self.pending.discard(future)

    def _watch_end(self) -> None:
        """See to it that the end of the program waits for what is accepted."""
        if self in _live:
            return
        global _watching
        if not _watching:
            try:
                # Before threads are joined and exit handlers are called, which may submit more.
                threading._register_atexit(_end_of_program)  # type: ignore[attr-defined]
            except RuntimeError:
                raise RuntimeError("cannot schedule new futures after interpreter shutdown") from None
            os.register_at_fork(after_in_child=_live.clear)
            _watching = True
        _live.add(self)


#: pools with work that the end of the program has to wait for
_live: set[Pool] = set()
_watching = False


def _end_of_program() -> None:
    for pool in list(_live):
        pool.close(wait=True, gives_back=False)


def broken_pool(why: str) -> Exception:
    """The exception of the standard library for a pool that lost a process."""
    from concurrent.futures.process import BrokenProcessPool

    return BrokenProcessPool(why)


class _NotPickled(SerializationError, PicklingError):
    """What the standard library would raise, with our words."""


class PoolFuture(Future[T], Generic[T]):
    """A future of an executor: it is one of the standard library in what it tells, and in comparisons."""

    __slots__ = ("_given_up", "_pool")

    def __init__(self, runtime: Runtime, task: int, version: VersionId, name: str, pool: Pool) -> None:
        super().__init__(runtime, task, version, name)
        self._pool = pool
        #: the program itself has cancelled it
        self._given_up = False

    def cancel(self) -> bool:
        self._given_up = True
        return super().cancel()

    def break_off(self) -> None:
        """The pool is broken: end the task, even if it runs."""
        self._runtime.cancel(self._task, kill=True)

    def settle(self, outcome: Slot | Failure) -> bool:
        broken = self._pool.broken
        if broken and not self._given_up and type(outcome) is Failure and outcome.kind is FailureKind.CANCELLED:
            outcome = replace(outcome, kind=FailureKind.DIED, message=broken)
        super().settle(outcome)
        return True  # the pool is told in any case

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        return True

    def announce(self) -> None:
        # First the pool: who hears that a process has died finds the executor broken.
        self._pool.over(self, self._outcome if type(self._outcome) is Failure else None)
        super().announce()

    def _load(self, timeout: float | None = None) -> None:
        try:
            super()._load(timeout)
        except (SerializationError, SystemExit) as error:
            if type(self._outcome) is Failure:
                raise
            raise broken_pool(f"the result of {self.label} cannot be loaded: {error}") from error

    def _error(self, failure: Failure) -> BaseException:
        error = super()._error(failure)
        if failure.kind is FailureKind.SERIALIZATION:
            return _NotPickled(*error.args)
        if failure.kind in _BREAKING:
            broken = broken_pool(self._pool.broken or failure.message)
            broken.__cause__ = error
            return broken
        from penstock.runtime.failures import own_exception  # which knows of the engine

        own = own_exception(failure) if failure.kind is FailureKind.EXCEPTION else None
        if isinstance(own, SystemExit):
            # A task's exit must not end the program that waits for it; of an executor, programs expect it.
            own.__cause__ = error
            return own
        return error
