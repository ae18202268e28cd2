"""How a function's code reaches the workers: by name where they can import it, by value where they cannot."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Callable
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

from penstock.data.segments import Segments
from penstock.data.serializer import LARGE, pack
from penstock.errors import SerializationError
from penstock.executors.wire import Define
from penstock.model.data import Value
from penstock.runtime.declaration import Declaration

__all__ = ["Surroundings", "import_attribute", "ship", "travels_by_name"]

_findable: dict[str, bool] = {}


def ship(function: int, declaration: Declaration, segments: Segments) -> Define:
    """The message that gives a worker the function."""
    import cloudpickle

    name, body = declaration.name, declaration.body
    if not travels_by_name(body):
        _by_value_too(body)
    try:
        data = cloudpickle.dumps(_reference(body), 5)
    except Exception as error:
        raise SerializationError(
            f"the function of task {name} cannot be sent to workers: {type(error).__name__}: {error}. "
            f"It refers to something that cannot be pickled; create that inside the function."
        ) from error
    code = Value(data) if len(data) <= LARGE else pack([data], (), segments)
    scattered, ahead = declaration.scattered, declaration.ahead
    return Define(function, name, code, declaration.returns, declaration.positional, scattered=scattered, ahead=ahead)


class _ByName:
    """A function that workers import; its module's attribute is the task, which holds the function."""

    def __init__(self, body: Callable[..., Any]) -> None:
        self._module = body.__module__
        self._path = body.__qualname__

    def __reduce__(self) -> tuple[Any, ...]:
        return import_body, (self._module, self._path)


class _WithClasses:
    """A function, and classes that its arguments may be instances of although it does not name them."""

    def __init__(self, body: Any, classes: list[type]) -> None:
        self._body = body
        self._classes = classes

    def __reduce__(self) -> tuple[Any, ...]:
        return knowing, (self._body, self._classes)


#: in a worker: the newest of the classes that came with functions, by module and name
_classes: dict[tuple[str, str], type] = {}


def knowing(body: Callable[..., Any], classes: list[type]) -> Callable[..., Any]:
    """The function. The classes are found by whoever reads an object from a store, as long as somebody has them."""
    _classes.update(((one.__module__, one.__qualname__), one) for one in classes)
    return body


def _reference(body: Callable[..., Any]) -> Any:
    reference = _ByName(body) if travels_by_name(body) else body
    if "penstock.persistent.objects" not in sys.modules:
        return reference
    from penstock.persistent.forms import own_classes

    classes = own_classes()
    return _WithClasses(reference, classes) if classes else reference


def import_body(module: str, path: str) -> Callable[..., Any]:
    """Import a task's function."""
    found = import_attribute(module, path)
    body: Callable[..., Any] = getattr(found, "__wrapped__", found)
    return body


def import_attribute(module: str, path: str) -> Any:
    """Import what a module holds under a qualified name, without binding methods."""
    import importlib

    found: Any = importlib.import_module(module)
    for step in path.split("."):
        found = found.__dict__[step] if isinstance(found, type) else getattr(found, step)
        if isinstance(found, classmethod | staticmethod):
            found = found.__func__
    return found


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


class Surroundings:
    """The globals and closure cells that a function travelling by value takes along, as they were when it was sent.

    A program or a notebook that binds one of these names anew expects the next call to see it.
    """

    def __init__(self, body: Callable[..., Any]) -> None:
        self._globals: list[tuple[dict[str, Any], str, Any]] = []
        self._cells: list[tuple[CellType, Any]] = []
        self._seen: set[int] = set()
        self._note(body)

    def changed(self) -> bool:
        """Whether a call would meet other objects than those that were sent."""
        for names, name, value in self._globals:
            if names.get(name, _ABSENT) is not value:
                return True
        return any(_content(cell) is not value for cell, value in self._cells) if self._cells else False

    def _note(self, function: Any) -> None:
        function = getattr(function, "__wrapped__", function)
        if not isinstance(function, FunctionType) or id(function) in self._seen:
            return
        self._seen.add(id(function))
        for name in _names(function.__code__):
            value = function.__globals__.get(name, _ABSENT)
            if value is not _ABSENT and not isinstance(value, ModuleType):
                self._globals.append((function.__globals__, name, value))
                if getattr(value, "__module__", None) == function.__module__:
                    self._note(value)
        for cell in function.__closure__ or ():
            self._cells.append((cell, _content(cell)))


_ABSENT = object()


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
        return _ABSENT  # not bound yet
