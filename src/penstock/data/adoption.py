"""Buffers of a result that already lie in a segment: they are referred to, not copied.

That is what a task was given and passes on, a large part of it, and what it has changed in place. A buffer is known
by its address, which means something only as long as the mapping exists: the table of a task holds its mappings.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.model.data import Piece, SegmentId

__all__ = ["address", "adopted"]

#: the smallest share of a segment for whose sake the whole is kept
_SHARE = 1 / 8


#: ``PyBUF_FULL_RO``: of any layout
_FULL_READ_ONLY = 0x11C


class _Buffer(ctypes.Structure):
    """``Py_buffer``."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


def address(exporter: Any) -> int:
    """Where the bytes of an object are in memory. ``c_char.from_buffer`` would not tell of read-only ones."""
    buffer = _Buffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(exporter), ctypes.byref(buffer), _FULL_READ_ONLY)
    try:
        return buffer.buf or 0
    finally:
        ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))


def adopted(
    views: Sequence[memoryview],
    in_place: Mapping[SegmentId, tuple[bool, int, int]],
    mapped: Sequence[tuple[SegmentId, bool, memoryview]],
) -> list[Piece | None]:
    """For each buffer the piece of a segment that it is, if it is one.

    What lies in a segment that others read too keeps all of it alive. A small part is rather copied.
    """
    spots = [(segment, *spot) for segment, spot in in_place.items()]
    lengths: dict[SegmentId, int] = {}
    for segment, spilled, mapping in mapped:
        lengths[segment] = len(mapping)
        spots.append((segment, spilled, address(mapping), len(mapping)))
    pieces = _apart([_piece(view, spots) for view in views])
    kept = Counter[SegmentId]()
    for piece in pieces:
        if piece is not None:
            kept[piece.segment] += piece.size
    return [
        None if piece is None or kept[piece.segment] < _SHARE * lengths.get(piece.segment, 0) else piece
        for piece in pieces
    ]


def _apart(pieces: list[Piece | None]) -> list[Piece | None]:
    """Of pieces that overlap, only the first: the others would change with it when it is updated in place."""
    taken: list[Piece] = []
    for index, piece in enumerate(pieces):
        if piece is None:
            continue
        if any(_overlap(piece, other) for other in taken):
            pieces[index] = None
        else:
            taken.append(piece)
    return pieces


def _overlap(one: Piece, other: Piece) -> bool:
    same = one.segment == other.segment
    return same and one.offset < other.offset + other.size and other.offset < one.offset + one.size


def _piece(view: memoryview, spots: Sequence[tuple[SegmentId, bool, int, int]]) -> Piece | None:
    start = address(view)
    for segment, spilled, base, length in spots:
        if base <= start and start + len(view) <= base + length:
            return Piece(segment, spilled, start - base, len(view))
    return None
