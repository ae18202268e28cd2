"""Objects to values and back.

An object is pickled with protocol 5, so the large buffers of arrays are handed out beside the stream and never copied
into it. What is large goes to a segment of the store, what is small rides inline. Code and classes that other
processes cannot import (those of ``__main__`` and of notebooks) travel by value.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from msgspec.structs import replace

from penstock.data.admission import FREE, Admission
from penstock.data.picklers import Pickled, names_main, pickled, pickled_specially
from penstock.data.segments import Access, SegmentLost, Segments
from penstock.data.slots import current, load_with_slots, referred_states
from penstock.errors import ArgumentChanged, CallError, DataLost, SerializationError, StorageError
from penstock.model.data import Piece, SegmentId, Value

__all__ = ["LARGE", "NONE", "InPlace", "dump", "dump_parts", "dump_stream", "load", "pack"]

#: bytes above which a buffer or a stream lives in a segment
LARGE = 64 * 1024

#: ``None``, pickled
NONE = Value(b"\x80\x05N.")

#: segments mapped for changing in place: number → (spilled, address, length)
InPlace = dict[SegmentId, tuple[bool, int, int]]

#: types of objects that need no care
_NUMBERS = frozenset({int, float, bool})
_MANY_DIGITS = 1 << 1000

_nothing = nullcontext()

#: errors that say by themselves what is wrong
_OURS = (SerializationError, ArgumentChanged, CallError, DataLost, StorageError)


class _Own(bytearray):
    """A small buffer of a value that may be changed; it can be told apart from others as long as somebody has it."""

    __slots__ = ("__weakref__",)


def dump_parts(
    obj: object,
    what: str,
    find: Callable[[Any], int | None] | None = None,
    watcher: Any = None,
    admission: Admission | None = None,
) -> Pickled:
    """The pickle stream of an object in parts and its out-of-band buffers; ``what`` names the object in errors.

    ``find`` says which objects inside it are to become references to slots. ``watcher.buffers`` is the list of buffers
    while it grows. What ``admission`` has granted is to be released when the parts are stored.
    """
    try:
        if find is None and watcher is None:
            result = pickled(obj, admission)
        else:
            result = pickled_specially(obj, admission, by_value=False, find=find, watcher=watcher)
        parts, _, claim = result
        if not names_main(parts):
            return result
        if claim is not None:
            claim.release()
    except _OURS:
        raise
    except Exception:  # whatever a user's __reduce__ may raise: pickling by value may still do
        pass
    try:
        return pickled_specially(obj, admission, by_value=True, find=find, watcher=watcher)
    except _OURS:
        raise
    except Exception as error:
        raise SerializationError(f"{what} cannot be pickled: {type(error).__name__}: {error}") from error


def dump_stream(
    obj: object, what: str, find: Callable[[Any], int | None] | None = None
) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """The pickle stream of an object in one, and its out-of-band buffers."""
    parts, buffers, _ = dump_parts(obj, what, find)
    return parts[0] if len(parts) == 1 else b"".join(parts), buffers


def dump(obj: object, segments: Segments, what: str, in_place: InPlace | None = None) -> Value:
    """Turn an object into a value."""
    if obj is None:
        return NONE
    if type(obj) in _NUMBERS and -_MANY_DIGITS < obj < _MANY_DIGITS:  # type: ignore[operator]
        return Value(pickle.dumps(obj, 5))
    current.referred = []  # from here on, persistent objects are as they will be found
    parts, buffers, claim = dump_parts(obj, what, admission=segments.admission)
    states = referred_states()
    if not buffers and len(parts) == 1 and len(parts[0]) <= LARGE:
        return Value(parts[0], states=states) if states else Value(parts[0])
    with claim or _nothing:
        value = pack(parts, buffers, segments, in_place)
    return replace(value, states=states) if states else value


def pack(
    stream: Sequence[bytes],
    buffers: Sequence[pickle.PickleBuffer],
    segments: Segments,
    in_place: InPlace | None = None,
) -> Value:
    """Put what is large into one segment; what already lies in a segment stays there."""
    raw = [buffer.raw() for buffer in buffers]
    parts: list[bytes | Piece | None] = [bytes(view) if len(view) <= LARGE else None for view in raw]
    if None in parts and (in_place or current.mapped):
        from penstock.data.adoption import adopted

        large = [view for view in raw if len(view) > LARGE]
        found = iter(adopted(large, in_place or {}, current.mapped or []))
        parts = [next(found) if part is None else part for part in parts]
    data: bytes | Piece | None = None
    if sum(map(len, stream)) <= LARGE:
        data = stream[0] if len(stream) == 1 else b"".join(stream)
    new: list[memoryview | Sequence[bytes]] = [] if data is not None else [stream]
    new += [view for view, part in zip(raw, parts, strict=True) if part is None]
    if new:
        stored = iter(segments.write(new))
        data = next(stored) if data is None else data
        parts = [next(stored) if part is None else part for part in parts]
    return Value(data, tuple(parts))  # type: ignore[arg-type]


def load(
    value: Value,
    segments: Segments,
    access: Access = Access.READ,
    in_place: InPlace | None = None,
    *,
    slots: bool = False,
    inside: bool = False,
    writable: int | None = None,
) -> Any:
    """Turn a value back into an object.

    With ``Access.READ`` its buffers are read-only, whether inline or mapped, so that a task meets the same rule for
    small and large arrays. With ``COPY`` and ``IN_PLACE`` they can be written, or only the first ``writable`` of them.
    ``slots`` says that the object is the call being unpacked, which may refer to slots; ``inside``, that it is in one
    of them. The persistent objects of a call are read together, when all of it is there.
    """
    if not value.buffers and type(value.data) is bytes:
        if slots:
            return load_with_slots(value.data, ())
        obj = pickle.loads(value.data)
        if current.unfilled is not None and not inside:
            current.unfilled.fill()
        return obj
    mapped: dict[tuple[SegmentId, Access], memoryview] = {}

    def content(part: bytes | Piece, access: Access, *, stream: bool = False) -> bytes | bytearray | memoryview:
        if type(part) is Piece:
            key = (part.segment, access)
            if key not in mapped:
                mapping = segments.map(part.segment, spilled=part.spilled, access=access)
                mapped[key] = mapping.view
                if current.loading is not None and not stream:  # of which nothing is left when all of it is read
                    current.loading.append((part.segment, mapping.view))
                if access is Access.IN_PLACE and in_place is not None and not mapping.spilled:
                    from penstock.data.adoption import address

                    in_place[part.segment] = (part.spilled, address(mapping.view), len(mapping.view))
                elif access is Access.READ and current.mapped is not None:
                    current.mapped.append((part.segment, part.spilled, mapping.view))
            view = mapped[key][part.offset : part.offset + part.size]
            if len(view) < part.size:
                path = segments.path(part.segment, spilled=part.spilled)
                raise SegmentLost(part.segment, f"{path}, which held a part of it, is shorter than it was")
            return view
        assert type(part) is bytes
        return part if access is Access.READ else _Own(part)

    changeable = len(value.buffers) if writable is None else writable
    buffers = [content(part, access if i < changeable else Access.READ) for i, part in enumerate(value.buffers)]
    data = content(value.data, Access.READ, stream=True)
    admission = segments.admission if len(data) > FREE else None
    with admission.claim(len(data)) if admission else _nothing:
        obj = load_with_slots(data, buffers) if slots else pickle.loads(data, buffers=buffers)
    if current.unfilled is not None and not (slots or inside):
        current.unfilled.fill()
    return obj
