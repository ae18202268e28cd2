"""How data are named and carried.

A *version* is one immutable state of a datum: the value a task returned, an object after a task updated it, a file
after a task wrote it. Versions are numbered by one counter per run, so a version's number is all that an edge needs.
A *segment* is a file of the shared-memory store holding the large buffers of one or more values.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

__all__ = [
    "SPOILED",
    "FileRef",
    "Piece",
    "SegmentId",
    "Slot",
    "TaskId",
    "Value",
    "VersionId",
    "in_segments",
    "segments_of",
]

TaskId = int
VersionId = int
SegmentId = int

#: in the place of a version: an attempt was changing it when it failed
SPOILED: VersionId = -1


class Piece(Struct, frozen=True, array_like=True, gc=False):
    """A range of a segment."""

    segment: SegmentId
    #: the segment lies on disk because the store was full when it was made
    spilled: bool
    offset: int
    size: int


# There is one for each result that the program has not let go. It holds no cycles, and where there is nothing beside
# the stream it holds nothing else: it costs the garbage collector's rounds nothing.
class Value(Struct, frozen=True, array_like=True, tag=0, gc=False):
    """A pickled object: the pickle stream and its out-of-band buffers, each inline or in a segment."""

    data: bytes | Piece
    buffers: tuple[bytes | Piece, ...] = ()
    #: states of persistent objects that it refers to: they are kept as long as a version refers to them
    states: tuple[str, ...] = ()

    def pieces(self) -> Iterator[Piece]:
        """The parts that live in segments."""
        if type(self.data) is Piece:
            yield self.data
        for buffer in self.buffers:
            if type(buffer) is Piece:
                yield buffer

    def nbytes(self) -> int:
        """Size in bytes, wherever the bytes are."""
        return _size(self.data) + sum(map(_size, self.buffers))


class FileRef(Struct, frozen=True, array_like=True, tag=1):
    """A file, by the path where this version of it can be opened."""

    path: str
    #: bytes, where whoever wrote it has said so
    size: int = 0
    #: it is still being written: only who reads it as a stream may have it
    open: bool = False
    #: it was not written from its first byte to its last: who read it meanwhile may have seen other bytes
    rewritten: bool = False
    #: the task has synced it, so its name is to survive a loss of power as well
    synced: bool = False


def _size(part: bytes | Piece) -> int:
    return part.size if type(part) is Piece else len(part)  # type: ignore[arg-type]


#: what a worker finds in one slot of a call
Slot = Value | FileRef


def in_segments(content: object) -> bool:
    """Whether a part of a value lies in a segment; small buffers travel beside the pickle, as it does."""
    if type(content) is not Value:
        return False
    return type(content.data) is Piece or (
        bool(content.buffers) and any(type(buffer) is Piece for buffer in content.buffers)
    )


def segments_of(slot: Slot | object) -> set[SegmentId]:
    """The segments that hold parts of a value."""
    return {piece.segment for piece in slot.pieces()} if type(slot) is Value else set()
