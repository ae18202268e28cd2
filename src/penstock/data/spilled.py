"""Segments as they lie on disk: the bytes, then a trailer with their checksum, their number and a mark.

Whoever reads one checks it first: a disk, unlike memory, may be full, fail, or be tidied up by somebody. All reading is
done by calls that report errors; a page of a mapping that cannot be read would end the process instead.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["TRAILER", "Damaged", "check", "copy_in", "copy_out", "write_all", "write_checked"]

_MARK = b"PENSPIL1"
#: xxh3-128 of the bytes, how many they are, and the mark
_FORM = struct.Struct("<16sQ8s")
#: bytes that the trailer adds
TRAILER = _FORM.size
#: bytes copied at a time: they stay in the processor's cache between reading, summing up and writing
_STEP = 1 << 20


class Damaged(Exception):
    """A file is not what was written."""


def write_all(descriptor: int, view: memoryview, offset: int) -> None:
    """Write everything, in as many calls as the kernel needs for it."""
    while view:
        written = os.pwrite(descriptor, view, offset)
        view = view[written:]
        offset += written


def write_checked(descriptor: int, buffers: Sequence[memoryview], offsets: Sequence[int]) -> None:
    """Write buffers to their places, zeros in between, and the trailer."""
    digest, end = _digest(), 0
    for buffer, offset in zip(buffers, offsets, strict=True):
        digest.update(bytes(offset - end))
        digest.update(buffer)
        write_all(descriptor, buffer, offset)
        end = offset + len(buffer)
    write_all(descriptor, memoryview(_FORM.pack(digest.digest(), end, _MARK)), end)


def copy_out(source: int, target: int, progress: Callable[[int], None]) -> None:
    """Copy a segment from memory to disk, and add the trailer."""
    size = os.fstat(source).st_size
    digest = _copy(source, target, size, progress)
    write_all(target, memoryview(_FORM.pack(digest, size, _MARK)), size)


def copy_in(source: int, target: int, progress: Callable[[int], None]) -> None:
    """Copy a segment from disk to memory; raises Damaged if it is not what was written."""
    size, digest = _trailer(source)
    if _copy(source, target, size, progress) != digest:
        raise Damaged("its checksum is wrong")


def check(descriptor: int) -> int:
    """Raise Damaged unless the bytes are those that were written; how many they are."""
    size, digest = _trailer(descriptor)
    if _copy(descriptor, None, size, lambda copied: None) != digest:
        raise Damaged("its checksum is wrong")
    return size


def _trailer(descriptor: int) -> tuple[int, bytes]:
    length = os.fstat(descriptor).st_size
    data = os.pread(descriptor, TRAILER, max(0, length - TRAILER))
    if len(data) == TRAILER:
        digest, size, mark = _FORM.unpack(data)
        if mark == _MARK and size + TRAILER == length:
            return size, digest
    raise Damaged("it is not complete")


def _copy(source: int, target: int | None, size: int, progress: Callable[[int], None]) -> bytes:
    """Copy bytes, if there is somewhere to copy them to; their checksum."""
    digest, done = _digest(), 0
    buffer = memoryview(bytearray(min(size, _STEP)))
    while done < size:
        step = os.preadv(source, [buffer[: size - done]], done)
        if not step:
            raise Damaged("it is not complete")
        digest.update(buffer[:step])
        if target is not None:
            write_all(target, buffer[:step], done)
        done += step
        progress(step)
    found: bytes = digest.digest()
    return found


def _digest() -> Any:
    import xxhash

    return xxhash.xxh3_128()
