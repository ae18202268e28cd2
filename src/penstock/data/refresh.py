"""Bring the program's own object up to date with the version that tasks made of it.

After ``wait_on(total)`` the program sees in ``total`` itself what running sequentially would have left there. That
is possible for containers, arrays of the same shape, ordinary instances, and types that can be given a state as a whole
(random generators, ``StringIO``); for anything else the caller gets the new object and the old one stays as it was.

A tuple, or a string of a class with attributes, cannot become another one; but a task cannot have made another one of
it either, so it is what it holds that is brought up to date, if all of that can be.
"""

from __future__ import annotations

import contextlib
import copyreg
import io
import pickle
import struct
import sys
from array import array
from collections import Counter, deque
from collections.abc import Callable
from types import FunctionType, MemberDescriptorType, ModuleType
from typing import Any

__all__ = ["refresh"]


#: bytes of a pointer
_WORD = struct.calcsize("P")
#: flag of a type whose instances have their ``__dict__`` in front of them
_MANAGED_DICT = 1 << 4
#: references to a value that only the caller and we hold: its variable, our argument, and getrefcount's
_UNSHARED = 3
#: of which instances only differ in their attributes, once made
_VALUES = (str, bytes, int, float, complex)


def refresh(old: Any, new: Any, given: Callable[[Any], bool] | None = None) -> bool:
    """Give ``old`` the state of ``new``, which nobody else knows; False when its type does not allow that.

    ``given``: whether an object in a tuple is with tasks itself, and so theirs. Without it nobody knows whether ``new``
    is that tuple or another one, of other objects.
    """
    if type(old) is not type(new) and not _is_recast(old, type(new)):
        return False
    if isinstance(old, tuple):
        return given is not None and _refresh_parts(old, new, given)
    if sys.getrefcount(new) > _UNSHARED:
        (new,) = _pointing_to([(old, new)])  # it contains itself: what is inside must point to the program's object
    return _take_over(old, new) or _restate(old, new)


def _take_over(old: Any, new: Any) -> bool:
    if _refresh_content(old, new) or _held_in_attributes(type(old)) or _is_same_value(old, new):
        if not _is_array(old) or _pickles_attributes(type(old)):
            _refresh_attributes(old, new)
        return True
    return False


def _is_recast(old: Any, cls: type) -> bool:
    """Make an ordinary instance one of another class, as a task has: the class has a place for the same attributes."""
    if not _held_in_attributes(type(old)) or not _held_in_attributes(cls):
        return False
    try:
        object.__setattr__(old, "__class__", cls)
    except TypeError:
        return False
    return True


def _is_same_value(old: Any, new: Any) -> bool:
    """Whether two values of a class that was derived from that of strings or numbers are one to all who ask it so."""
    for kind in _VALUES:
        if isinstance(old, kind):
            plain: Any = kind.__getnewargs__  # type: ignore[union-attr]
            return pickle.dumps(plain(old)) == pickle.dumps(plain(new))
    return False


def _refresh_parts(old: Any, new: Any, given: Callable[[Any], bool]) -> bool:
    """Bring what a tuple holds up to date, and tuples in it, if that works for all of it: half of it would be wrong."""
    places: Counter[int] = Counter()
    pairs = _pairs(old, new, places)
    if pairs is None or any(given(one) for one, _ in pairs[1:]):
        return False
    places[id(new)] += _UNSHARED - 1  # as those that the caller holds
    # Beside its places in tuples, each is known to its pair, to us, and to getrefcount.
    if any(sys.getrefcount(part) > places[id(part)] + 3 for _, part in pairs):
        made = _pointing_to(pairs)
        pairs = [(one, part) for (one, _), part in zip(pairs, made, strict=True)]
    for one, part in pairs:
        if isinstance(one, tuple):
            _refresh_attributes(one, part)
        else:
            _take_over(one, part)
    return True


def _pairs(old: Any, new: Any, places: Counter[int]) -> list[tuple[Any, Any]] | None:
    """What has to be brought up to date, the tuple first; None if something cannot be. Counts places of the new."""
    pairs = {id(old): (old, new)}
    back = {id(new)}
    left = [(old, new)]
    while left:
        whole, made = left.pop()
        if len(whole) != len(made):
            return None
        for one, part in zip(tuple.__iter__(whole), tuple.__iter__(made), strict=True):
            if one is part:
                continue
            places[id(part)] += 1
            if id(one) in pairs or id(part) in back:
                # Two that were one object, or one that was two, are no tuple's doing.
                if pairs.get(id(one), (None, None))[1] is not part and not _is_unchanged(one, part):
                    return None
            elif type(one) is tuple or (isinstance(one, tuple) and type(one) is type(part)):
                if type(part) is not type(one):
                    return None
                pairs[id(one)] = one, part
                back.add(id(part))
                left.append((one, part))
            elif _takes_over(one, part):
                pairs[id(one)] = one, part
                back.add(id(part))
            elif not _is_unchanged(one, part):
                return None
    return list(pairs.values())


def _takes_over(old: Any, new: Any) -> bool:
    """Whether it is certain that an object in a tuple can be brought up to date."""
    if type(old) is not type(new) or type(old) in _VALUES:
        return False
    if isinstance(old, bytearray | array):
        return len(old) == len(new)  # else it can not while somebody looks at its memory
    if _is_array(old):
        return bool(old.flags.owndata and old.flags.writeable and old.shape == new.shape and old.dtype == new.dtype)
    if isinstance(old, _VALUES):
        return _is_same_value(old, new)
    return isinstance(old, list | dict | set | deque) or _held_in_attributes(type(old))


def _is_unchanged(old: Any, new: Any) -> bool:
    try:
        return type(old) is type(new) and pickle.dumps(old) == pickle.dumps(new)
    except Exception:
        return False


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


def _pointing_to(pairs: list[tuple[Any, Any]]) -> list[Any]:
    """Copies of new objects in which everything that pointed to one of them points to the old object instead."""
    from cloudpickle import cloudpickle

    file = io.BytesIO()
    tops = [(new,) for _, new in pairs]
    kept: list[Any] = [old for old, _ in pairs]
    marks = {id(new): mark for mark, (_, new) in enumerate(pairs)}
    shown = {id(top) for top in tops}

    class Pickler(pickle.Pickler):
        dispatch_table = cloudpickle.Pickler.dispatch_table
        #: whether the next object is one of those to be copied
        copies = False

        def persistent_id(self, part: Any) -> int | None:
            copies, self.copies = self.copies, id(part) in shown
            if id(part) in marks:
                return None if copies else marks[id(part)]
            if isinstance(part, type | FunctionType | ModuleType):  # themselves, also those that only travel by value
                kept.append(part)
                return len(kept) - 1
            return None

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, mark: int) -> Any:
            return kept[mark]

    try:
        Pickler(file, 5).dump(tops)
        return [made for (made,) in Unpickler(io.BytesIO(file.getvalue())).load()]
    except Exception:
        return [new for _, new in pairs]  # it cannot be pickled: what is inside keeps pointing to the new objects
