"""The arguments of an MPI task as one rank gets them: its part of what is scattered."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from penstock.errors import CallError
from penstock.executors.execution import Function
from penstock.executors.wire import Define

__all__ = ["part_of", "with_parts"]


def with_parts(function: Function, declared: Define, rank: int, size: int) -> Callable[..., Any]:
    """The body of a task as one of ``size`` ranks is to call it."""
    if not declared.scattered:
        return function.body

    @functools.wraps(function.body)
    def body(*args: Any, **kwargs: Any) -> Any:
        arguments: dict[Any, Any] = {**dict(enumerate(args)), **kwargs}
        for place, given in arguments.items():
            name = _name(declared, place)
            if name in declared.scattered:
                arguments[place] = part_of(given, rank, size, f"argument {name!r} of task {function.name}")
        args = tuple(arguments[i] for i in range(len(args)))
        return function.body(*args, **{name: arguments[name] for name in kwargs})

    return body


def part_of(whole: Any, rank: int, size: int, what: str) -> Any:
    """The part of a sequence that a rank gets: contiguous, and the first ones longer by one where it does not divide.

    A slice: of an array, a view.
    """
    try:
        length = len(whole)
        if isinstance(whole, Mapping | set | frozenset):
            raise TypeError
        each, more = divmod(length, size)
        first = rank * each + min(rank, more)
        return whole[first : first + each + (rank < more)]
    except TypeError:
        raise CallError(
            f"{what} is declared SCATTER, but a {type(whole).__name__} has no parts; give a list, a tuple or an array"
        ) from None


def _name(declared: Define, place: int | str) -> str:
    """The parameter that an argument's place means."""
    if isinstance(place, str):
        return place
    return declared.parameters[place] if place < len(declared.parameters) else ""
