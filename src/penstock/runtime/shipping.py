"""How a function's code reaches the workers: by name where they can import it, by value where they cannot."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Callable
from typing import Any

from penstock.data.segments import Segments
from penstock.data.serializer import LARGE, pack
from penstock.errors import SerializationError
from penstock.executors.wire import Define
from penstock.model.data import Value

__all__ = ["ship", "travels_by_name"]

_findable: dict[str, bool] = {}


def ship(function: int, name: str, body: Callable[..., Any], returns: int, segments: Segments) -> Define:
    """The message that gives a worker the function."""
    import cloudpickle

    if not travels_by_name(body):
        _by_value_too(body)
    try:
        data = cloudpickle.dumps(_reference(body), 5)
    except Exception as error:
        raise SerializationError(
            f"the function of task {name} cannot be sent to workers: {type(error).__name__}: {error}. "
            f"It refers to something that cannot be pickled; create that inside the function."
        ) from error
    code = Value(data) if len(data) <= LARGE else pack(data, (), segments)
    return Define(function, name, code, returns)


class _ByName:
    """A function that workers import; its module's attribute is the task, which holds the function."""

    def __init__(self, body: Callable[..., Any]) -> None:
        self._module = body.__module__
        self._path = body.__qualname__

    def __reduce__(self) -> tuple[Any, ...]:
        return import_body, (self._module, self._path)


def _reference(body: Callable[..., Any]) -> Any:
    return _ByName(body) if travels_by_name(body) else body


def import_body(module: str, path: str) -> Callable[..., Any]:
    """Import a task's function."""
    import importlib

    found: Any = importlib.import_module(module)
    for step in path.split("."):
        found = found.__dict__[step] if isinstance(found, type) else getattr(found, step)
        if isinstance(found, classmethod | staticmethod):
            found = found.__func__
    body: Callable[..., Any] = getattr(found, "__wrapped__", found)
    return body


def travels_by_name(body: Callable[..., Any]) -> bool:
    """Whether a worker that imports the function's module finds this function there."""
    module = getattr(body, "__module__", None)
    path = getattr(body, "__qualname__", "<locals>")
    if module is None or module == "__main__" or "<" in path or not _can_import(module):
        return False
    try:
        found: Any = sys.modules[module]
        for step in path.split("."):
            found = found.__dict__[step]
    except (KeyError, AttributeError):
        return False
    if isinstance(found, classmethod | staticmethod):
        found = found.__func__
    return found is body or getattr(found, "__wrapped__", None) is body


def _can_import(module: str) -> bool:
    """Whether a fresh interpreter with our import path finds the module's top-level package."""
    top = module.partition(".")[0]
    if top not in _findable:
        try:
            builtin = top in sys.builtin_module_names
            _findable[top] = builtin or importlib.machinery.PathFinder.find_spec(top) is not None
        except (ImportError, ValueError):
            _findable[top] = False
    return _findable[top]


def _by_value_too(body: Callable[..., Any]) -> None:
    """Have the rest of a module that workers cannot import travel with the function."""
    import cloudpickle

    module = sys.modules.get(getattr(body, "__module__", None) or "")
    if module is not None and module.__name__ != "__main__" and not _can_import(module.__name__):
        cloudpickle.register_pickle_by_value(module)
