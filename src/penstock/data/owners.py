"""Whose memory a buffer is: NumPy views, slices, fields, records, memory views and what lies behind them.

The owner is what the chain of bases ends in: an array that has memory of its own, a ``bytearray``, an ``array.array``,
a mapped file, a ctypes object. Where the chain ends in something that does not say which memory it has, nobody can tell
what else shares it.

A masked array, or one of a class of the program's, never has memory of its own: NumPy makes it a view of a plain array.
If nobody else has that array, the memory is the view's. It stays so while tasks update it as a whole, when the program
may have taken views of it meanwhile: `hold` notes that.
"""

from __future__ import annotations

import pickle
import sys
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from penstock.graph.regions import Region

__all__ = ["Located", "Unknown", "has_memory_of", "hold", "is_buffer", "is_more", "let_go", "locate"]

#: references to an array that one view alone has: the view's, a variable's, and getrefcount's
_UNSHARED = 3


class Located(NamedTuple):
    """A buffer, as a part of its owner's memory."""

    owner: Any
    #: of the owner's memory: its address and its bytes
    start: int
    size: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    #: how to make it again: a dtype and a class of arrays, or the format of a memory view
    kind: Any
    region: Region
    #: None, or why no task can change it where it is
    obstacle: str | None = None
    #: the array that has the owner's memory and may be with tasks as a whole: the owner, or what is noted for it
    holder: Any = None


class Unknown(NamedTuple):
    """A buffer whose owner cannot be found, and why."""

    why: str


#: types met so far, and whether their objects are buffers that can be parts of others
_kinds: dict[type, bool] = {memoryview: True, bytearray: True}


def is_buffer(kind: type) -> bool:
    """Whether objects of a type have memory that can be a part of another object's, or have such parts."""
    known = _kinds.get(kind)
    if known is None:
        numpy = sys.modules.get("numpy")
        if numpy is None:
            known = _is_exporter(kind)  # not remembered: it may be loaded later
        else:
            known = _kinds[kind] = issubclass(kind, numpy.ndarray | numpy.void) or _is_exporter(kind)
    return known


def _is_exporter(kind: type) -> bool:
    return kind.__module__ in ("array", "mmap") and kind.__name__ in ("array", "mmap")


#: arrays that tasks update as a whole and whose memory is another's, by the address of that one
_holders = weakref.WeakValueDictionary[int, Any]()


def is_more(obj: Any) -> bool:
    """Whether a buffer is an array that a view of its memory cannot replace: it has a mask, or other attributes."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(obj, numpy.ndarray | numpy.void):
        return False
    plain = (numpy.ndarray, numpy.matrix, numpy.recarray, numpy.memmap, numpy.void, numpy.record)
    return type(obj) not in plain


def hold(obj: Any) -> None:
    """Tasks update an array as a whole: who finds its memory otherwise is to find this array (`Located.holder`)."""
    if obj.base is not None:
        _holders[id(_root(obj, sys.modules["numpy"]))] = obj


def let_go(owner: Any) -> None:
    """Tasks are given an owner's memory itself: what was noted for it is a view of that, like any other."""
    _holders.pop(id(owner), None)


def locate(obj: Any) -> Located | Unknown:
    """Where a buffer lies."""
    from penstock.data.adoption import address
    from penstock.graph.regions import region  # here and above: only for arrays, and is_buffer is for everybody

    numpy = sys.modules.get("numpy")
    kind: Any
    array = numpy is not None and isinstance(obj, numpy.ndarray | numpy.void)
    private = array and _is_private(obj, numpy)  # asked while no variable here refers to the root
    root = _root(obj, numpy)
    holder = _holders.get(id(root)) if _holders else None
    if numpy is not None and (private or holder is obj):
        root = holder = obj
        low, high = numpy.lib.array_utils.byte_bounds(root)
    elif numpy is not None and isinstance(root, numpy.ndarray):
        if not root.flags.owndata:
            return Unknown("the array does not own its memory and does not say who does")
        low, high = numpy.lib.array_utils.byte_bounds(root)
    else:
        try:
            view = memoryview(root)
        except TypeError:
            return Unknown(f"its memory belongs to a {type(root).__name__}, which does not say what else lies there")
        except ValueError as error:
            return Unknown(str(error))
        low = address(view) if view.nbytes else 0
        high = low + view.nbytes
        view.release()
    if array:
        # Flags would tell of read-only arrays too, and warn where NumPy is about to make them so.
        (begin, read_only), kind = obj.__array_interface__["data"], (obj.dtype, type(obj))
        shape, strides, itemsize = obj.shape, obj.strides, obj.itemsize
        obstacle = "it is read-only" if read_only else _obstacle(obj, root, numpy)
    else:
        view = memoryview(obj)
        begin = address(view) if view.nbytes else low
        shape, strides, itemsize, kind = view.shape or (), view.strides or (), view.itemsize, view.format
        obstacle = _view_obstacle(view)
    offset = begin - low if high > low else 0
    covered = region(offset, shape, strides, itemsize)
    if covered.run and not 0 <= covered.lo <= covered.hi <= high - low:
        return Unknown(f"it lies outside of the {type(root).__name__} that it refers to")
    holder = root if holder is None else holder
    return Located(root, low, high - low, offset, shape, strides, kind, covered, obstacle, holder)


def _is_private(obj: Any, numpy: Any) -> bool:
    """Whether an array is more than its memory, and nobody but the array itself has what that belongs to."""
    if obj.base is None or not is_more(obj):
        return False
    below = obj.base
    while type(below) is numpy.ndarray and sys.getrefcount(below) <= _UNSHARED:
        if below.base is None:
            return bool(below.flags.owndata)
        below = below.base
    return False


def has_memory_of(obj: Any, other: Any) -> bool:
    """Whether an object is another one, or lies in the same memory, or is a container that has such a thing in it."""
    whole = locate(other) if is_buffer(type(other)) else None
    owner = whole.owner if isinstance(whole, Located) else other
    level, seen = [obj], {id(obj)}
    while level:
        parts: list[Any] = []
        for one in level:
            if one is other:
                return True
            if is_buffer(type(one)):
                located = locate(one)
                if isinstance(located, Located) and located.owner is owner:
                    return True
            elif isinstance(one, list | tuple | set | frozenset):
                parts += one
            elif isinstance(one, dict):
                parts += one.values()
        level = [part for part in parts if id(part) not in seen]
        seen.update(map(id, level))
    return False


def _root(obj: Any, numpy: Any) -> Any:
    while True:
        if numpy is not None and isinstance(obj, numpy.ndarray | numpy.void):
            below = obj.base
        elif type(obj) is memoryview:
            below = obj.obj
        elif type(obj) is pickle.PickleBuffer:
            below = memoryview(obj).obj
        elif type(obj).__name__ == "DummyArray" and type(obj).__module__.startswith("numpy."):
            below = obj.base  # what as_strided puts between an array and its memory
        else:
            return obj
        if below is None or below is obj:
            return obj
        obj = below


def _obstacle(array: Any, root: Any, numpy: Any) -> str | None:
    if array.dtype.hasobject:
        return "it has Python objects as elements; declare it a collection"
    if isinstance(root, numpy.ndarray) and root.dtype.hasobject:
        return "Python objects lie in the same memory"
    return f"a {type(array).__name__} is more than its memory" if is_more(array) else None


def _view_obstacle(view: memoryview) -> str | None:
    if view.readonly:
        return "it is read-only"
    if len(view.format) != 1 or (not view.contiguous and view.ndim != 1):
        return f"tasks can have no memoryview of format {view.format!r} and strides {view.strides}"
    return None
