"""Large buffers that the program passes again and again, stored once.

A buffer is recognised by the object that exports it and by a fingerprint of its bytes: if the program changed it
between two calls, the second call gets a segment of its own and the first one keeps what it was given.
"""

from __future__ import annotations

import pickle
import weakref
from collections.abc import Callable
from typing import Any

from penstock.data.segments import Segments
from penstock.model.data import Piece, SegmentId

__all__ = ["BufferCache"]


class _Entry:
    __slots__ = ("fingerprint", "piece", "reference")

    def __init__(self, reference: weakref.ref[Any], fingerprint: bytes, piece: Piece) -> None:
        self.reference = reference
        self.fingerprint = fingerprint
        self.piece = piece


class BufferCache:
    """Segments that hold buffers of living objects of the program."""

    def __init__(self, segments: Segments, made: Callable[[Piece], None], gone: Callable[[SegmentId], None]) -> None:
        self._segments = segments
        self._made = made
        self._gone = gone
        self._by_address: dict[int, _Entry] = {}

    def piece(self, buffer: pickle.PickleBuffer) -> Piece:
        """Where the buffer's bytes lie."""
        import xxhash

        view = buffer.raw()
        owner = memoryview(buffer).obj
        fingerprint = xxhash.xxh3_128_digest(view)
        entry = self._by_address.get(id(owner))
        if entry is not None:
            known = entry.reference() is owner and entry.fingerprint == fingerprint and entry.piece.size == len(view)
            if known and self._segments.is_there(entry.piece.segment):
                return entry.piece
            self._forget(id(owner))
        [piece] = self._segments.write([view])
        try:
            address = id(owner)
            reference = weakref.ref(owner, lambda _: self._forget(address))
        except TypeError:
            return piece
        self._by_address[address] = _Entry(reference, fingerprint, piece)
        self._made(piece)
        return piece

    def _forget(self, address: int) -> None:
        entry = self._by_address.pop(address, None)
        if entry is not None:
            self._gone(entry.piece.segment)
