"""Classes that travel by value, when they come back to the process that defined them.

A class of the main program goes to the workers by value, and with each of its instances it comes back. cloudpickle
knows it again, but not before it has made another one, of which base classes and metaclasses hear; and it gives the
class the attributes that it had over there: methods that see other globals, and old data. Here we see to it that a
class that is known is not made again, and that one that is at home in this process stays as it is.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

__all__ = ["leave_own_classes"]


@functools.cache
def leave_own_classes() -> None:
    """To be called before a class is pickled by value."""
    from cloudpickle import cloudpickle

    set_state = cloudpickle._class_setstate

    @functools.wraps(set_state)  # so that it is pickled by the same name
    def set_state_of_others(cls: type, state: Any) -> type:
        return cls if _is_own(cls) else set_state(cls, state)

    cloudpickle._class_setstate = set_state_of_others
    for name in ("_make_skeleton_class", "_make_skeleton_enum"):
        setattr(cloudpickle, name, _unless_known(getattr(cloudpickle, name), cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID))


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
