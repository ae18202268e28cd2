"""How a function's code reaches the workers: by name where they can import it, by value where they cannot."""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
from collections.abc import Callable, Mapping, Sequence
from operator import is_
from types import CellType, FunctionType
from typing import Any

from penstock.data.owners import is_buffer
from penstock.data.picklers import by_value
from penstock.data.segments import Segments
from penstock.data.serializer import LARGE, pack
from penstock.errors import ArgumentChanged, SerializationError
from penstock.executors.used_names import ABSENT, Used, can_change, class_of, reached_by, snapshot, used_by
from penstock.executors.wire import Define
from penstock.model.data import Value
from penstock.runtime.declaration import Declaration

__all__ = ["ImportedSurroundings", "Surroundings", "import_attribute", "ship", "travels_by_name"]

_findable: dict[str, bool] = {}

#: bytes of a pickled global up to which it is compared at every call
_SMALL = 4096


def ship(function: int, declaration: Declaration, segments: Segments) -> Define:
    """The message that gives a worker the function."""
    name, body = declaration.name, declaration.body
    if not travels_by_name(body):
        _by_value_too(body)
    try:
        data = by_value(_reference(body))
    except Exception as error:
        raise SerializationError(
            f"the function of task {name} cannot be sent to workers: {type(error).__name__}: {error}. "
            f"It refers to something that cannot be pickled; create that inside the function."
        ) from error
    code = Value(data) if len(data) <= LARGE else pack([data], (), segments)
    return Define(
        function,
        name,
        code,
        declaration.returns,
        declaration.positional,
        scattered=declaration.scattered,
        ahead=declaration.ahead,
        private=declaration.private,
    )


class _ByName:
    """A function that workers import; its module's attribute is the task, which holds the function."""

    def __init__(self, body: Callable[..., Any]) -> None:
        self._module = body.__module__
        self._path = body.__qualname__
        found = import_attribute(self._module, self._path)
        #: the name means a function that wraps this one
        self._wrapped = found is not body and not _is_task(found)

    def __reduce__(self) -> tuple[Any, ...]:
        return import_body, (self._module, self._path, _unfinished(), self._wrapped)


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
    reference, classes = _ByName(body) if travels_by_name(body) else body, []
    if reference is body and (own := class_of(body)) is not None and not travels_by_name(own):
        classes.append(own)
    if "penstock.persistent.objects" in sys.modules:
        from penstock.persistent.forms import own_classes

        classes += own_classes()
    return _WithClasses(reference, classes) if classes else reference


def _unfinished() -> list[str]:
    """The modules that are being imported, outermost first."""
    specs = [(name, getattr(module, "__spec__", None)) for name, module in list(sys.modules.items())]
    return [name for name, spec in specs if getattr(spec, "_initializing", False) and _can_import(name)]


def import_body(module: str, path: str, unfinished: Sequence[str], wrapped: bool) -> Callable[..., Any]:
    """Import a task's function; ``unfinished`` modules were being imported when it was called.

    ``wrapped``: it is inside what the module has under that name. If not, what a function wraps is its own affair.
    Of modules that import each other, some can only be imported in the order in which the program did it.
    """
    try:
        found = import_attribute(module, path)
    except (ImportError, AttributeError):
        if not unfinished:
            raise
        for outer in unfinished:
            importlib.import_module(outer)
        found = import_attribute(module, path)
    body: Callable[..., Any] = found.__wrapped__ if wrapped or _is_task(found) else found
    return body


def _is_task(found: Any) -> bool:
    return "declaration" in getattr(found, "__dict__", ())


def import_attribute(module: str, path: str) -> Any:
    """Import what a module holds under a qualified name, without binding methods."""
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
    """What a function travelling by value takes along: globals, closure cells, defaults, as they were when it was sent.

    The next call is to see what the program has bound anew or changed in place since. What is small is compared at each
    call. For what is large that would cost more than the task: its length is, and in strict mode all of it.
    """

    def __init__(self, task: str, body: Callable[..., Any], *, strict: bool) -> None:
        self._task = task
        self._strict = strict
        self._used, objects, self._functions = reached_by(body)
        #: what of it, or in it, tasks may be given to update, by address
        self.objects = {id(one): one for one in objects}
        self.buffers = [one for one in objects if is_buffer(type(one))]
        self._globals = [(one.place, one.name, one.value) for one in self._used if isinstance(one.place, dict)]
        self._cells = [one for one in self._used if isinstance(one.place, CellType)]
        #: classes that travel along: what they have, under which names. Of methods there is no other picture
        self._classes: list[tuple[Mapping[str, Any], tuple[str, ...], tuple[Any, ...]]] = []
        #: what functions that travel along are made of
        self._made_of: list[tuple[Any, ...]] = []
        self._small: list[tuple[Any, bytes]] = []
        self._large: list[tuple[Used, int, bytes | None]] = []

    def take_pictures(self) -> None:
        """Remember what it looks like now."""
        self._made_of = [_made_of(one) for one in self._functions]
        for one in {id(one.value): one for one in reversed(self._used)}.values():  # each object once
            own_class = isinstance(one.value, type) and not travels_by_name(one.value)
            if own_class:
                self._classes.append((vars(one.value), tuple(vars(one.value)), tuple(vars(one.value).values())))
            if own_class or can_change(one.value):
                self._remember(one, snapshot(one.value), strict=self._strict)

    def _remember(self, one: Used, before: bytes | None, *, strict: bool) -> None:
        if before is None:
            return
        if len(before) <= _SMALL:
            self._small.append((one.value, before))
        else:
            self._large.append((one, _length(one.value), before if strict else None))

    def changed(self) -> bool:
        """Whether a call would meet something else than what was sent."""
        for scope, name, value in self._globals:
            if scope.get(name, ABSENT) is not value:
                return True
        if self._cells and any(one.now() is not one.value for one in self._cells):
            return True
        for function, code, defaults, keywords, attributes in self._made_of:
            if (
                function.__code__ is not code
                or function.__defaults__ is not defaults
                or function.__kwdefaults__ is not keywords
                or len(vars(function)) != attributes
            ):
                return True
        for attributes, names, values in self._classes:
            if tuple(attributes) != names or not all(map(is_, attributes.values(), values)):
                return True
        if self._small and any(snapshot(value) != before for value, before in self._small):
            return True
        return bool(self._large) and self._large_changed()

    def _large_changed(self) -> bool:
        for one, length, before in self._large:
            if _length(one.value) != length:
                return True
            if before is not None and snapshot(one.value) != before:
                raise ArgumentChanged(
                    f"the program changed {one.name!r} ({type(one.value).__name__}), which task {self._task} uses, "
                    f"after it was sent to the workers; it is too large to be compared at every call, so without "
                    f"strict mode tasks see the old one: pass it as an argument, or bind the name to another object"
                )
        return False


class ImportedSurroundings:
    """Strict mode: what a function refers to that workers import. They see it as its module makes it."""

    def __init__(self, task: str, body: Callable[..., Any]) -> None:
        self._task = task
        self._module = body.__module__
        self._used = [(one, snapshot(one.value)) for one in used_by(body)]

    def refuse_changes(self) -> None:
        """Raise if the program has changed something since the first call: no worker will see that."""
        for one, before in self._used:
            if one.now() is not one.value or (before is not None and snapshot(one.value) != before):
                raise ArgumentChanged(
                    f"the program changed {one.name!r} of module {self._module}, which task {self._task} uses, after "
                    f"the first call; workers import the module and see what it says: pass it as an argument"
                )


def _made_of(function: FunctionType) -> tuple[Any, ...]:
    """A function and what may be put in its place; of its attributes, those that are bound are looked up one by one."""
    return function, function.__code__, function.__defaults__, function.__kwdefaults__, len(vars(function))


def _length(value: Any) -> int:
    return len(value) if isinstance(value, list | dict | set | bytearray) else -1
