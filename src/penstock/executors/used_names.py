"""What a function refers to outside of itself: globals of its module, cells of the functions around it, defaults.

A function that travels by value takes them along, as they were then (runtime/shipping.py); strict mode looks whether a
task changes them (strict.py). Functions and classes of the same module that it refers to, wherever it holds them, count
as parts of it; so does what a partial function, a bound method or a callable object is made of.
"""

from __future__ import annotations

import dis
import io
import pickle
from collections import deque
from collections.abc import Iterable, Iterator
from functools import cached_property, partial
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

__all__ = ["ABSENT", "Used", "attributes", "can_change", "class_of", "reached_by", "snapshot", "used_by"]

#: stands for a name that is not bound
ABSENT = object()

_UNCHANGING = frozenset(
    {
        *(int, float, complex, bool, str, bytes, type(None), range, type(...), type(NotImplemented)),
        *(FunctionType, BuiltinFunctionType, ModuleType, type),
    }
)


#: of those, what nothing can be found in
_ATOMS = _UNCHANGING - {FunctionType, type}

_CONTAINERS = (list, tuple, set, frozenset, deque)

#: objects that are looked at, at most: what holds more is data
_MOST = 2_000


#: how code names globals, and how the body of a class does, which is inside of a function's code
_LOOKED_UP = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL"})


class Used(NamedTuple):
    """One of them, and its value when it was looked at."""

    #: where it is looked up; None if it is always the same object
    place: dict[str, Any] | CellType | None
    name: str
    value: Any

    def now(self) -> Any:
        """Its value now."""
        place = self.place
        if place is None:
            return self.value
        return place.get(self.name, ABSENT) if isinstance(place, dict) else _content(place)


def used_by(function: Any) -> list[Used]:
    """All that a function refers to, modules and names that are not bound excepted."""
    return [one for one in reached_by(function)[0] if one.value is not ABSENT or not isinstance(one.place, dict)]


def reached_by(function: Any) -> tuple[list[Used], list[Any], list[FunctionType]]:
    """All that a function refers to, modules excepted; of the objects there those that may change; and the functions.

    A global that is not bound yet is there too: it is one of Python's own names perhaps, which the program may hide.
    """
    home = _home(function)
    used: dict[tuple[int, str], Used] = {}
    seen: dict[int, Any] = {}
    waiting = [function]
    if not isinstance(function, FunctionType):
        used[0, ""] = Used(None, type(function).__name__, function)
    while waiting and len(seen) < _MOST:
        value = waiting.pop()
        if type(value) in _ATOMS or id(value) in seen:
            continue
        seen[id(value)] = value
        for one in _parts(value, home):
            if isinstance(one, Used):
                used.setdefault((id(one.value if one.place is None else one.place), one.name), one)
                waiting.append(one.value)
            else:
                waiting.append(one)
    functions = [value for value in seen.values() if isinstance(value, FunctionType) and _is_part(value, home)]
    return list(used.values()), [value for value in seen.values() if can_change(value)], functions


def _home(function: Any) -> str | None:
    """The module whose functions and classes are parts of a function."""
    while isinstance(function, partial | MethodType):
        function = function.func if isinstance(function, partial) else function.__func__
    return getattr(function, "__module__", None)


def _parts(value: Any, home: str | None) -> Iterator[Any]:
    """What an object is made of, as far as it travels along; as ``Used`` what may be bound anew or changed."""
    if isinstance(value, FunctionType):
        if _is_part(value, home):
            yield from _parts_of_function(value)
    elif isinstance(value, type):
        if value.__module__ == home:
            yield Used(None, value.__name__, value)
            yield from (*value.__bases__, *attributes(value).values())
            for name, one in vars(value).items():
                yield from _held_by_class(f"{value.__name__}.{name}", one, home)
    elif isinstance(value, partial):
        yield from (value.func, *_fixed(value.func, enumerate((*value.args, *value.keywords.values()))))
    elif isinstance(value, MethodType):
        yield from (value.__func__, *_fixed(value, [("self", value.__self__)]))
    elif isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, _CONTAINERS):
        yield from value
    elif isinstance(wrapped := getattr(value, "__wrapped__", None), FunctionType):
        yield wrapped  # a task
    elif type(value).__module__ == home:
        yield type(value)
        state = getattr(value, "__dict__", None)
        if type(state) is dict:
            yield from state.values()


def _is_part(function: FunctionType, home: str | None) -> bool:
    return function.__module__ == home or "<locals>" in function.__qualname__


def class_of(function: Any) -> type | None:
    """The class that a function is a method of, if it can be found."""
    *path, _ = getattr(function, "__qualname__", "").split(".")
    scope, found = getattr(function, "__globals__", {}), None
    for name in path:
        value = scope.get(name)
        if not isinstance(value, type):
            return None
        scope, found = vars(value), value
    return found


def _parts_of_function(function: FunctionType) -> Iterator[Any]:
    yield class_of(function)  # its instances are mostly among the arguments
    for name in sorted(_names(function.__code__)):
        value = function.__globals__.get(name, ABSENT)
        if not isinstance(value, ModuleType):
            yield Used(function.__globals__, name, value)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield Used(cell, name, _content(cell))
    yield from _fixed(function, enumerate(function.__defaults__ or ()))
    yield from _fixed(function, (function.__kwdefaults__ or {}).items())
    for name, value in vars(function).items():  # that the program gave it
        yield Used(vars(function), name, value)


def _held_by_class(name: str, attribute: Any, home: str | None) -> Iterator[Any]:
    """What is behind an attribute of a class that is no data: functions, a class, an object that is called or asked."""
    if isinstance(attribute, property):
        yield from (attribute.fget, attribute.fset, attribute.fdel)
    elif isinstance(attribute, staticmethod | classmethod):
        yield attribute.__func__
    elif isinstance(attribute, cached_property):
        yield attribute.func
    elif isinstance(attribute, FunctionType | type):
        yield attribute
    elif isinstance(getattr(attribute, "__wrapped__", None), FunctionType):
        yield attribute  # a task
    elif type(attribute).__module__ == home and (callable(attribute) or hasattr(attribute, "__get__")):
        yield Used(None, name, attribute)


def _fixed(owner: Any, values: Iterable[tuple[Any, Any]]) -> Iterator[Used]:
    """What an object holds that cannot be bound anew."""
    name = getattr(owner, "__name__", type(owner).__name__)
    return (Used(None, f"{name}[{key}]", value) for key, value in values if type(value) not in _ATOMS)


def _names(code: CodeType) -> set[str]:
    """Names that a function and the functions inside it look up in their module."""
    names = {one.argval for one in dis.get_instructions(code) if one.opname in _LOOKED_UP}
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
    content = attributes(value) if isinstance(value, type) else value
    try:
        return pickle.dumps(content, 5)
    except Exception:
        return _snapshot_of_own(content)


def _snapshot_of_own(content: Any) -> bytes | None:
    """The same for what only cloudpickle can send. Functions, classes and modules in it are themselves."""
    from cloudpickle import cloudpickle

    file = io.BytesIO()
    pickler = _Snapshot(file, 5)
    pickler.dispatch_table = cloudpickle.Pickler.dispatch_table
    try:
        pickler.dump(content)
    except Exception:
        return None
    return file.getvalue()


class _Snapshot(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, FunctionType) and obj is not _stand_in:
            return _stand_in, (id(obj), hash(obj.__code__))
        return (_stand_in, (id(obj), obj.__name__)) if isinstance(obj, type | ModuleType) else NotImplemented


def _stand_in(*marks: Any) -> None:
    """What a snapshot has in the place of a function, class or module; snapshots are compared, and never loaded."""


def attributes(cls: type) -> dict[str, Any]:
    """The data that a class holds, without its methods and what belongs to any class."""
    return {
        name: value
        for name, value in vars(cls).items()
        if name != "_abc_impl"  # of abstract classes: what they know of their subclasses
        and not (name.startswith("__") and name.endswith("__"))
        and not callable(value)
        and not hasattr(value, "__get__")
    }
