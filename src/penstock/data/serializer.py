"""Objects to values and back.

An object is pickled with protocol 5, so the large buffers of arrays are handed out beside the stream and never copied
into it. What is large goes to a segment of the store, what is small rides inline. Code and classes that other
processes cannot import (those of ``__main__`` and of notebooks) travel by value.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from penstock.data.segments import Access, Segments
from penstock.data.slots import current, dump_with_slots, load_with_slots, referred_states
from penstock.errors import ArgumentChanged, CallError, SerializationError, StorageError
from penstock.model.data import Piece, SegmentId, Value

__all__ = ["LARGE", "NONE", "InPlace", "dump", "dump_stream", "load", "pack"]

#: bytes above which a buffer or a stream lives in a segment
LARGE = 64 * 1024

#: ``None``, pickled
NONE = Value(b"\x80\x05N.")

#: segments mapped for changing in place: number → (spilled, address, length)
InPlace = dict[SegmentId, tuple[bool, int, int]]


def dump_stream(
    obj: object, what: str, find: Callable[[Any], int | None] | None = None, watcher: Any = None
) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """The pickle stream of an object and its out-of-band buffers; ``what`` names the object in errors.

    ``find`` says which objects inside it are to become references to slots. ``watcher.buffers`` is the list of buffers
    while it grows.
    """
    buffers: list[pickle.PickleBuffer] = []
    if watcher is not None:
        watcher.buffers = buffers
    try:
        if find is None:
            data = pickle.dumps(obj, 5, buffer_callback=buffers.append)
        else:
            data = dump_with_slots(find, by_value=False)(obj, buffers)
        if b"__main__" not in data:
            return data, buffers
    except (SerializationError, ArgumentChanged, CallError, StorageError):
        raise
    except Exception:  # whatever a user's __reduce__ may raise: pickling by value may still do
        pass
    buffers.clear()
    try:
        by_value = _by_value if find is None else dump_with_slots(find, by_value=True)
        return by_value(obj, buffers), buffers
    except (SerializationError, ArgumentChanged, CallError, StorageError):
        raise
    except Exception as error:
        raise SerializationError(f"{what} cannot be pickled: {type(error).__name__}: {error}") from error


def _by_value(obj: object, buffers: list[pickle.PickleBuffer]) -> bytes:
    import cloudpickle

    return bytes(cloudpickle.dumps(obj, 5, buffer_callback=buffers.append))


def dump(obj: object, segments: Segments, what: str, in_place: InPlace | None = None) -> Value:
    """Turn an object into a value."""
    if obj is None:
        return NONE
    current.referred = []  # from here on, persistent objects are as they will be found
    data, buffers = dump_stream(obj, what)
    states = referred_states()
    if not buffers and len(data) <= LARGE:
        return Value(data, states=states) if states else Value(data)
    value = pack(data, buffers, segments, in_place)
    return replace(value, states=states) if states else value


def pack(
    data: bytes, buffers: Sequence[pickle.PickleBuffer], segments: Segments, in_place: InPlace | None = None
) -> Value:
    """Put what is large into one segment; what already lies in a segment changed in place stays there."""
    parts: list[bytes | Piece | None] = []
    large: list[memoryview | bytes] = []
    everything: list[bytes | memoryview] = [data, *(buffer.raw() for buffer in buffers)]
    for part in everything:
        if len(part) <= LARGE:
            parts.append(bytes(part))
            continue
        adopted = _adopt(part, in_place) if in_place and type(part) is memoryview else None
        parts.append(adopted)
        if adopted is None:
            large.append(part)
    if large:
        stored = iter(segments.write(large))
        parts = [next(stored) if part is None else part for part in parts]
    first, *rest = parts
    return Value(first, rest)  # type: ignore[arg-type]


def _adopt(view: memoryview, in_place: InPlace) -> Piece | None:
    """The piece of a segment changed in place that a buffer is, if it is one."""
    if view.readonly:
        return None
    start = _address(view)
    for segment, (spilled, base, length) in in_place.items():
        if base <= start and start + len(view) <= base + length:
            return Piece(segment, spilled, start - base, len(view))
    return None


def _address(view: Any) -> int:
    import ctypes

    return ctypes.addressof(ctypes.c_char.from_buffer(view))


def load(
    value: Value,
    segments: Segments,
    access: Access = Access.READ,
    in_place: InPlace | None = None,
    *,
    slots: bool = False,
    writable: int | None = None,
) -> Any:
    """Turn a value back into an object.

    With ``Access.READ`` its buffers are read-only, whether inline or mapped, so that a task meets the same rule for
    small and large arrays. With ``COPY`` and ``IN_PLACE`` they can be written, or only the first ``writable`` of them.
    ``slots`` says that the object may refer to slots of the call being unpacked.
    """
    if not value.buffers and type(value.data) is bytes and not slots:
        obj = pickle.loads(value.data)
        if current.unfilled is not None:
            current.unfilled.fill()
        return obj
    mapped: dict[tuple[SegmentId, Access], memoryview] = {}

    def content(part: bytes | Piece, access: Access) -> bytes | bytearray | memoryview:
        if type(part) is Piece:
            key = (part.segment, access)
            if key not in mapped:
                mapping = segments.map(part.segment, spilled=part.spilled, access=access)
                mapped[key] = memoryview(mapping)
                if access is Access.IN_PLACE and in_place is not None:
                    in_place[part.segment] = (part.spilled, _address(mapping), len(mapping))
            return mapped[key][part.offset : part.offset + part.size]
        assert type(part) is bytes
        return part if access is Access.READ else bytearray(part)

    changeable = len(value.buffers) if writable is None else writable
    buffers = [content(part, access if i < changeable else Access.READ) for i, part in enumerate(value.buffers)]
    data = content(value.data, Access.READ)
    if slots:
        return load_with_slots(data, buffers)  # the call as a whole will have its persistent objects read
    obj = pickle.loads(data, buffers=buffers)
    if current.unfilled is not None:
        current.unfilled.fill()
    return obj
