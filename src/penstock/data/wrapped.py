"""Functions with something around them that travel by value: cached ones, cached properties, and generic functions.

cloudpickle takes a function that ``functools`` has wrapped in an object written in C for one that others can import,
and cannot send the locks and weak references of the others. What they have cached stays at home, since each process
has caches of its own.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any

__all__ = ["teach_wrapped"]


@functools.cache
def teach_wrapped() -> None:
    """To be called before functions are pickled by value."""
    from cloudpickle import Pickler

    table = Pickler.dispatch_table.maps[0]
    table.setdefault(functools._lru_cache_wrapper, _reduce_cached)
    table.setdefault(functools.cached_property, _reduce_property)
    table.setdefault(weakref.WeakKeyDictionary, _reduce_weak)


def _reduce_cached(function: Any) -> Any:
    from cloudpickle import cloudpickle

    if cloudpickle._lookup_module_and_qualname(function) is not None:
        return function.__reduce__()
    return _cached, (function.__wrapped__, function.cache_parameters())


def _cached(function: Any, parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def _reduce_property(one: Any) -> Any:
    return _property, (one.func, one.attrname)


def _property(function: Any, name: str | None) -> Any:
    made: functools.cached_property[Any] = functools.cached_property(function)
    if name is not None:
        made.__set_name__(object, name)  # nobody else will: it is put into a class that exists already
    return made


def _reduce_weak(one: Any) -> Any:
    return weakref.WeakKeyDictionary, (dict(one),)
