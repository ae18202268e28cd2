"""Parts of memory that tasks change in place, as an attempt has them.

The memory is a segment that all processes map. In a call's arguments a part is named by its place there; unpickling
makes a view of the mapping of it. Before the body runs, what it may change is copied to the side, so that the memory is
what it was if the body fails: the process itself puts it back, or, should it be killed, the main program does.
"""

from __future__ import annotations

import functools
import pickle
import struct
from typing import Any, NamedTuple

from penstock.data.segments import Segments
from penstock.data.slots import current, slot
from penstock.data.undo import Undo
from penstock.errors import TaskError
from penstock.graph.regions import Region, region
from penstock.model.data import SegmentId, TaskId

__all__ = ["Part", "PartOfSlot", "PartOfWhole", "Parts", "view_of"]


class Part(NamedTuple):
    """A part of shared memory, as it stands in pickled arguments."""

    segment: SegmentId
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    #: see ``data.owners.Located``
    kind: Any
    writable: bool
    #: it is put back should the task fail; what a task only writes need not be
    kept: bool = False

    def region(self) -> Region:
        """Its bytes."""
        item = struct.calcsize(self.kind) if isinstance(self.kind, str) else self.kind[0].itemsize
        return region(self.offset, self.shape, self.strides, item)

    def __reduce__(self) -> tuple[Any, ...]:
        # In strings: a pickler that looks for data asks about each object that it meets.
        return _part, (pickle.dumps((*self[:4], self.writable, self.kept), 5), _packed(self.kind))


class PartOfSlot(NamedTuple):
    """A part of an array that lies in a slot."""

    slot: int
    #: the shape, strides and type of the array as the program knows it
    layout: Any
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    kind: Any

    def __reduce__(self) -> tuple[Any, ...]:
        return _part_of_slot, tuple(self)


def _part(place: bytes, kind: bytes) -> Any:
    assert current.parts is not None
    segment, offset, shape, strides, writable, kept = pickle.loads(place)
    return current.parts.get(Part(segment, offset, shape, strides, _unpacked(kind), writable, kept))


def _packed(kind: Any) -> bytes:
    # Of other types there may be two that are equal and have not the same metadata.
    is_plain = not isinstance(kind, str) and kind[0].isbuiltin == 1
    return _packed_once(kind) if is_plain else pickle.dumps(kind, 5)


@functools.lru_cache(64)
def _packed_once(kind: Any) -> bytes:
    return pickle.dumps(kind, 5)


@functools.lru_cache(64)
def _unpacked(kind: bytes) -> Any:
    return pickle.loads(kind)


class PartOfWhole(NamedTuple):
    """A part of an array that travels with the call."""

    whole: Any
    layout: Any
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    kind: Any

    def __reduce__(self) -> tuple[Any, ...]:
        return _part_of, tuple(self)


def _part_of_slot(index: int, *place: Any) -> Any:
    return _part_of(slot(index), *place)


def _part_of(whole: Any, layout: Any, *place: Any) -> Any:
    import numpy

    if (whole.shape, whole.strides, whole.dtype) != layout:
        raise TaskError(
            f"an argument is a part of an array of shape {layout[0]} and type {layout[2]}, which a task has replaced "
            f"by one of shape {whole.shape} and type {whole.dtype}; call wait_on() on the array first"
        )
    # As it lies in memory, in whichever order.
    flat = whole.view(numpy.ndarray).ravel("K").view(numpy.uint8)
    return view_of(memoryview(flat), *place, writable=False)


def view_of(memory: memoryview, offset: int, shape: Any, strides: Any, kind: Any, *, writable: bool) -> Any:
    """An array or a memory view of a part of memory."""
    if isinstance(kind, str):
        return _memory_view(memory, offset, shape, strides, kind, writable=writable)
    import numpy

    dtype, cls = kind
    # frombuffer keeps the memory exported while any part of the array is there, ndarray(buffer=…) does not.
    base = numpy.frombuffer(memory if writable else memory.toreadonly(), numpy.uint8)
    made: Any = numpy.ndarray(shape, dtype, base, offset, strides)
    if issubclass(cls, numpy.void):
        made = made[()]  # a record refers to the array that it is taken from
    elif cls not in (numpy.ndarray, numpy.memmap):
        made = made.view(cls)
    return made


def _memory_view(memory: memoryview, offset: int, shape: Any, strides: Any, kind: str, *, writable: bool) -> memoryview:
    item = struct.calcsize(kind)
    covered = region(offset, shape, strides, item)
    view = memory[covered.lo : covered.hi]
    if not writable:
        view = view.toreadonly()
    if len(shape) == 1 and strides[0] != item:
        return view.cast(kind)[:: strides[0] // item]  # type: ignore[call-overload,no-any-return]
    shaped: memoryview = view.cast(kind, shape) if covered.run else view.cast(kind)  # type: ignore[call-overload]
    return shaped


#: of each run that this process has carried out tasks of
_undo: dict[str, Undo] = {}


class Parts:
    """The parts that one attempt has."""

    def __init__(self, segments: Segments, task: TaskId) -> None:
        self._segments = segments
        self._task = task
        self._made: dict[Any, Any] = {}
        #: what it may change and what is then put back if it fails
        self._changed: dict[tuple[SegmentId, Region], None] = {}
        self._kept = False

    def get(self, part: Part) -> Any:
        """The part; the same object each time."""
        key = (*part[:4], str(part.kind), part.writable)
        if part.kept:
            self._changed[part.segment, part.region()] = None
        found = self._made.get(key)
        if found is None:
            memory = self._segments.map_shared(part.segment)
            made = view_of(memory, part.offset, part.shape, part.strides, part.kind, writable=part.writable)
            found = self._made[key] = made
        return found

    def _undo(self) -> Undo:
        path = self._segments.undo_path(self._segments.writer)
        found = _undo.get(path or "")
        if found is None:
            _undo.clear()
            found = _undo[path or ""] = Undo(path)
        return found

    def begin(self) -> None:
        """All arguments are there and the body is about to run: keep what it may change."""
        if self._changed:
            changed = [(segment, one, self._segments.map_shared(segment)) for segment, one in self._changed]
            self._undo().keep(self._task, changed)
            self._kept = True

    def withdraw(self) -> None:
        """The body has failed: put everything back."""
        if self._kept:
            self._undo().put_back(self._task, self._segments.map_shared)
            self._kept = False
