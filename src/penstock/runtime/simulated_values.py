"""What stands for values that no task has computed: placeholders, and the futures that give them.

A placeholder may be kept, printed and passed on to tasks. Whatever needs the value itself raises
``SimulatedValueError``, which names the task and the line of the program.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from penstock.data.slots import current
from penstock.data.stand_ins import OPERATIONS, refuse
from penstock.errors import SimulatedValueError
from penstock.model.data import FileRef, Slot, Value, VersionId
from penstock.model.tasks import Failure
from penstock.runtime.futures import Future
from penstock.runtime.reverting import Placed

if TYPE_CHECKING:
    from penstock.runtime.simulated_runtime import SimulatedRuntime

__all__ = ["PlacedSimulatedFuture", "Placeholder", "SimulatedFuture", "as_completed", "program_line", "stand_in"]

T = TypeVar("T")

_OURS = os.path.dirname(os.path.dirname(__file__))
#: a future's value is not known before the first look
_UNKNOWN = object()


def program_line() -> str:
    """The line of the program that is being carried out: ``app.py, line 12``."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}, line {frame.f_lineno}"


class Placeholder:
    """The value of a task in a simulated run, where tasks are not executed."""

    __slots__ = ("__weakref__", "_future", "_label")

    _future: SimulatedFuture[Any]
    _label: str

    def __init__(self, future: SimulatedFuture[Any]) -> None:
        object.__setattr__(self, "_future", future)  # also keeps the version that tasks read
        object.__setattr__(self, "_label", future.label)

    def __repr__(self) -> str:
        return f"<simulated value of {self._label}>"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec) if not spec else _needed(self, f"formatted with {spec!r}")

    def __eq__(self, other: object) -> bool:
        return True if other is self else _needed(self, "compared")

    def __ne__(self, other: object) -> bool:
        return False if other is self else _needed(self, "compared")

    __hash__ = object.__hash__

    def __copy__(self) -> Placeholder:
        return self

    def __deepcopy__(self, memo: object) -> Placeholder:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return current.outgoing(self._future) if current.outgoing is not None else _needed(self, "pickled")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)  # somebody asks for a protocol, such as how to show it
        _needed(self, f"asked for its attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        _needed(self, f"given the attribute {name!r}")

    def __delattr__(self, name: str) -> None:
        _needed(self, f"rid of its attribute {name!r}")


def _needed(placeholder: Placeholder, how: str) -> NoReturn:
    raise SimulatedValueError(
        f"{program_line()}: the value of {placeholder._label} is {how}, but this run is simulated and no task is "
        f"executed. Say what it returns with @task(simulated=lambda …: value), or pass it on to a task without "
        f"looking at it."
    )


refuse(
    Placeholder,
    {
        **OPERATIONS,
        "__bool__": "used as a condition",
        "__length_hint__": "asked for its length",
        **dict.fromkeys(("__next__", "__aiter__"), "iterated over"),
        "__call__": "called",
        **dict.fromkeys(("__enter__", "__exit__", "__aenter__", "__aexit__"), "used in a with statement"),
        "__await__": "awaited",
        "__array_ufunc__": "used in arithmetic",
        **dict.fromkeys(("__array__", "__array_function__"), "made an array"),
    },
    _needed,
)


class SimulatedFuture(Future[T], Generic[T]):
    """The future of a simulated call; waiting for it lets virtual time pass."""

    __slots__ = ("_declared", "_doomed")

    _runtime: SimulatedRuntime

    def __init__(self, runtime: SimulatedRuntime, task: int, version: VersionId, name: str = "") -> None:
        super().__init__(runtime, task, version, name)
        #: what the task was declared to return, or that it was declared to fail
        self._declared: Any = _UNKNOWN
        self._doomed = False

    def describe(self, declared: tuple[Any, ...], *, doomed: bool) -> None:
        """Its value if it was declared; or that there will be none."""
        self._doomed = doomed
        if declared:
            self._declared = declared[0]

    def known(self) -> Any:
        """Its value as far as it is known before the task is over: as declared, else a placeholder."""
        if self._doomed:
            raise NeverThere
        return Placeholder(self) if self._declared is _UNKNOWN else self._declared

    def settled(self) -> bool:
        """Whether it is done, without letting time pass."""
        return self._state != "PENDING"

    def done(self) -> bool:
        """Whether it is done. If not, time goes on to whatever happens next: a program may ask until it is."""
        if self.settled():
            return True
        self._runtime.driver.let_pass()
        return False

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call ``fn(future)`` when it is done; at once if it is done already."""
        if not self.settled():
            self._runtime.driver.watch_sleepers()  # the program may wait for what the callback does
        super().add_done_callback(fn)

    @property
    def _waiters(self) -> list[Any]:  # type: ignore[override]
        """What the standard library's ``wait`` and ``as_completed`` sleep on is made to let virtual time pass."""
        if self._waiting is None:
            self._waiting = _Waiters(self._runtime)
        return self._waiting

    def renew(self, task: int, version: VersionId, name: str) -> VersionId:
        self._declared = _UNKNOWN
        self._doomed = False
        return super().renew(task, version, name)

    def __await__(self) -> Generator[Any, Any, T]:
        import asyncio

        while not self.settled():
            yield from asyncio.sleep(0).__await__()  # whoever can go on without time passing goes first
            if not self.settled() and not self._runtime.driver.let_pass():
                break
        return self.result()

    def _wait(self, timeout: float | None) -> None:
        self._runtime.before_wait()
        if not self._runtime.driver.wait_until(self.settled, timeout):
            raise TimeoutError(f"{self!r} is not done after {timeout:g} virtual seconds")

    def _load(self, timeout: float | None = None) -> None:
        outcome: Slot | Failure | None = self._outcome
        if type(outcome) is Failure:
            raise self._runtime.observe(outcome)
        if type(outcome) is FileRef:
            self._value = outcome.path
        elif type(outcome) is Value and type(outcome.data) is bytes and outcome.data:
            super()._load()  # a failure that is ignored leaves a value that is known
        else:
            self._value = self.known()


class PlacedSimulatedFuture(Placed, SimulatedFuture[T]):
    """A ``PlacedFuture`` of a simulated call."""

    __slots__ = ("original",)

    def be_original(self) -> None:
        self.settle_with(self.original)


class _Waiters(list[Any]):
    """Those who wait for a future with the means of the standard library."""

    def __init__(self, runtime: SimulatedRuntime) -> None:
        super().__init__()
        self._runtime = runtime

    def append(self, waiter: Any) -> None:
        if not isinstance(waiter.event, _Event):
            waiter.event = _Event(self._runtime)
        super().append(waiter)


class _Event:
    """An event for which one waits by letting virtual time pass."""

    def __init__(self, runtime: SimulatedRuntime) -> None:
        self._runtime = runtime
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        self._runtime.before_wait()
        return self._runtime.driver.wait_until(self.is_set, timeout)


def as_completed(futures: Sequence[SimulatedFuture[T]], timeout: float | None) -> Iterator[Any]:
    """The futures in the order in which they are done; ``timeout`` is in virtual seconds."""
    distinct = list(dict.fromkeys(futures))
    finished: deque[Any] = deque()
    driver = distinct[0]._runtime.driver
    latest = None if timeout is None else driver.now + timeout
    for future in distinct:
        Future.add_done_callback(future, finished.append)
    for number in range(len(distinct)):
        left = None if latest is None else max(0.0, latest - driver.now)
        if not finished and not driver.wait_until(lambda: bool(finished), left):
            raise TimeoutError(f"{len(distinct) - number} (of {len(distinct)}) futures unfinished")
        yield finished.popleft()


class NeverThere(Exception):
    """A value is wanted of a task that is declared to fail: whoever needs it will not run."""


def stand_in(obj: Any) -> Any:
    """An argument with what is known of futures in their places, also inside lists, tuples and dicts.

    What holds no future is left as it is.
    """
    return _stand_in(obj, {}) if _holds_future(obj, set()) else obj


def _holds_future(obj: Any, seen: set[int]) -> bool:
    if isinstance(obj, SimulatedFuture):
        return True
    if not isinstance(obj, list | tuple | dict) or id(obj) in seen:
        return False
    seen.add(id(obj))
    return any(_holds_future(part, seen) for part in (obj.values() if isinstance(obj, dict) else obj))


def _stand_in(obj: Any, made: dict[int, Any]) -> Any:
    if isinstance(obj, SimulatedFuture):
        return obj.known()
    if id(obj) in made:
        return made[id(obj)]
    if isinstance(obj, list):
        copy: list[Any] = []
        made[id(obj)] = copy
        copy.extend(_stand_in(part, made) for part in obj)
        return copy
    if isinstance(obj, dict):
        copied: dict[Any, Any] = {}
        made[id(obj)] = copied
        copied.update((key, _stand_in(value, made)) for key, value in obj.items())
        return copied
    if isinstance(obj, tuple):
        parts = [_stand_in(part, made) for part in obj]
        return type(obj)(*parts) if hasattr(obj, "_fields") else tuple(parts)
    return obj
