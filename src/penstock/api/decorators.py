"""Decorators above ``@task``: they fill further fields of its declaration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from penstock.api.task import Task
from penstock.errors import ConstraintError, DefinitionError
from penstock.runtime.constraints import canonical, requirements

__all__ = ["constraint"]

P = ParamSpec("P")
R = TypeVar("R")


def constraint(**written: Any) -> Callable[[Task[P, R]], Task[P, R]]:
    """What every attempt of a task needs of its machine: ``computing_units``, ``memory_size``, ``processor_name``…

    Names are accepted in any case and with or without underscores; values may be ``"$VARIABLE"``.
    """
    constraints: dict[str, Any] = {}
    for name, value in written.items():
        known = canonical(name)
        if known in constraints:
            raise DefinitionError(f"@constraint gives {known} twice")
        constraints[known] = value

    def apply(task: Task[P, R]) -> Task[P, R]:
        inner: Any = task.__func__ if isinstance(task, classmethod | staticmethod) else task
        if not isinstance(inner, Task):
            raise DefinitionError(f"@constraint stands above @task; {task!r} is not a task yet")
        literal = {name: value for name, value in constraints.items() if "$" not in str(value)}
        try:
            requirements(literal, inner.declaration.name)
        except ConstraintError as error:
            raise DefinitionError(str(error)) from None
        inner.declaration.constraints = {**inner.declaration.constraints, **constraints}
        return task

    return apply
