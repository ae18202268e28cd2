"""``@task``: a function whose calls run elsewhere, later, in parallel.

The signature is inspected here, once. A call hands the arguments to the current runtime and gives a future; inside
another task it runs at once, in that task's process.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from types import EllipsisType, MethodDescriptorType, WrapperDescriptorType
from typing import Any, Generic, ParamSpec, TypeVar, Unpack, overload

from penstock.api.mapping import Calls, map_calls
from penstock.api.options import CallOptions, changed, fields
from penstock.errors import DefinitionError
from penstock.executors.inside import inside_task
from penstock.model.directions import INOUT, Direction
from penstock.model.tasks import OnFailure
from penstock.runtime import session
from penstock.runtime.declaration import Declaration
from penstock.runtime.futures import Future
from penstock.runtime.maps import Mapped
from penstock.runtime.simple_arguments import kind_of_named

__all__ = ["Task", "task"]

#: methods of types written in C: ``set.add``, ``str.__len__``
_METHODS = (MethodDescriptorType, WrapperDescriptorType)

P = ParamSpec("P")
R = TypeVar("R")


class Task(Generic[P, R]):
    """A function made a task. Call it to submit; ``map`` submits many; ``__wrapped__`` is the function itself."""

    def __init__(self, declaration: Declaration) -> None:
        functools.update_wrapper(self, declaration.body)
        # After it, since a function may have attributes of these names too.
        self.declaration = declaration
        for name in ("map", "with_options"):
            self.__dict__.pop(name, None)

    # No parameter of a task is taken for one of these methods', whatever it is called.
    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        if inside_task():
            from penstock.runtime.nested import call_here  # which the program itself never needs

            return call_here(self.declaration, args, kwargs)  # type: ignore[no-any-return]
        return session.current().call(self.declaration, args, kwargs)  # type: ignore[no-any-return]

    def map(self, *iterables: Any) -> Mapped[R] | Calls[R]:
        """Call the task on each item, like the built-in ``map``; far cheaper than as many calls."""
        return map_calls(self, iterables)

    def with_options(self, **options: Unpack[CallOptions]) -> Task[P, R]:
        """The same task with other options for the calls that are made through it: ``f.with_options(retries=3)(x)``.

        ``priority``, ``retries``, ``retry_delay``, ``timeout``, ``on_failure`` and ``label`` are those of ``@task``;
        ``constraints``, a dict, overrules those of ``@constraint`` one by one.
        """
        declaration = self.declaration
        usual = declaration if declaration.variant_of is None else declaration.variant_of
        return Task(dataclasses.replace(declaration, **changed(declaration, options), variant_of=usual))

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        return _Method(self if kind_of_named(instance) else self._of_instances(), instance)

    def _of_instances(self) -> Task[P, R]:
        """The task as a method, which updates its object, whatever it calls that, unless its direction is written."""
        declaration = self.declaration
        first = declaration.positional[0] if declaration.positional else "self"
        if first == "self" or first in declaration.directions or declaration.first_is_in:
            return self
        method: Task[P, R] | None = self.__dict__.get("_method")
        if method is None:
            directions = {first: INOUT, **declaration.directions}
            method = self.__dict__["_method"] = Task(dataclasses.replace(declaration, directions=directions))
        return method

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

    def __call__(self, /, *args: Any, **kwargs: Any) -> Future[R]:
        return self._task(self.__self__, *args, **kwargs)

    def with_options(self, **options: Unpack[CallOptions]) -> _Method[R]:
        """The same method with other options for the calls that are made through it."""
        return _Method(self._task.with_options(**options), self.__self__)

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
        # What is derived, and what only simulated runs want to know, need not travel.
        left_out = {"signature", "label", "duration", "size", "simulated", "implementations", "variant_of"}
        wanted = [one.name for one in dataclasses.fields(Declaration) if one.init and one.name not in left_out]
        fields = {name: getattr(self.declaration, name) for name in wanted}
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
    returns: int | type | tuple[type, ...] | bool | EllipsisType | Direction | None = ...,
    ahead: int | Direction = ...,
    priority: bool | int | Direction = ...,
    retries: int | Direction | None = ...,
    retry_delay: float | str | Direction | None = ...,
    timeout: float | str | Direction | None = ...,
    on_failure: str | OnFailure | Direction | None = ...,
    target_direction: Direction = ...,
    label: str | Callable[..., Any] | None = ...,
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
    ``retries``: further attempts after a failure. ``retry_delay``: seconds before the first of them, twice as many
    before the next, and so on. ``timeout``: seconds an attempt may take. ``on_failure``: ``"fail"``, ``"retry"``,
    ``"ignore"`` or ``"cancel_successors"``. ``target_direction``: what a method does with ``self``. A parameter may
    have the name of an option: a direction is always the parameter's.

    ``label``: what messages and the event log call a call besides its function, or a function of its arguments that
    gives it.

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
    if isinstance(function, type):
        raise DefinitionError(
            f"@task decorates functions and methods, not {function!r}; decorate a function that calls it"
        )
    if not callable(function):
        raise DefinitionError(f"@task decorates functions and methods, not {function!r:.200}")
    name = getattr(function, "__qualname__", repr(function)).replace("<locals>.", "")
    signature = _signature(function)
    return Task(
        Declaration(body=function, name=name, signature=signature, **fields(name, function, signature, options))
    )


def _signature(function: Any) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except ValueError:
        # A function written in C that does not tell: it takes what it takes, and a method an object, as all methods do.
        kinds = inspect.Parameter
        first = [kinds("self", kinds.POSITIONAL_ONLY)] if isinstance(function, _METHODS) else []
        return inspect.Signature([*first, kinds("args", kinds.VAR_POSITIONAL), kinds("kwargs", kinds.VAR_KEYWORD)])
