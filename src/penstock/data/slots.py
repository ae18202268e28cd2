"""Slots: the places in a call's pickled arguments that data of other tasks fill.

In the program, pickling a call's arguments meets futures and tracked objects; each becomes a reference to a numbered
slot. In the worker, unpickling meets those references and answers with the slot's object, loaded when first asked
for and the same object every time, so aliasing inside a call is kept.
"""

from __future__ import annotations

import io
import os
import pickle
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.model.data import SegmentId
from penstock.model.tasks import Failure

__all__ = [
    "ElementFailed",
    "FailedElement",
    "InsideRef",
    "PathRef",
    "SlotRef",
    "Slots",
    "StreamRef",
    "WrittenRef",
    "current",
    "element",
    "inside_slot",
    "load_with_slots",
    "path_slot",
    "referred_states",
    "slot",
    "stream_slot",
    "written_file",
]

_EMPTY = object()


class _Current(threading.local):
    """What this thread is packing or unpacking."""

    #: slots of the call being unpacked
    slots: Slots | None = None
    #: turns a future met while packing into what stands for it; None outside a task call
    outgoing: Callable[[Any], tuple[Any, ...]] | None = None
    #: the same for a persistent object
    referring: Callable[[Any], tuple[Any, ...]] | None = None
    #: states of persistent objects that what is being packed refers to
    referred: list[str] | None = None
    #: persistent objects that the task under way has, by id; None outside a task
    loaded: dict[str, Any] | None = None
    #: persistent objects met while unpacking: when all are known, its ``fill`` reads them together
    unfilled: Any = None
    #: those that the task changed, written but not seen by anybody yet
    staged: Any = None
    #: whether what is being unpacked may be changed
    writable: bool = True
    #: whether it is an argument that the task declares to update
    updating: bool = False
    #: segments that the program maps for what it is reading; None in tasks
    loading: list[tuple[SegmentId, memoryview]] | None = None
    #: segments that the task under way has mapped for reading: what it returns may lie in one; None outside of workers
    mapped: list[tuple[SegmentId, bool, memoryview]] | None = None
    #: the store in which the task under way may build arrays; None outside of workers
    building: Any = None
    #: what it has built there
    built: Any = None
    #: the parts of shared memory that it has
    parts: Any = None
    #: where the task under way writes its files, by position among the outputs of its call
    written: Mapping[int, str] | None = None
    #: gives the open file for a slot of the call being unpacked
    opened: Callable[[int], Any] | None = None


current = _Current()


class Slots:
    """The slots of one call, each filled when it is first looked at."""

    def __init__(self, count: int, fill: Callable[[int], Any]) -> None:
        self._content: list[Any] = [_EMPTY] * count
        self._fill = fill

    def __getitem__(self, index: int) -> Any:
        content = self._content[index]
        if content is _EMPTY:
            content = self._content[index] = self._fill(index)
        return content


def slot(index: int) -> Any:
    """The object in a slot of the call being unpacked."""
    assert current.slots is not None
    return current.slots[index]


def path_slot(index: int) -> Any:
    """The file in a slot, for a program that gave it as a ``Path``."""
    return _path(slot(index))


def _path(path: str) -> Any:
    from pathlib import Path  # 5 ms that programs without files need not wait for

    return Path(path)


def inside_slot(index: int, rest: str, as_path: bool) -> Any:
    """A file in the directory that a slot holds."""
    path = os.path.join(slot(index), rest)
    return _path(path) if as_path else path


def written_file(output: int, as_path: bool) -> Any:
    """Where the task writes one of its files."""
    assert current.written is not None
    path = current.written[output]
    return _path(path) if as_path else path


def stream_slot(index: int) -> Any:
    """The file in a slot, open for reading."""
    return open(slot(index), "rb") if current.opened is None else current.opened(index)


def element(index: int, position: int) -> Any:
    """One result of the piece of a map that lies in a slot."""
    value = slot(index)[position]
    if isinstance(value, FailedElement):
        raise ElementFailed(value.failure)
    return value


class FailedElement:
    """Stands among the results of a piece of a map for a call that failed."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure


class ElementFailed(Exception):
    """An argument is an element of a map that failed."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def referred_states() -> tuple[str, ...]:
    """The states of persistent objects that what was packed last refers to."""
    states, current.referred = current.referred, None
    return tuple(dict.fromkeys(states)) if states else ()


class SlotRef:
    """Stands for a slot where an argument was."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index

    def __reduce__(self) -> tuple[Any, ...]:
        return slot, (self.index,)


class PathRef(SlotRef):
    """Stands for a file where a ``Path`` was."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return path_slot, (self.index,)


class InsideRef(SlotRef):
    """Stands for a file in a directory that is a datum."""

    __slots__ = ("_as_path", "_rest")

    def __init__(self, index: int, rest: str, *, as_path: bool) -> None:
        super().__init__(index)
        self._rest = rest
        self._as_path = as_path

    def __reduce__(self) -> tuple[Any, ...]:
        return inside_slot, (self.index, self._rest, self._as_path)


class WrittenRef:
    """Stands for a file that the task writes, by its position among the outputs."""

    __slots__ = ("_as_path", "_output")

    def __init__(self, output: int, *, as_path: bool) -> None:
        self._output = output
        self._as_path = as_path

    def __reduce__(self) -> tuple[Any, ...]:
        return written_file, (self._output, self._as_path)


class StreamRef(SlotRef):
    """Stands for a file that is given open."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return stream_slot, (self.index,)


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, found: Any) -> Any:
        return slot(found) if type(found) is int else found  # a part of something, made already


class _Stream:
    """A stream in mapped memory as the file that an unpickler wants; ``BytesIO`` would copy all of it first."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def read(self, size: int) -> bytes:
        start, self._at = self._at, self._at + size
        return bytes(self._data[start : self._at])

    def readinto(self, buffer: Any) -> int:
        start, self._at = self._at, self._at + len(buffer)
        part = self._data[start : self._at]
        buffer[: len(part)] = part
        return len(part)

    def readline(self) -> bytes:
        raise pickle.UnpicklingError("our streams have no lines")


def load_with_slots(data: Any, buffers: Sequence[Any]) -> Any:
    """Unpickle what refers to slots."""
    file: Any = _Stream(data) if type(data) is memoryview else io.BytesIO(data)
    return _Unpickler(file, buffers=buffers).load()
