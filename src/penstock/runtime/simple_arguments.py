"""The short way for arguments with nothing to look for in them: numbers, strings, small plain containers, and futures.

Most calls have no others. What they come to is the same, byte for byte, as by the long way (arguments.py), which is
taken whenever there is any doubt.
"""

from __future__ import annotations

import pickle
import sys
from enum import Enum
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from penstock.data.reach import may_hold
from penstock.data.serializer import LARGE
from penstock.data.slots import SlotRef
from penstock.model.data import Value, VersionId
from penstock.runtime.futures import UNLOADED, Future

if TYPE_CHECKING:
    from penstock.runtime.runtime import Runtime

__all__ = ["EMPTY", "is_immutable", "kind_of_named", "never_changes", "packed_simply"]

#: a call without arguments
EMPTY = Value(pickle.dumps(((), {}), 5))

_IMMUTABLE = frozenset({int, float, complex, bool, str, bytes, type(None), range, type(...)})

_PATHS = ("Path", "PosixPath", "PurePath", "PurePosixPath", "PureWindowsPath")
#: classes whose objects can never change either, by module: none of these is imported for the question
_VALUES = {
    "datetime": ("date", "datetime", "time", "timedelta", "timezone"),
    "decimal": ("Decimal",),
    "fractions": ("Fraction",),
    "pathlib": _PATHS,
    "pathlib._local": _PATHS,  # where they are from Python 3.13 on
    "uuid": ("UUID",),
}

#: what each process has of its own and knows by name, and what it is called
_NAMED: dict[type | tuple[type, ...], str] = {
    type: "a class",
    (FunctionType, BuiltinFunctionType): "a function",
    ModuleType: "a module",
    Enum: "a member of an enumeration",
}
_OF_NAMED = (type, FunctionType, BuiltinFunctionType, ModuleType, Enum)

#: objects in containers of one call at most: what is large is pickled only once, into a stream in parts
_FEW = 1000


def is_immutable(obj: Any) -> bool:
    """Whether an object can never change, and so always travels by value and is never a datum."""
    return type(obj) in _IMMUTABLE


def never_changes(obj: Any) -> bool:
    """The same, of more kinds of values and of tuples of them: no task can update these in place."""
    kind = type(obj)
    if kind in _IMMUTABLE:
        return True
    if kind is tuple or kind is frozenset:
        return all(map(never_changes, obj))
    if kind.__module__ == "numpy":
        numpy = sys.modules["numpy"]
        return isinstance(obj, numpy.generic) and not isinstance(obj, numpy.void)
    return kind.__name__ in _VALUES.get(kind.__module__, ())


def kind_of_named(obj: Any) -> str | None:
    """What an object is that travels by its name, or as if it did: what tasks change in theirs, nobody else sees."""
    if not isinstance(obj, _OF_NAMED):
        return None
    return next(said for kinds, said in _NAMED.items() if isinstance(obj, kinds))


def packed_simply(
    runtime: Runtime, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Value, tuple[VersionId, ...]] | None:
    """The pickled arguments and the versions that fill their slots; None if they need the long way."""
    if not args and not kwargs:
        return EMPTY, ()
    others = [one for one in args if type(one) not in _IMMUTABLE]
    if kwargs:
        others += [one for one in kwargs.values() if type(one) not in _IMMUTABLE]
    versions: tuple[VersionId, ...] = ()
    if others:
        if Future in map(type, others):
            slots = _slots(runtime, [one for one in others if type(one) is Future])
            if slots is None:
                return None
            versions = tuple(slots)
            args = tuple([slots[one._version] if type(one) is Future else one for one in args])
            kwargs = {name: slots[one._version] if type(one) is Future else one for name, one in kwargs.items()}
            others = [one for one in others if type(one) is not Future]
        if others and may_hold(others, runtime.identity.by_address, few=_FEW):
            return None
    data = pickle.dumps((args, kwargs), 5)
    return (Value(data), versions) if len(data) <= LARGE else None


def _slots(runtime: Runtime, futures: list[Future[Any]]) -> dict[VersionId, SlotRef] | None:
    """A slot for each version; None if a future stands for what the program has, or for a persistent object."""
    slots: dict[VersionId, SlotRef] = {}
    if runtime.objects.of_futures:
        return None
    for future in futures:
        outcome = future.outcome
        simple = outcome is None or (type(outcome) is Value and not outcome.states)
        if not simple or future._value is not UNLOADED or future.runtime is not runtime:
            return None
        if future._version not in slots:
            slots[future._version] = SlotRef(len(slots))
    return slots
