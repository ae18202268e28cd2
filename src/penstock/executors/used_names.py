"""What a function refers to outside of itself: globals of its module, cells of the functions around it.

A function that travels by value takes them along, as they were then (runtime/shipping.py); strict mode looks whether a
task changes them (strict.py). Functions of the same module that it refers to count as parts of it.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

__all__ = ["ABSENT", "Used", "attributes", "can_change", "snapshot", "used_by"]

#: stands for a name that is not bound
ABSENT = object()

_UNCHANGING = frozenset(
    {
        *(int, float, complex, bool, str, bytes, type(None), range, type(...), type(NotImplemented)),
        *(FunctionType, BuiltinFunctionType, ModuleType, type),
    }
)


class Used(NamedTuple):
    """One of them, and its value when it was looked at."""

    #: where it is looked up
    place: dict[str, Any] | CellType
    name: str
    value: Any

    def now(self) -> Any:
        """Its value now."""
        place = self.place
        return place.get(self.name, ABSENT) if isinstance(place, dict) else _content(place)


def used_by(function: Any) -> list[Used]:
    """All that a function refers to, modules excepted."""
    return list(_used_by(function, set()))


def _used_by(function: Any, seen: set[int]) -> Iterator[Used]:
    function = getattr(function, "__wrapped__", function)
    if not isinstance(function, FunctionType) or id(function) in seen:
        return
    seen.add(id(function))
    for name in sorted(_names(function.__code__)):
        value = function.__globals__.get(name, ABSENT)
        if value is not ABSENT and not isinstance(value, ModuleType):
            yield Used(function.__globals__, name, value)
            if getattr(value, "__module__", None) == function.__module__:
                yield from _used_by(value, seen)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield Used(cell, name, _content(cell))


def _names(code: CodeType) -> set[str]:
    """Names that a function and the functions inside it look up in their module."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _names(constant)
    return names


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return ABSENT  # not bound yet


def can_change(value: Any) -> bool:
    """Whether an object may be changed in place."""
    return value is not ABSENT and type(value) not in _UNCHANGING and not hasattr(value, "__wrapped__")


def snapshot(value: Any) -> bytes | None:
    """What an object, or what is stored in a class, looks like now; None if it cannot be said."""
    try:
        return pickle.dumps(attributes(value) if isinstance(value, type) else value, 5)
    except Exception:
        return None


def attributes(cls: type) -> dict[str, Any]:
    """The data that a class holds, without its methods and what belongs to any class."""
    return {
        name: value
        for name, value in vars(cls).items()
        if not (name.startswith("__") and name.endswith("__")) and not callable(value) and not hasattr(value, "__get__")
    }
