"""Classes that travel by value, when they come back to the process that defined them.

A class of the main program goes to the workers by value, and with each of its instances it comes back. cloudpickle
knows it again, but not before it has made another one, of which base classes and metaclasses hear; and it gives the
class the attributes that it had over there: methods that see other globals, and old data. Here we see to it that a
class that is known is not made again, and that one that is at home in this process stays as it is.

cloudpickle also makes a class with ``__slots__`` without them, so that its instances have their attributes elsewhere
than those at home, and do not survive the way back; here it is made with them.

The program may change a class, and says so to workers with the next function that uses it. A value that a worker made
earlier brings the class as it was then: who only passes a class on knows no better than one who has it.
"""

from __future__ import annotations

import dis
import enum
import functools
import sys
import weakref
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, NamedTuple

from penstock.data import own_enums
from penstock.data.wrapped import teach_wrapped

__all__ = ["leave_own_classes", "set_state_if_new"]

#: what any class has, also one that has not been given its state yet
_OF_ANY_CLASS = frozenset({"__module__", "__doc__", "__dict__", "__weakref__"})


@functools.cache
def leave_own_classes() -> None:
    """To be called before functions or classes are pickled by value."""
    from cloudpickle import cloudpickle

    teach_wrapped()
    # What the body of a class inside a function uses goes along too.
    cloudpickle.GLOBAL_OPS = (*cloudpickle.GLOBAL_OPS, dis.opmap["LOAD_NAME"])
    set_state = cloudpickle._class_setstate
    made_here: weakref.WeakSet[type] = weakref.WeakSet()

    @functools.wraps(set_state)  # so that it is pickled by the same name
    def set_state_of_others(cls: type, state: Any) -> type:
        return cls if cls in made_here or _is_own(cls) else set_state(cls, state)

    cloudpickle._class_setstate = set_state_of_others
    reduce, tracked = cloudpickle._dynamic_class_reduce, cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS

    @functools.wraps(reduce)
    def reduce_as_known(cls: type) -> tuple[Any, ...]:
        if cls not in tracked:  # it has not come from anywhere, nor been sent before
            made_here.add(cls)
        reduced: tuple[Any, ...] = reduce(cls)
        if issubclass(cls, enum.Enum):
            as_known = cls in made_here or _is_own(cls)
            return (own_enums.make_enum, *reduced[1:-1], set_enum if as_known else set_enum_if_new)
        return reduced if cls in made_here or _is_own(cls) else (*reduced[:-1], set_state_if_new)

    cloudpickle._dynamic_class_reduce = reduce_as_known
    cloudpickle._class_getnewargs = _with_slots(cloudpickle._class_getnewargs)
    cloudpickle._enum_getnewargs = own_enums.with_members(cloudpickle._enum_getnewargs)
    cloudpickle._enum_getstate = own_enums.with_attributes(cloudpickle._enum_getstate)
    for name in ("_make_skeleton_class", "_make_skeleton_enum"):
        setattr(cloudpickle, name, _unless_known(getattr(cloudpickle, name), cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID))


def set_state_if_new(cls: type, state: tuple[dict[str, Any], dict[str, Any]]) -> type:
    """Give a class its state as somebody knows it who was given it too, unless it has one."""
    from cloudpickle import cloudpickle

    names = state[0].keys() - _OF_ANY_CLASS
    if names and names <= vars(cls).keys():
        return cls
    given: type = cloudpickle._class_setstate(cls, state)
    return given


def set_enum(cls: type, state: tuple[dict[str, Any], dict[str, Any]]) -> type:
    """The same for an enum as its own process knows it, whose state are the attributes of its members as well."""
    from cloudpickle import cloudpickle

    return _with_members(cloudpickle._class_setstate(cls, state), state)


def set_enum_if_new(cls: type, state: tuple[dict[str, Any], dict[str, Any]]) -> type:
    return _with_members(set_state_if_new(cls, state), state)


def _with_members(cls: type, state: tuple[dict[str, Any], dict[str, Any]]) -> type:
    if not _is_own(cls):
        own_enums.set_members(cls, state[1])
    return cls


def _with_slots(arguments: Callable[[type], tuple[Any, ...]]) -> Callable[[type], tuple[Any, ...]]:
    @functools.wraps(arguments)
    def with_slots(cls: type) -> tuple[Any, ...]:
        kind, name, bases, namespace, *rest = arguments(cls)
        if "__slots__" in vars(cls) and NamedTuple not in bases:  # which has them by itself, and refuses ours
            namespace["__slots__"] = vars(cls)["__slots__"]
        return kind, name, bases, namespace, *rest

    return with_slots


def _unless_known(make: Callable[..., type], known: Mapping[str, type]) -> Callable[..., type]:
    @functools.wraps(make)
    def find_or_make(*args: Any) -> type:
        found = known.get(args[-2])  # the number by which it is known
        return make(*args) if found is None else found

    return find_or_make


def _is_own(cls: type) -> bool:
    """Whether a class was made by the code of a module: it is found there, or its methods have a module's globals.

    Those of methods that were loaded are made by cloudpickle, and know nothing of how a module came about.
    """
    found: Any = sys.modules.get(cls.__module__)
    for step in cls.__qualname__.split("."):
        found = getattr(found, "__dict__", {}).get(step)
    return found is cls or any(_comes_from(cls.__module__, value) for value in vars(cls).values())


def _comes_from(module: str, value: Any) -> bool:
    function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
    return (
        isinstance(function, FunctionType)
        and "__spec__" in function.__globals__
        and function.__globals__.get("__name__") == module
    )
