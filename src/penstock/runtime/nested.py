"""A task called inside a task: it runs at once, in that task's process, and gives futures that are done."""

from __future__ import annotations

import concurrent.futures
from typing import Any

from penstock.errors import ReturnsMismatch
from penstock.runtime.declaration import Declaration

__all__ = ["call_here"]


def call_here(declaration: Declaration, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the function itself; its result comes in the same form as from the main program."""
    declaration.check(args, kwargs)
    value = declaration.body(*_resolved(args), **{name: _resolved(kwargs[name]) for name in kwargs})
    if declaration.returns <= 1:
        return _done(value)
    if not isinstance(value, tuple | list) or len(value) != declaration.returns:
        count = len(value) if isinstance(value, tuple | list) else 1
        raise ReturnsMismatch(f"task {declaration.name} declares returns={declaration.returns} but returned {count}")
    return [_done(part) for part in value]


def _resolved(argument: Any) -> Any:
    """Futures of nested calls are done: pass what they hold."""
    if isinstance(argument, concurrent.futures.Future):
        return argument.result()
    if type(argument) in (list, tuple):
        return type(argument)(map(_resolved, argument))
    return argument


def _done(value: Any) -> concurrent.futures.Future[Any]:
    future: concurrent.futures.Future[Any] = concurrent.futures.Future()
    future.set_result(value)
    return future
