"""The shared-memory store: one file per segment in a private directory on tmpfs, mapped by whoever reads it.

Every process of a run writes its own segments and maps anybody's; only the main program removes them. A segment made
while the store is full lies in the spill directory instead, on disk, and is read in the same way.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Sequence
from enum import Enum

from penstock.errors import PenstockError, RuntimeStopped
from penstock.model.data import Piece, SegmentId

__all__ = ["Access", "Segments"]

#: buffers start at multiples of this, as vector instructions like it
_ALIGNMENT = 64
#: the kernel writes at most about this much in one call
_CHUNK = 1 << 30
#: bits of a segment's number below its writer's
_WRITER = 40


class Access(Enum):
    """What a reader of a segment may do with it."""

    #: look at it
    READ = "read"
    #: change a private copy, made page by page as it is changed
    COPY = "copy"
    #: change the segment itself: nobody else will ever read it
    IN_PLACE = "in place"


class Segments:
    """The segments of a run, as one process of it sees them."""

    def __init__(self, memory_dir: str, spill_dir: str, writer: int, *, alone: bool = False) -> None:
        self.memory_dir = memory_dir
        self.spill_dir = spill_dir
        self.writer = writer
        #: no other process shares the store: segments are memory without a name, which goes with this process
        self._alone = alone
        self._nameless: dict[SegmentId, int] = {}
        #: the run ends: nothing can be written any more
        self.closed = False
        self._full: mmap.mmap | bytearray = bytearray(1) if alone else self._flag()
        # The writer's number is part of a segment's, so that processes need not agree on a counter.
        self._next: SegmentId = (writer << _WRITER) + 1

    def _flag(self) -> mmap.mmap:
        """One byte that all processes of the run see: whether the store is full."""
        path = os.path.join(self.spill_dir, "full")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(descriptor).st_size == 0:
                os.write(descriptor, b"\0")  # written, not only mapped: a full disk must be an error here
            return mmap.mmap(descriptor, 1)
        except OSError as error:
            raise PenstockError(
                f"cannot write to {self.spill_dir}: {error.strerror}. Free space there, or set spill_dir or run_dir "
                f"to another directory."
            ) from error
        finally:
            os.close(descriptor)

    @property
    def full(self) -> bool:
        """Whether new segments go to disk."""
        return self._full[0] != 0

    @full.setter
    def full(self, full: bool) -> None:
        self._full[0] = full

    def close(self) -> None:
        """Let the flag go."""
        self.closed = True
        if isinstance(self._full, mmap.mmap):
            self._full.close()
        for descriptor in self._nameless.values():
            os.close(descriptor)
        self._nameless.clear()

    def path(self, segment: SegmentId, *, spilled: bool) -> str:
        """Where a segment lies."""
        if segment in self._nameless:
            return f"/proc/self/fd/{self._nameless[segment]}"
        return os.path.join(self.spill_dir if spilled else self.memory_dir, f"s{segment}")

    def write(self, buffers: Sequence[memoryview | bytes]) -> list[Piece]:
        """Store buffers together in a new segment."""
        try:
            if not self.closed:
                return self._write_somewhere(buffers)
        except (OSError, ValueError):
            if not self.closed:
                raise
        raise RuntimeStopped("the runtime was stopped by another thread; nothing can be stored any more")

    def _write_somewhere(self, buffers: Sequence[memoryview | bytes]) -> list[Piece]:
        segment = self._next
        self._next += 1
        if not self.full:
            try:
                return self._write(segment, buffers, spilled=False)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.ENOMEM, errno.EDQUOT):
                    raise
        try:
            return self._write(segment, buffers, spilled=True)
        except OSError as error:
            size = sum(len(buffer) for buffer in buffers)
            raise PenstockError(
                f"cannot store {size} bytes: shared memory ({self.memory_dir}) is full and spilling to "
                f"{self.spill_dir} failed: {error.strerror}. Free space there, or set spill_dir to a larger disk."
            ) from error

    def _write(self, segment: SegmentId, buffers: Sequence[memoryview | bytes], *, spilled: bool) -> list[Piece]:
        if self._alone and not spilled:
            self._nameless[segment] = os.memfd_create(f"penstock-s{segment}")
        path = self.path(segment, spilled=spilled)
        if self._alone and spilled:
            os.makedirs(self.spill_dir, mode=0o700, exist_ok=True)
        flags = os.O_WRONLY if segment in self._nameless else os.O_CREAT | os.O_EXCL | os.O_WRONLY
        descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
        pieces = []
        try:
            offset = 0
            for buffer in buffers:
                view = memoryview(buffer).cast("B")
                pieces.append(Piece(segment, spilled, offset, len(view)))
                for start in range(0, len(view), _CHUNK):
                    _write_all(descriptor, view[start : start + _CHUNK], offset + start)
                offset += -(-len(view) // _ALIGNMENT) * _ALIGNMENT
        except BaseException:
            self.remove(segment)
            raise
        finally:
            os.close(descriptor)
        return pieces

    def map(self, segment: SegmentId, *, spilled: bool, access: Access) -> mmap.mmap:
        """The bytes of a segment, without copying them."""
        flags = os.O_RDWR if access is Access.IN_PLACE else os.O_RDONLY
        descriptor = os.open(self.path(segment, spilled=spilled), flags | os.O_CLOEXEC)
        try:
            how = {Access.READ: mmap.ACCESS_READ, Access.COPY: mmap.ACCESS_COPY, Access.IN_PLACE: mmap.ACCESS_WRITE}
            return mmap.mmap(descriptor, 0, access=how[access])
        finally:
            os.close(descriptor)

    def holds(self, path: object) -> bool:
        """Whether a path is one of a segment."""
        return isinstance(path, str) and os.path.dirname(path) in (self.memory_dir, self.spill_dir)

    def made_by(self, writer: int) -> list[SegmentId]:
        """The segments that one process wrote and that are still there."""
        names = [*os.listdir(self.memory_dir), *os.listdir(self.spill_dir)]
        numbers = [int(name[1:]) for name in names if name[0] == "s" and name[1:].isdigit()]
        return [number for number in numbers if number >> _WRITER == writer]

    def remove(self, segment: SegmentId) -> None:
        """Delete a segment, wherever it lies."""
        if segment in self._nameless:
            os.close(self._nameless.pop(segment))
            return
        for spilled in (False, True):
            try:
                os.unlink(self.path(segment, spilled=spilled))
                return
            except FileNotFoundError:
                continue


def _write_all(descriptor: int, view: memoryview, offset: int) -> None:
    while view:
        written = os.pwrite(descriptor, view, offset)
        view = view[written:]
        offset += written
