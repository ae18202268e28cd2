"""``@implement``: a task gets another implementation, if that takes and gives the same."""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import replace
from typing import Any

from penstock.api.task import Task
from penstock.errors import DefinitionError
from penstock.runtime.declaration import Declaration

__all__ = ["add_implementation", "task_named"]


def add_implementation(target: Any, other: Task[..., Any]) -> None:
    """From its next call on, the task ``target`` may be done by the function of ``other``."""
    name = other.declaration.name
    if isinstance(target, classmethod | staticmethod):
        target = target.__func__
    if not isinstance(target, Task):
        raise DefinitionError(f"@implement of {name}: of={target!r} is not a task; decorate it with @task")
    declared = target.declaration
    if target is other or declared.body is other.declaration.body:
        raise DefinitionError(f"@implement of {name}: a task is its own implementation already")
    _check(declared, other.declaration)
    # A new declaration, not a change of the old one: runs know a function by its declaration.
    target.declaration = replace(declared, implementations=(*declared.implementations, other.declaration))


def _check(first: Declaration, other: Declaration) -> None:
    """Refuse an implementation that callers could tell from the other."""
    for declaration in (first, other):
        if declaration.mpi is not None:
            raise DefinitionError(
                f"@implement of {other.name}: {declaration.name} is an MPI task, which has one implementation"
            )
        if declaration.io:
            raise DefinitionError(
                f"@implement of {other.name}: {declaration.name} is an I/O task; only tasks that compute can have "
                f"several implementations"
            )
    parameters = [
        [(one.name, one.kind, one.default) for one in declaration.signature.parameters.values()]
        for declaration in (first, other)
    ]
    if parameters[0] != parameters[1]:
        raise DefinitionError(
            f"@implement of {other.name}: it must take what {first.name} takes: "
            f"{first.name}{first.signature}, but {other.name}{other.signature}"
        )
    if dict(first.directions) != dict(other.directions):
        raise DefinitionError(
            f"@implement of {other.name}: directions of its parameters must be those of {first.name}: "
            f"{_shown(first)}, but it has {_shown(other)}"
        )
    streamed = any(direction.stream and direction.reads for direction in first.directions.values())
    if streamed and first.is_program != other.is_program:
        raise DefinitionError(
            f"@implement of {other.name}: a program is given the path of a STREAM_IN, a function an open file; "
            f"{first.name} and {other.name} must both be programs, or functions"
        )
    if first.returns != other.returns:
        raise DefinitionError(
            f"@implement of {other.name}: returns must be as in {first.name}; declare both alike in @task"
        )


def _shown(declaration: Declaration) -> str:
    return ", ".join(f"{name}={direction}" for name, direction in declaration.directions.items()) or "none"


def task_named(module: str, name: str, below: Task[..., Any]) -> Any:
    """The task that a module holds under a name; the module may be the one that is being run or imported now."""
    where = f"@implement of {below.declaration.name}: source_class={module!r}, method={name!r}"
    body = below.declaration.body
    own = getattr(body, "__module__", "")
    running = os.path.splitext(os.path.basename(getattr(sys.modules.get("__main__"), "__file__", None) or ""))[0]
    if module == own or (own == "__main__" and module == running):
        scope: dict[str, Any] = getattr(body, "__globals__", None) or vars(sys.modules[own])
    else:
        try:
            scope = vars(importlib.import_module(module))
        except ImportError as error:
            raise DefinitionError(f"{where}: the module cannot be imported: {error}") from None
    if name not in scope:
        raise DefinitionError(f"{where}: there is no {name} in that module; define it before its implementations")
    return scope[name]
