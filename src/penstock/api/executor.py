"""``penstock.Executor``: the standard library's interface over a runtime. What was accepted, and its end: pool.py."""

from __future__ import annotations

import concurrent.futures
import itertools
import os
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from types import FunctionType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from penstock.api.task import Task, task
from penstock.errors import CallError, SerializationError
from penstock.executors.coroutines import plain
from penstock.model.directions import IN
from penstock.runtime.pool import Pool
from penstock.runtime.shipping import travels_by_name

if TYPE_CHECKING:
    from penstock.runtime.declaration import Declaration

__all__ = ["Executor"]

P = ParamSpec("P")
T = TypeVar("T")


class Executor(concurrent.futures.Executor):
    """Drop-in for ``ProcessPoolExecutor``; uses the current runtime, or one of its own if settings are given.

    ``mp_context`` is taken and not used: worker processes always come from a fork server of our own. ``settings`` are
    those of ``penstock.Runtime``.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        mp_context: Any = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        *,
        max_tasks_per_child: int | None = None,
        **settings: Any,
    ) -> None:
        _check(max_workers, mp_context, initializer, max_tasks_per_child)
        if max_workers is not None:
            settings["cpus"] = max_workers
        if initializer is not None:
            settings["setup"] = _Initializer(initializer, initargs)
        if max_tasks_per_child is not None:
            settings["tasks_per_worker"] = max_tasks_per_child
        if settings:
            from penstock.runtime.config import load_config

            load_config(settings)  # mistakes surface here, not at the first call
        self._max_workers = max_workers or len(os.sched_getaffinity(0))
        self._declarations: dict[Callable[..., Any], Declaration] = {}
        self._pool = Pool(settings or None)
        weakref.finalize(self, self._pool.close, wait=False).atexit = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> concurrent.futures.Future[T]:
        """Call a function in a worker; gives its future."""
        runtime = self._pool.runtime()
        try:
            if isinstance(fn, Task) or (isinstance(fn, FunctionType) and (runtime.simulated or travels_by_name(fn))):
                return self._pool.submit(runtime, self._declaration(fn), args, kwargs)
            # It may be one of many, or hold state that changes: it goes with its call, like an argument.
            return self._pool.submit(runtime, _applied, (fn, args, kwargs), {})
        except (CallError, SerializationError) as error:
            # Unlike a task, an executor tells of wrong arguments where it tells of everything else.
            failed: concurrent.futures.Future[T] = concurrent.futures.Future()
            failed.set_exception(error.__cause__ or error)
            return failed

    def map(
        self, fn: Callable[..., T], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[T]:
        """The results in order. ``chunksize`` calls travel together; short ones are sent ahead in any case."""
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        deadline = None if timeout is None else time.monotonic() + timeout
        calls = zip(*iterables, strict=False)
        if chunksize == 1:
            return _results([self.submit(fn, *args) for args in calls], deadline)
        chunks = iter(lambda: list(itertools.islice(calls, chunksize)), [])
        return _flattened(_results([self.submit(_apply_to_each, fn, chunk) for chunk in chunks], deadline))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls. What was accepted is done, and then the processes end; ``wait`` for that."""
        self._pool.close(wait=wait, cancel=cancel_futures)

    @property
    def _broken(self) -> str:
        """Why nothing is accepted any more, if a process died; people look for it under this name."""
        return self._pool.broken

    def _declaration(self, fn: Callable[..., Any]) -> Declaration:
        known = self._declarations.get(fn)
        if known is None:
            known = self._declarations[fn] = _declared(fn)
        return known


def _declared(fn: Callable[..., Any]) -> Declaration:
    if isinstance(fn, Task):
        declaration = fn.declaration
    else:
        first = next(iter(fn.__code__.co_varnames), "") if isinstance(fn, FunctionType) else ""
        method = {"target_direction": IN} if first == "self" else {}  # a copy of the object is called, as of any other
        # A call that may have begun is not made again, and what it is given is its own.
        declaration = replace(task(**method)(fn).declaration, retries=0, private=True)
    if declaration.streams:
        raise CallError(f"{declaration.name} has any number of outputs; call it as a task instead")
    return declaration


def _check(max_workers: Any, mp_context: Any, initializer: Any, max_tasks_per_child: Any) -> None:
    if max_workers is not None and max_workers <= 0:
        raise ValueError("max_workers must be greater than 0")
    if max_workers is not None and not isinstance(max_workers, int):
        raise TypeError(f"max_workers must be a whole number, not {max_workers!r}")
    if mp_context is not None and not hasattr(mp_context, "get_start_method"):
        raise TypeError(f"mp_context must come from multiprocessing.get_context(), not be {mp_context!r:.80}")
    if initializer is not None and not callable(initializer):
        raise TypeError("initializer must be a callable")
    if max_tasks_per_child is None:
        return
    if not isinstance(max_tasks_per_child, int):
        raise TypeError("max_tasks_per_child must be an integer")
    if max_tasks_per_child <= 0:
        raise ValueError("max_tasks_per_child must be >= 1")
    if mp_context is not None and mp_context.get_start_method(allow_none=False) == "fork":
        raise ValueError(
            "max_tasks_per_child is incompatible with the 'fork' multiprocessing start method; supply a different "
            "mp_context."
        )


def _results(futures: list[concurrent.futures.Future[T]], deadline: float | None) -> Iterator[T]:
    """The results, of which none is kept once it was given; whoever stops asking cancels the rest."""
    futures.reverse()
    try:
        while futures:
            yield _result(futures.pop(), deadline)
    finally:
        for future in futures:
            future.cancel()


def _result(future: concurrent.futures.Future[T], deadline: float | None) -> T:
    try:
        return future.result(None if deadline is None else deadline - time.monotonic())
    finally:
        future.cancel()  # if its time is up


def _flattened(chunks: Iterator[list[T]]) -> Iterator[T]:
    for chunk in chunks:
        chunk.reverse()
        while chunk:
            yield chunk.pop()


class _Initializer:
    """The ``initializer`` as a setup of workers; one that raises is logged where the standard library does it."""

    def __init__(self, function: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self._function = function
        self._arguments = arguments

    def __call__(self) -> None:
        try:
            self._function(*self._arguments)
        except BaseException:
            import logging

            logging.getLogger("concurrent.futures").critical("Exception in initializer:", exc_info=True)
            raise


def _apply(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return plain(fn)(*args, **kwargs)


def _apply_to_each(fn: Callable[..., Any], calls: list[tuple[Any, ...]]) -> list[Any]:
    body = plain(fn)
    return [body(*args) for args in calls]


_applied = _declared(_apply)
