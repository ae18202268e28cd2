"""``penstock.Executor``: the standard library's interface over a runtime."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from penstock.api.task import Task, task
from penstock.errors import CallError
from penstock.runtime import session
from penstock.runtime.shipping import travels_by_name

if TYPE_CHECKING:
    from penstock.runtime.runtime import Runtime

__all__ = ["Executor"]

P = ParamSpec("P")
T = TypeVar("T")


class Executor(concurrent.futures.Executor):
    """Drop-in for ``ProcessPoolExecutor``; uses the current runtime, or one of its own if settings are given."""

    def __init__(self, max_workers: int | None = None, **settings: Any) -> None:
        if max_workers is not None:
            settings["cpus"] = max_workers
        self._own = _new_runtime(settings) if settings else None
        self._tasks: dict[Callable[..., Any], Task[..., Any]] = {}
        self._pending: set[concurrent.futures.Future[Any]] = set()
        self._closed = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> concurrent.futures.Future[T]:
        """Call a function in a worker; gives its future."""
        runtime = self._runtime()
        if isinstance(fn, Task) or (isinstance(fn, FunctionType) and (runtime.simulated or travels_by_name(fn))):
            declaration = self._task(fn).declaration
            if declaration.streams:
                raise CallError(f"{declaration.name} has any number of outputs; call it as a task instead")
            try:
                declaration.check(args, kwargs)
            except CallError as error:
                # Unlike a task, an executor tells of wrong arguments where it tells of everything else.
                failed: concurrent.futures.Future[T] = concurrent.futures.Future()
                failed.set_exception(error)
                return failed
            future = runtime.call(declaration, args, kwargs)
        else:
            # It may be one of many, or hold state that changes: it goes with its call, like an argument.
            future = runtime.call(_apply.declaration, (fn, args, kwargs), {})
        self._pending.add(future)
        future.add_done_callback(self._pending.discard)
        return future  # type: ignore[no-any-return]

    def map(
        self, fn: Callable[..., T], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[T]:
        """The results in order; ``chunksize`` is ignored, as pieces are cut by measured duration."""
        futures = [self.submit(fn, *args) for args in zip(*iterables, strict=False)]

        def results() -> Iterator[T]:
            import time

            deadline = None if timeout is None else time.monotonic() + timeout
            try:
                for future in futures:
                    yield future.result(None if deadline is None else max(0.0, deadline - time.monotonic()))
            finally:
                for future in futures:
                    future.cancel()

        return results()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls; wait for those accepted."""
        self._closed = True
        if cancel_futures:
            for future in list(self._pending):
                future.cancel()
        if wait:
            concurrent.futures.wait(list(self._pending))
        if self._own is not None and wait:
            self._own.stop()

    def _runtime(self) -> Runtime:
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        return self._own or session.current()

    def _task(self, fn: Callable[..., Any]) -> Task[..., Any]:
        if isinstance(fn, Task):
            return fn
        known = self._tasks.get(fn)
        if known is None:
            known = self._tasks[fn] = task(fn)
        return known


def _new_runtime(settings: dict[str, Any]) -> Runtime:
    from penstock.runtime.runtime import Runtime

    return Runtime(**settings)


@task(returns=1)
def _apply(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return fn(*args, **kwargs)
