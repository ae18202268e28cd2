"""A task called inside a task: it runs at once, in that task's process, and gives futures that are done."""

from __future__ import annotations

import concurrent.futures
from typing import Any

from penstock.errors import CallError, ReturnsMismatch
from penstock.executors.nested import DoneFuture
from penstock.runtime.declaration import Declaration

__all__ = ["call_here"]


def call_here(declaration: Declaration, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the function itself; its result comes in the same form as from the main program."""
    declaration.check(args, kwargs)
    if declaration.mpi is not None:
        raise CallError(
            f"MPI task {declaration.name} was called inside a task, where it cannot have ranks of its own; call it "
            f"from the main program"
        )
    seen: set[int] = set()
    try:
        args = tuple(_resolved(argument, seen) for argument in args)
        kwargs = {name: _resolved(kwargs[name], seen) for name in kwargs}
        value = declaration.body(*args, **kwargs)
        if declaration.returns > 1 and (not isinstance(value, tuple | list) or len(value) != declaration.returns):
            count = len(value) if isinstance(value, tuple | list) else 1
            raise ReturnsMismatch(
                f"task {declaration.name} declares returns={declaration.returns} but returned {count} values"
            )
    except Exception as error:
        failed = [DoneFuture(error=error) for _ in range(declaration.outputs)]
        return failed[0] if declaration.returns <= 1 else failed
    return DoneFuture(value) if declaration.returns <= 1 else [DoneFuture(part) for part in value]


def _resolved(obj: Any, seen: set[int]) -> Any:
    """The object with what futures hold in their places; containers and instances stay the objects they are."""
    if isinstance(obj, concurrent.futures.Future):
        return obj.result()
    if id(obj) in seen:
        return obj
    if isinstance(obj, tuple):
        parts = [_resolved(part, seen) for part in obj]
        if all(new is old for new, old in zip(parts, obj, strict=True)):
            return obj
        return type(obj)(*parts) if hasattr(obj, "_fields") else type(obj)(parts)
    if isinstance(obj, list | dict):
        seen.add(id(obj))
        _resolve_items(obj, list(obj.items()) if isinstance(obj, dict) else list(enumerate(obj)), seen)
    elif type(getattr(obj, "__dict__", None)) is dict and not isinstance(obj, type):
        seen.add(id(obj))
        _resolve_items(obj.__dict__, list(obj.__dict__.items()), seen)
    return obj


def _resolve_items(container: Any, items: list[tuple[Any, Any]], seen: set[int]) -> None:
    for key, part in items:
        new = _resolved(part, seen)
        if new is not part:
            container[key] = new
