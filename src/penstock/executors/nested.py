"""Futures of tasks called inside a task: they are done at once, and look like any others to the code around them.

A failure that the task never looks at fails the task, as it would have ended the program outside.
"""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Generator, Iterator
from typing import Any, NoReturn, Self

from penstock.data.stand_ins import Promised, PromisedSequence
from penstock.errors import NotAValue

__all__ = ["DoneFuture", "DoneStream", "forget_unlooked", "raise_unlooked"]


class _Failures(threading.local):
    """Failed nested calls of the task that this thread carries out."""

    unlooked: tuple[DoneFuture, ...] = ()


_failures = _Failures()


class DoneFuture(Promised, concurrent.futures.Future[Any]):
    """The result of a nested call; when pickled, it is its value."""

    def __init__(self, value: Any = None, error: BaseException | None = None) -> None:
        super().__init__()
        if error is None:
            self.set_result(value)
        else:
            self.set_exception(error)
            _failures.unlooked = (*_failures.unlooked, self)

    def result(self, timeout: float | None = None) -> Any:
        self._look()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._look()
        return super().exception(timeout)

    def __await__(self) -> Generator[Any, Any, Any]:
        import asyncio

        return asyncio.wrap_future(self).__await__()

    def _look(self) -> None:
        if self in _failures.unlooked:
            # Several futures of one call share its error.
            _failures.unlooked = tuple(f for f in _failures.unlooked if f._exception is not self._exception)

    def __bool__(self) -> bool:
        if self._exception is not None:
            return True  # the standard library asks this of failed ones, in wait() for the first exception
        raise NotAValue(f"{self!r} has no truth value: use wait_on(it) or it.result()")

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _value, (self.result(),)


class DoneStream(PromisedSequence, Iterator[DoneFuture]):
    """The outputs of a nested call that has any number of them; when pickled, it is their list."""

    def __init__(self, futures: list[DoneFuture], failure: DoneFuture | None = None) -> None:
        self._futures = futures
        self._next = 0
        #: what ends it, if not all went well
        self._failure = failure
        #: whether who goes through it has been told: as with a generator, once
        self._raised = False

    def __next__(self) -> DoneFuture:
        if self._next == len(self._futures):
            if self._failure is not None and not self._raised:
                self._raised = True
                self._failure.result()
            raise StopIteration
        self._next += 1
        return self._futures[self._next - 1]

    def __len__(self) -> int:
        return len(self._futures)

    def __getitem__(self, index: int) -> DoneFuture:
        return self._futures[index]

    def futures(self) -> list[DoneFuture]:
        """All outputs."""
        if self._failure is not None:
            self._failure.result()
        return list(self._futures)

    def result(self, timeout: float | None = None) -> list[Any]:
        """All values."""
        return [future.result() for future in self.futures()]

    def done(self) -> bool:
        """It is."""
        return True

    def __copy__(self) -> NoReturn:
        raise TypeError("a stream cannot be copied: it is gone through once; copy list(stream), or its result()")

    def __deepcopy__(self, memo: object) -> NoReturn:
        self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        return _value, (self.result(),)


def _value(value: Any) -> Any:
    return value


def forget_unlooked() -> None:
    """A task is over: what its nested calls left is not the next task's."""
    _failures.unlooked = ()


def raise_unlooked() -> None:
    """At the end of a task: raise the first failure of a nested call that it has not looked at."""
    if _failures.unlooked:
        _failures.unlooked[0].result()
