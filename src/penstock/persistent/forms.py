"""The form in which a store keeps an object: its class, its pickled state, and the buffers beside it.

A class that others can import is kept by name. One of ``__main__`` or of a notebook is kept by value too, for processes
that have no such class; those that have one use theirs.
"""

from __future__ import annotations

import importlib
import pickle
import sys
import types
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.data.own_classes import leave_own_classes
from penstock.data.serializer import dump_stream
from penstock.data.slots import current
from penstock.errors import StorageError, WrongClass

if TYPE_CHECKING:
    from penstock.persistent.objects import PersistentObject

__all__ = ["class_of", "form", "own_classes", "state_of"]

Buffer = bytes | bytearray | memoryview


class Kind(msgspec.Struct, frozen=True, array_like=True):
    """A class."""

    module: str
    name: str
    #: its pickled definition, if it cannot be imported
    code: bytes | None = None


#: pickled definitions of classes that cannot be imported
_codes: weakref.WeakKeyDictionary[type, bytes] = weakref.WeakKeyDictionary()
#: names that every class has, however empty
_bare: set[str] = set()
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Kind).decode


def form(obj: PersistentObject) -> tuple[list[Buffer], str]:
    """The parts of an object, and the name of its class."""
    kind = type(obj)
    what = f"object {obj!r}"
    # What is inside and is stored itself is referred to by its id, whoever is packing arguments just now.
    outside = current.referring, current.referred
    current.referring, current.referred = None, []
    try:
        stream, buffers = dump_stream(_state(obj), what)
        obj._link.refers_to = tuple(dict.fromkeys(state.rpartition("\n")[0] for state in current.referred))
    finally:
        current.referring, current.referred = outside
    return [_encode(_described(kind)), stream, *(buffer.raw() for buffer in buffers)], kind.__qualname__


def _state(obj: PersistentObject) -> Any:
    state = obj.__getstate__()
    if not obj.fields or not isinstance(state, dict):
        return state
    stored = obj.fields.keys() | obj._link.undeclared
    strangers = [name for name in state if name not in stored and not name.startswith("_")]
    if strangers:
        raise StorageError(
            f"{obj!r} has an attribute {strangers[0]!r} that is no declared field of {type(obj).__qualname__} and "
            f"would be lost: declare it ({strangers[0]}: type), or give it a name with an underscore to leave it out"
        )
    return {name: value for name, value in state.items() if name in stored}


def _described(kind: type) -> Kind:
    if not _travels_by_value(kind):
        return Kind(kind.__module__, kind.__qualname__)
    code = _codes.get(kind)
    if code is None:
        import cloudpickle

        leave_own_classes()
        code = _codes[kind] = cloudpickle.dumps(kind, 5)
    return Kind(kind.__module__, kind.__qualname__, code)


def own_classes() -> list[type]:
    """Classes of persistent objects of the program itself: workers must use these, not those in the store."""
    from penstock.persistent.objects import PersistentObject

    return [one for one in _descendants(PersistentObject) if one.__module__ == "__main__"]


def _travels_by_value(kind: type) -> bool:
    return "<locals>" in kind.__qualname__ or kind.__module__ == "__main__" or _imported(kind) is not kind


def _imported(kind: type) -> Any:
    found: Any = sys.modules.get(kind.__module__)
    for step in kind.__qualname__.split("."):
        found = getattr(found, step, None)
    return found


def class_of(head: Buffer, identifier: str) -> type[PersistentObject]:
    """The class of a stored object, as this process has it."""
    from penstock.persistent.objects import PersistentObject

    try:
        kind = _decode(head)
    except msgspec.DecodeError as error:
        raise StorageError(f"object {identifier!r} is no object of ours: {error}") from error
    found: Any = _known(kind, PersistentObject)
    if found is None:
        found = _loaded(kind, identifier)
    if not (isinstance(found, type) and issubclass(found, PersistentObject)):
        raise WrongClass(
            f"object {identifier!r} is a {kind.module}.{kind.name}, which is no class of persistent objects here"
        )
    return found


def _known(kind: Kind, base: type) -> type | None:
    """The class of this name that exists here; the last one defined, if a notebook defined it several times."""
    module: Any = sys.modules.get(kind.module)
    for step in kind.name.split("."):
        module = getattr(module, step, None)
    if isinstance(module, type):
        return module
    named = [one for one in _descendants(base) if (one.__module__, one.__qualname__) == (kind.module, kind.name)]
    if len(named) > 1:
        named = [one for one in named if not _is_left_over(one, base)] or named[:1]
    return named[-1] if named else None


def _is_left_over(one: type, base: type) -> bool:
    """Whether a class is only what unpickling a known definition leaves: an empty one, in whose place the known is."""
    if not _bare:
        _bare.update(vars(types.new_class("Bare", (base,), {}, lambda names: names.update(__module__=__name__))))
    tracked = getattr(sys.modules.get("cloudpickle.cloudpickle"), "_DYNAMIC_CLASS_TRACKER_BY_CLASS", ())
    return vars(one).keys() <= _bare and one not in tracked


def _descendants(base: type) -> Iterator[type]:
    children: list[type] = base.__subclasses__()
    for one in children:
        yield one
        yield from _descendants(one)


def _loaded(kind: Kind, identifier: str) -> Any:
    try:
        if kind.code is not None:
            return pickle.loads(kind.code)
        found: Any = importlib.import_module(kind.module)
        for step in kind.name.split("."):
            found = getattr(found, step)
        return found
    except Exception as error:
        raise WrongClass(
            f"object {identifier!r} is a {kind.module}.{kind.name}, and that class cannot be found here: "
            f"{type(error).__name__}: {error}"
        ) from error


def state_of(stream: Buffer, buffers: Sequence[Buffer], identifier: str, kind: type) -> Any:
    """The state of an object."""
    try:
        return pickle.loads(stream, buffers=buffers)
    except StorageError:
        raise
    except Exception as error:
        raise StorageError(
            f"object {identifier!r}, a {kind.__qualname__}, cannot be loaded: {type(error).__name__}: {error}"
        ) from error
