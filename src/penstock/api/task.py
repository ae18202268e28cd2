"""``@task``: a function whose calls run elsewhere, later, in parallel.

The signature is inspected here, once. A call hands the arguments to the current runtime and gives a future; inside
another task it runs at once, in that task's process.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Mapping
from types import EllipsisType
from typing import Any, Generic, ParamSpec, TypeVar, overload

from penstock.api.directions import as_direction
from penstock.api.mapping import Calls, map_calls
from penstock.errors import DefinitionError, did_you_mean
from penstock.executors.execution import inside_task
from penstock.executors.wire import STREAM
from penstock.model.directions import IN, INOUT, Direction
from penstock.model.tasks import OnFailure
from penstock.runtime import session
from penstock.runtime.declaration import Declaration, checked_size
from penstock.runtime.futures import Future
from penstock.runtime.maps import Mapped
from penstock.runtime.nested import call_here

__all__ = ["Task", "task"]

P = ParamSpec("P")
R = TypeVar("R")

_OPTIONS = (
    *("returns", "ahead", "priority", "retries", "timeout", "on_failure", "target_direction"),
    *("duration", "size", "simulated"),
)


class Task(Generic[P, R]):
    """A function made a task. Call it to submit; ``map`` submits many; ``__wrapped__`` is the function itself."""

    def __init__(self, declaration: Declaration) -> None:
        self.declaration = declaration
        self.__wrapped__ = declaration.body
        functools.update_wrapper(self, declaration.body)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        if inside_task():
            return call_here(self.declaration, args, kwargs)  # type: ignore[no-any-return]
        return session.current().call(self.declaration, args, kwargs)  # type: ignore[no-any-return]

    def map(self, *iterables: Any) -> Mapped[R] | Calls[R]:
        """Call the task on each item, like the built-in ``map``; far cheaper than as many calls."""
        return map_calls(self, iterables)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else _Method(self, instance)

    def __repr__(self) -> str:
        return f"<task {self.declaration.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (_Reference(self.declaration),)


class _Method(Generic[R]):
    """A task bound to an object, which is its first argument."""

    def __init__(self, task: Task[..., R], instance: Any) -> None:
        self._task = task
        self.__self__ = instance
        functools.update_wrapper(self, task.declaration.body)
        # For inspect.signature: a bound method shows no self.
        self.__wrapped__ = task.declaration.body.__get__(instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Future[R]:
        return self._task(self.__self__, *args, **kwargs)

    def map(self, *iterables: Any) -> Calls[R]:
        return Calls(self(*items) for items in zip(*iterables, strict=False))


class _Reference:
    """How a task is pickled: by name where others can import it, by its function where they cannot."""

    def __init__(self, declaration: Declaration) -> None:
        self.declaration = declaration

    def __reduce__(self) -> tuple[Any, ...]:
        from penstock.runtime.shipping import import_attribute, travels_by_name

        body = self.declaration.body
        if travels_by_name(body):
            found = import_attribute(body.__module__, body.__qualname__)
            found = found._task if isinstance(found, _Method) else found
            # The name may mean the plain function, or another task made of it.
            if isinstance(found, Task) and found.declaration is self.declaration:
                return import_attribute, (body.__module__, body.__qualname__)
        fields = {name: getattr(self.declaration, name) for name in Declaration.__dataclass_fields__}
        # What is derived, and what only simulated runs want to know, need not travel.
        for left_out in (
            "signature",
            "positional",
            "least",
            "most",
            "generator",
            "duration",
            "size",
            "simulated",
            "implementations",
        ):
            fields.pop(left_out)
        return _declare, (fields,)


def _rebuild(found: Any) -> Any:
    return found if isinstance(found, Task) else Task(found)


def _declare(fields: Mapping[str, Any]) -> Declaration:
    return Declaration(signature=_signature(fields["body"]), **fields)


@overload
def task(function: Callable[P, R], /) -> Task[P, R]: ...
@overload
def task(
    *,
    returns: int | type | tuple[type, ...] | bool | EllipsisType | None = ...,
    ahead: int = ...,
    priority: bool | int = ...,
    retries: int | None = ...,
    timeout: float | None = ...,
    on_failure: str | OnFailure | None = ...,
    target_direction: Direction = ...,
    duration: Any = ...,
    size: Any = ...,
    simulated: Callable[..., Any] | None = ...,
    **directions: Any,
) -> Callable[[Callable[P, R]], Task[P, R]]: ...
def task(function: Any = None, /, **options: Any) -> Any:
    """Make a function a task.

    ``returns``: how many values it returns, or their type; each becomes a future. ``...`` is any number: the call gives
    a stream of futures, of which at most ``ahead`` may be unused if that is given. ``<parameter>=<direction>``: what
    it does with a parameter, ``IN`` unless said otherwise. ``priority``: goes before others that are ready.
    ``retries``: further attempts after a failure. ``timeout``: seconds an attempt may take. ``on_failure``: ``"fail"``,
    ``"retry"``, ``"ignore"`` or ``"cancel_successors"``. ``target_direction``: what a method does with ``self``.

    For simulated runs: ``duration``, seconds that a call takes, or a distribution of them, or a function of the
    arguments; ``size``, of each file that it writes, or of its result; ``simulated``, a function of the arguments that
    gives the value it would return.
    """
    if function is not None:
        return _make(function, options)
    return lambda function: _make(function, options)


def _make(function: Any, options: dict[str, Any]) -> Any:
    if isinstance(function, classmethod | staticmethod):
        return type(function)(_make(function.__func__, options))
    if isinstance(function, Task):
        raise DefinitionError(f"{function.declaration.name} is a task already; use @task once, below other decorators")
    if isinstance(function, type) or not callable(function):
        raise DefinitionError(f"@task decorates functions and methods, not {function!r}")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise DefinitionError(f"@task cannot run the coroutine {function.__qualname__}; make it an ordinary function")
    name = getattr(function, "__qualname__", repr(function)).replace("<locals>.", "")
    signature = _signature(function)
    values = {option: options.pop(option) for option in _OPTIONS if option in options}
    directions = _directions(name, signature, options, values.get("target_direction"))
    retries = _retries(name, values.get("retries"))
    returns = _returns(name, values.get("returns"), generator=inspect.isgeneratorfunction(function))
    return Task(
        Declaration(
            body=function,
            name=name,
            signature=signature,
            directions=directions,
            returns=returns,
            ahead=_ahead(name, values.get("ahead"), returns, directions),
            priority=_priority(name, values.get("priority", 0)),
            retries=retries,
            timeout=_timeout(name, values.get("timeout")),
            on_failure=_on_failure(name, values.get("on_failure"), retries),
            duration=_duration(name, values.get("duration")),
            size=_size(name, values.get("size"), signature),
            simulated=_simulated(name, values.get("simulated")),
        )
    )


def _signature(function: Any) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except ValueError:
        # A function written in C that does not tell: it takes what it takes.
        kinds = inspect.Parameter
        return inspect.Signature([kinds("args", kinds.VAR_POSITIONAL), kinds("kwargs", kinds.VAR_KEYWORD)])


def _directions(
    name: str, signature: inspect.Signature, written: dict[str, Any], target: Direction | None
) -> dict[str, Direction]:
    directions: dict[str, Direction] = {}
    for parameter, direction in written.items():
        if parameter not in signature.parameters:
            hint = did_you_mean(parameter, [*signature.parameters, *_OPTIONS])
            raise DefinitionError(
                f"@task of {name}: {parameter!r} is neither a parameter of {name}{signature} "
                f"nor an option of @task{hint}"
            )
        directions[parameter] = as_direction(direction, parameter, name)
    first = next(iter(signature.parameters), None)
    if first == "self" and "self" not in directions:
        directions["self"] = INOUT if target is None else as_direction(target, "target_direction", name)
    elif target is not None:
        raise DefinitionError(f"@task of {name}: target_direction is for methods, whose first parameter is self")
    return {parameter: direction for parameter, direction in directions.items() if direction is not IN}


def _returns(name: str, written: Any, *, generator: bool) -> int:
    if written is ... or (written is None and generator):
        return STREAM
    if written is None:
        return -1
    if generator and written == 0:
        raise DefinitionError(f"@task of {name}: it yields values, but returns=0 says that it has none")
    if written is True or isinstance(written, type):
        return 1
    if isinstance(written, tuple) and written and all(isinstance(part, type) for part in written):
        return len(written)
    if isinstance(written, int) and written >= 0:
        return int(written)
    if hasattr(written, "__origin__"):
        return 1  # list[int] and relatives
    raise DefinitionError(
        f"@task of {name}: returns={written!r} must be a number of values, a type, a tuple of types, True, or ..."
    )


def _ahead(name: str, written: Any, returns: int, directions: Mapping[str, Direction]) -> int:
    if written is None:
        return 0
    streamed = [parameter for parameter, direction in directions.items() if direction.stream and direction.writes]
    if streamed:
        # Held back, it would keep whoever reads the file waiting, who may be what its outputs wait for.
        raise DefinitionError(
            f"@task of {name}: ahead={written!r} holds the task back, and others read {streamed[0]!r} meanwhile; leave "
            f"ahead out, or declare {streamed[0]}=FILE_OUT"
        )
    if returns != STREAM:
        raise DefinitionError(f"@task of {name}: ahead={written!r} is for tasks that declare returns=...")
    if type(written) is not int or written < 1:
        raise DefinitionError(f"@task of {name}: ahead={written!r} must be a whole number of at least 1")
    return written


def _priority(name: str, written: Any) -> int:
    if isinstance(written, int):
        return int(written)
    raise DefinitionError(f"@task of {name}: priority={written!r} must be True, False or a whole number")


def _retries(name: str, written: Any) -> int | None:
    if written is None or (isinstance(written, int) and not isinstance(written, bool) and written >= 0):
        return written
    raise DefinitionError(f"@task of {name}: retries={written!r} must be a whole number of at least 0")


def _timeout(name: str, written: Any) -> float | None:
    if written is None:
        return None
    from penstock.errors import ConfigError
    from penstock.units import parse_duration

    try:
        seconds = parse_duration(written)
    except ConfigError as error:
        raise DefinitionError(f"@task of {name}: timeout={written!r}: {error}") from None
    if seconds <= 0:
        raise DefinitionError(f"@task of {name}: timeout={written!r} must be more than 0 seconds")
    return seconds


def _on_failure(name: str, written: Any, retries: int | None) -> OnFailure:
    if written is None:
        # Who asks for retries wants them also when the function raises.
        return OnFailure.RETRY if retries else OnFailure.FAIL
    if isinstance(written, OnFailure):
        return written
    try:
        return OnFailure(str(written).lower())
    except ValueError:
        choices = ", ".join(repr(choice.value) for choice in OnFailure)
        raise DefinitionError(f"@task of {name}: on_failure={written!r} must be one of {choices}") from None


def _duration(name: str, written: Any) -> Any:
    """Seconds; or a distribution or a function of the arguments, which only a simulated run asks."""
    if written is None or (callable(written) and not isinstance(written, type)):
        return written
    from penstock.errors import ConfigError
    from penstock.units import parse_duration

    if isinstance(written, str | int | float):
        with contextlib.suppress(ConfigError):
            return parse_duration(written)  # which needs no import of the simulator
    from penstock.runtime.simulated_durations import checked_duration

    try:
        return checked_duration(written)
    except ConfigError as error:
        raise DefinitionError(f"@task of {name}: duration={written!r:.60}: {error}") from None


def _size(name: str, written: Any, signature: inspect.Signature) -> Any:
    """Bytes; or bytes by parameter, or a function of the arguments that gives either."""
    if written is None or (callable(written) and not isinstance(written, type)):
        return written
    from penstock.errors import ConfigError

    unknown = [one for one in written if one not in (*signature.parameters, "returns")] if type(written) is dict else []
    if unknown:
        hint = did_you_mean(str(unknown[0]), [*signature.parameters, "returns"])
        raise DefinitionError(f"@task of {name}: size of {unknown[0]!r}, which is no parameter of {name}{hint}")
    try:
        return checked_size(written)
    except ConfigError as error:
        raise DefinitionError(f"@task of {name}: size={written!r:.60}: {error}") from None


def _simulated(name: str, written: Any) -> Callable[..., Any] | None:
    if written is None or callable(written):
        return written  # type: ignore[no-any-return]
    raise DefinitionError(
        f"@task of {name}: simulated={written!r:.60} must be a function of the arguments; for a value that is always "
        f"the same write simulated=lambda *args: value"
    )
