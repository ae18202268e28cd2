"""Bring the program's own object up to date with the version that tasks made of it.

After ``wait_on(total)`` the program sees in ``total`` itself what running sequentially would have left there. That
is possible for containers, arrays of the same shape, ordinary instances, and types that can be given a state as a whole
(random generators, ``StringIO``); for anything else the caller gets the new object and the old one stays as it was.
"""

from __future__ import annotations

import contextlib
import copyreg
import io
import pickle
import struct
import sys
from array import array
from collections import deque
from types import FunctionType, MemberDescriptorType, ModuleType
from typing import Any

__all__ = ["refresh"]


#: bytes of a pointer
_WORD = struct.calcsize("P")
#: flag of a type whose instances have their ``__dict__`` in front of them
_MANAGED_DICT = 1 << 4
#: references to a value that only the caller and we hold: its variable, our argument, and getrefcount's
_UNSHARED = 3


def refresh(old: Any, new: Any) -> bool:
    """Give ``old`` the state of ``new``, which nobody else knows; False when its type does not allow that."""
    if type(old) is not type(new):
        return False
    if sys.getrefcount(new) > _UNSHARED:
        new = _pointing_to(old, new)  # it contains itself: what is inside must point to the program's object
    if _refresh_content(old, new) or _held_in_attributes(type(old)):
        if not _is_array(old) or _pickles_attributes(type(old)):
            _refresh_attributes(old, new)
        return True
    return _restate(old, new)


def _held_in_attributes(cls: type, base: type = object) -> bool:
    """Whether attributes are all the state that an instance has beyond one of ``base``: it is no larger than they need.

    That is how Python itself knows what it can pickle. A type that is written in C, and keeps more, says how.
    """
    words = len(copyreg._slotnames(cls))  # type: ignore[attr-defined]
    words += bool(cls.__dictoffset__) and not base.__dictoffset__ and not cls.__flags__ & _MANAGED_DICT
    words += cls.__weakrefoffset__ > 0
    return cls.__basicsize__ <= base.__basicsize__ + words * _WORD


def _restate(old: Any, new: Any) -> bool:
    """Give ``old`` what it keeps beside its attributes, if all of that is a state that can be set."""
    numpy = sys.modules.get("numpy.random")
    setter = getattr(type(old), "__setstate__", None)
    try:
        _, arguments, state, *items = (*new.__reduce_ex__(4), None)[:6]
        if numpy is not None and isinstance(old, numpy.Generator | numpy.RandomState):
            generators = [one._bit_generator for one in (old, new)]
            if type(generators[0]) is not type(generators[1]) or not _restate(*generators):
                return False
        elif state is None or any(items) or arguments not in ((), (type(new),)):
            return False  # a part of it is given only to the new object, when that is made
        if state is not None and setter is not None:
            setter(old, state)
        return state is None or setter is not None
    except Exception:
        return False  # what it has cannot be replaced now, or it does not say


def _refresh_content(old: Any, new: Any) -> bool:
    numpy = sys.modules.get("numpy")
    if isinstance(old, list | bytearray | array):
        old[:] = new
    elif isinstance(old, dict | set):
        old.clear()
        old.update(new)
    elif isinstance(old, deque):
        old.clear()
        old.extend(new)
    elif numpy is not None and isinstance(old, numpy.ndarray):
        if old.shape != new.shape or old.dtype != new.dtype or not old.flags.writeable:
            return False
        # As plain arrays: a class may have an assignment of its own, and that of masked arrays leaves out elements.
        numpy.copyto(old.view(numpy.ndarray), new.view(numpy.ndarray))
        masked = sys.modules.get("numpy.ma")
        if masked is not None and isinstance(old, masked.MaskedArray):
            _refresh_mask(old, new, masked.nomask)
    elif isinstance(old, BaseException) and _held_in_attributes(type(old), BaseException):
        old.args = new.args
    else:
        return False
    return True


def _refresh_mask(old: Any, new: Any, nomask: Any) -> None:
    """Give a masked array the mask of another, where it is: views of the array have the same one."""
    mask = new._mask
    if old._mask is nomask:
        if mask is not nomask and (mask.dtype.names or mask.any()):  # a pickled one is there though it masks nothing
            old._mask = mask
    elif mask is nomask or (old._mask.shape == mask.shape and old._mask.flags.writeable):
        old._mask[...] = mask
    else:
        old._mask = mask
    old._fill_value = new._fill_value


def _is_array(obj: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(obj, numpy.ndarray)


def _pickles_attributes(cls: type) -> bool:
    """Whether arrays of a class have their attributes in their pickles: NumPy leaves them out, the class may not."""
    methods = ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__")
    own = [one for one in cls.__mro__ if one.__module__.partition(".")[0] not in ("numpy", "builtins")]
    return any(name in vars(one) for one in own for name in methods)


def _refresh_attributes(old: Any, new: Any) -> None:
    state = getattr(old, "__dict__", None)
    if type(state) is dict:
        state.clear()
        state.update(new.__dict__)
    for cls in type(old).__mro__:
        if "__slots__" in vars(cls):
            for slot in [one for one in vars(cls).values() if type(one) is MemberDescriptorType]:
                _refresh_slot(slot, old, new)


def _refresh_slot(slot: Any, old: Any, new: Any) -> None:
    """By its descriptor: a frozen class refuses to set attributes, and private names are others outside of it."""
    try:
        value = slot.__get__(new)
    except AttributeError:
        with contextlib.suppress(AttributeError):
            slot.__delete__(old)
    else:
        slot.__set__(old, value)


def _pointing_to(old: Any, new: Any) -> Any:
    """A copy of ``new`` in which everything that pointed to it points to ``old``."""
    from cloudpickle import cloudpickle

    file = io.BytesIO()
    top = [new]
    kept: list[Any] = [old]

    class Pickler(pickle.Pickler):
        dispatch_table = cloudpickle.Pickler.dispatch_table

        def persistent_id(self, part: Any) -> int | None:
            if part is new and not top:
                return 0
            top.clear()
            if isinstance(part, type | FunctionType | ModuleType):  # themselves, also those that only travel by value
                kept.append(part)
                return len(kept) - 1
            return None

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, mark: int) -> Any:
            return kept[mark]

    try:
        Pickler(file, 5).dump(new)
        return Unpickler(io.BytesIO(file.getvalue())).load()
    except Exception:
        return new  # it cannot be pickled: what is inside keeps pointing to the new object
