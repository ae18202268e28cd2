"""Bodies of tasks that are written with ``async``: a worker runs them to their end, in an event loop of their own.

Where the program itself runs in an event loop (inline, and tasks called inside such tasks), that loop stands still
meanwhile, as it does for any body that runs there.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

__all__ = ["plain", "yields"]


def plain(body: Callable[..., Any]) -> Callable[..., Any]:
    """A body as a function or generator that anybody can call; itself, if it is one."""
    if inspect.iscoroutinefunction(body):

        @functools.wraps(body)
        def finished(*args: Any, **kwargs: Any) -> Any:
            with _loop() as runner:
                return _run(runner, body(*args, **kwargs))

        return finished
    if inspect.isasyncgenfunction(body):

        @functools.wraps(body)
        def yielding(*args: Any, **kwargs: Any) -> Iterator[Any]:
            yield from _yielded(body(*args, **kwargs))

        return yielding
    return body


def yields(body: Callable[..., Any]) -> bool:
    """Whether a body yields its outputs."""
    return inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body)


def _yielded(outputs: AsyncGenerator[Any, None]) -> Iterator[Any]:
    """What it yields; nothing of it goes on between two outputs."""
    with _loop() as runner:
        problem: BaseException | None = None
        try:
            while True:
                there, output = _run(runner, _next(outputs, problem))
                if not there:
                    return
                problem = None
                try:
                    yield output
                except Exception as refused:
                    problem = refused  # the body is told where it yielded
        finally:
            _run(runner, _closed(outputs))


async def _next(outputs: AsyncGenerator[Any, None], problem: BaseException | None) -> tuple[bool, Any]:
    try:
        return True, await (anext(outputs) if problem is None else outputs.athrow(problem))
    except StopAsyncIteration:
        return False, None


async def _closed(outputs: AsyncGenerator[Any, None]) -> None:
    await outputs.aclose()


@contextlib.contextmanager
def _loop() -> Iterator[asyncio.Runner]:
    import asyncio

    # With a factory, it leaves the loop alone that the program may have set for this thread.
    runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
    try:
        yield runner
    finally:
        with _standing_still():
            runner.close()


def _run(runner: asyncio.Runner, coroutine: Coroutine[Any, Any, Any]) -> Any:
    with _standing_still():
        return runner.run(coroutine)


@contextlib.contextmanager
def _standing_still() -> Iterator[None]:
    """While another loop runs in this thread: two cannot, and the outer one waits for us anyway."""
    import asyncio

    outer = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(outer)
