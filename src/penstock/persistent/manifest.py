"""What a store keeps of an object besides its bytes: the manifest.

An object's bytes are written once, under names nobody has used before, and never changed. The manifest says under
which, so that exchanging the manifest is what exchanges the object, at one moment. Small objects are in the manifest
itself. Stores of every kind use these values; only where the bytes lie differs.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from penstock.errors import StorageError

__all__ = [
    "STAMP",
    "Entry",
    "Manifest",
    "decode",
    "decode_entry",
    "encode",
    "encode_entry",
    "layout",
    "parts_of",
    "spans",
]

Buffer = bytes | bytearray | memoryview

#: bytes at the head of an encoded manifest that no other manifest has: what is compared before it is replaced
STAMP = 16
#: parts up to this size travel together, larger ones are blocks of their own
_SMALL = 64 * 1024


class Entry(Struct, frozen=True, array_like=True):
    """One state of an object: where its bytes are."""

    #: larger for later states of one object
    generation: int
    #: part of the names of its blocks
    token: str
    #: name of its class, for messages
    kind: str
    #: sizes of its parts: the pickle stream, then the buffers beside it
    parts: list[int]
    #: sizes of its blocks
    blocks: list[int]
    #: checksum of all parts; 0 where the store needs none
    checksum: int = 0
    #: all of its bytes, if they are few
    inline: bytes | None = None
    #: the task that made it, over all its attempts; empty: the program
    author: str = ""
    #: the state before it, or before the first that its author made; empty: there was none
    base: str = ""
    #: the run that replaced it and keeps it for readers of its own; empty: it is the current one
    keeper: str = ""

    @property
    def size(self) -> int:
        """Bytes of the object."""
        return sum(self.parts)


class Manifest(Struct, frozen=True, array_like=True):
    """An object of a store."""

    current: Entry
    #: earlier states that tasks under way may still read
    kept: list[Entry] = []
    #: the id of the version that this one was copied from
    previous: str | None = None

    def entry(self, token: str | None) -> Entry:
        """The state of this token if it is still kept, else the current one."""
        if token is not None:
            for entry in self.kept:
                if entry.token == token:
                    return entry
        return self.current

    def to_update(self, author: str) -> Entry | None:
        """The state that a task begins with: not one that an earlier attempt of it made. None if that is gone."""
        if self.current.author != author or not self.current.base:
            return self.current
        return next((entry for entry in self.kept if entry.token == self.current.base), None)

    def entries(self) -> list[Entry]:
        """All states, the current one first."""
        return [self.current, *self.kept]

    def names(self, token: str) -> bool:
        """Whether it names a state."""
        return any(entry.token == token for entry in self.entries())


_encode = encode_entry = msgspec.msgpack.Encoder().encode
decode_entry = msgspec.msgpack.Decoder(Entry).decode
_decode = msgspec.msgpack.Decoder(Manifest).decode


def encode(manifest: Manifest, stamp: bytes) -> bytes:
    """A manifest as a store keeps it."""
    return stamp + _encode(manifest)


def decode(data: bytes, identifier: str) -> Manifest:
    """The manifest that a store kept."""
    try:
        return _decode(memoryview(data)[STAMP:])
    except msgspec.DecodeError as error:
        raise StorageError(
            f"what the store keeps as object {identifier!r} is no object of ours: {error}. Was it written by "
            f"something else?"
        ) from error


def layout(parts: Sequence[memoryview], block: int) -> list[list[memoryview]]:
    """The blocks that parts are written in: one for all small parts, and slices of the large ones."""
    small = [part for part in parts if len(part) <= _SMALL]
    blocks = [small] if small else []
    for part in parts:
        if len(part) > _SMALL:
            blocks += [[part[at : at + block]] for at in range(0, len(part), block)]
    return blocks


def spans(entry: Entry) -> list[int]:
    """Sizes of the runs of blocks that belong together: all small parts, and each large one."""
    small = [size for size in entry.parts if size <= _SMALL]
    return [*([sum(small)] if small else []), *(size for size in entry.parts if size > _SMALL)]


def parts_of(sizes: Sequence[int], blocks: Sequence[Buffer], *, writable: bool) -> list[Buffer]:
    """The parts again, from their blocks or spans, without a copy where a part is one that may be used as it is."""
    rest = iter(blocks)
    head = memoryview(next(rest)) if any(size <= _SMALL for size in sizes) else memoryview(b"")
    at = 0
    parts: list[Buffer] = []
    for size in sizes:
        if size <= _SMALL:
            piece = head[at : at + size]
            parts.append(bytearray(piece) if writable and piece.readonly else piece if writable else piece.toreadonly())
            at += size
        else:
            parts.append(_joined(size, rest, writable=writable))
    return parts


def _joined(size: int, blocks: Sequence[Buffer] | object, *, writable: bool) -> Buffer:
    first = next(blocks)  # type: ignore[call-overload]
    if len(first) == size:
        view = memoryview(first)
        if not writable:
            return view.toreadonly()
        return bytearray(view) if view.readonly else view
    whole = bytearray(size)
    view = memoryview(whole)
    at = 0
    while True:
        view[at : at + len(first)] = first
        at += len(first)
        if at == size:
            return view if writable else view.toreadonly()
        first = next(blocks)  # type: ignore[call-overload]
