"""Decorators above ``@task``: they fill further fields of its declaration, or make it part of another one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar, overload

from penstock.api.implementations import add_implementation, task_named
from penstock.api.task import Task
from penstock.errors import DefinitionError
from penstock.runtime.constraints import ensure_readable, named

__all__ = ["IO", "constraint", "implement", "implements", "io", "task_below", "with_fields"]

P = ParamSpec("P")
R = TypeVar("R")


def constraint(**written: Any) -> Callable[[Task[P, R]], Task[P, R]]:
    """What every attempt of a task needs: ``computing_units``, ``memory_size``, ``storage_bw``, ``storage_size``…

    Names are accepted in any case and with or without underscores; values may be ``"$VARIABLE"``. ``storage_bw`` may
    be ``"auto"`` or ``"auto(min, max, delta)"``: then it is learned while the program runs.
    """
    constraints = named(written)

    def apply(task: Task[P, R]) -> Task[P, R]:
        inner = task_below(task, "@constraint")
        ensure_readable(constraints, inner.declaration.name, io=inner.declaration.io)
        limited: Task[P, R] = with_fields(task, constraints={**inner.declaration.constraints, **constraints})
        return limited

    return apply


@overload
def io(task: Task[P, R], /) -> Task[P, R]: ...


@overload
def io() -> Callable[[Task[P, R]], Task[P, R]]: ...


def io(task: Any = None, /) -> Any:
    """The task does only input and output: it needs no computing unit, so it overlaps with tasks that compute."""
    if task is None:
        return io
    task_below(task, "@io")
    return with_fields(task, io=True)


#: the spelling of PyCOMPSs
IO = io


def implement(
    *, of: Any = None, source_class: str | None = None, method: str | None = None
) -> Callable[[Task[P, R]], Task[P, R]]:
    """The task below is another implementation of the task ``of``, with constraints of its own.

    A call of that task runs whichever suits: each implementation is tried, then the fastest that fits is taken. The
    spelling of PyCOMPSs names the module and the function instead: ``source_class="module", method="name"``.
    """
    if (of is None) == (source_class is None or method is None):
        raise DefinitionError("@implement needs either of=TASK, or source_class=MODULE and method=NAME")

    def apply(task: Task[P, R]) -> Task[P, R]:
        inner = task_below(task, "@implement")
        target = of if source_class is None or method is None else task_named(source_class, method, inner)
        add_implementation(target, inner)
        return task

    return apply


#: as the prose of its source spells it
implements = implement


def with_fields(task: Any, **fields: Any) -> Any:
    """A task like this one, but for some fields of its declaration; the one below stays as it is."""
    if isinstance(task, classmethod | staticmethod):
        return type(task)(with_fields(task.__func__, **fields))
    return Task(replace(task.declaration, **fields, variant_of=None))


def task_below(task: Any, decorator: str) -> Task[..., Any]:
    """The task that a decorator stands above."""
    inner: Any = task.__func__ if isinstance(task, classmethod | staticmethod) else task
    if not isinstance(inner, Task):
        raise DefinitionError(f"{decorator} stands above @task; {task!r} is not a task yet")
    return inner
