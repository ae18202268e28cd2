"""The shared-memory store: one file per segment in a private directory on tmpfs, mapped by whoever reads it.
It is long because who makes, maps, shares, moves and removes segments must agree on where they are.

Every process of a run writes its own segments and maps anybody's; only the main program moves and removes them. A
segment that was spilled, or made while memory was full, lies on disk with a checksum (spilled.py) and is read in
the same way. Nobody needs to know where a segment is: it is looked for in all places, by its number.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import mmap
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from penstock.data.admission import Admission
from penstock.data.diversion import Diversion, room_in
from penstock.data.huge_pages import HUGE, give_back, mapped, prepared
from penstock.data.limits import behind
from penstock.data.spilled import TRAILER, Damaged, check, copy_in, copy_out, write_all, write_checked
from penstock.errors import PenstockError, RuntimeStopped
from penstock.model.data import Piece, SegmentId
from penstock.units import format_size

__all__ = ["Access", "MappedSegment", "SegmentLost", "Segments"]

#: buffers start at multiples of this, as vector instructions like it
_ALIGNMENT = 64
#: what is stored in one piece
Buffer = memoryview | bytes | Sequence[bytes]
#: bytes copied at a time
_STEP = 1 << 24
#: bits of a segment's number below its writer's
_WRITER = 40
#: how often all places are looked through: a segment may be moved from one that is to be looked at to one that was
_LOOKS = 3
#: mappings of shared segments that a process keeps
_KEPT = 4
#: what a file system says when it has no room
_FULL = (errno.ENOSPC, errno.ENOMEM, errno.EDQUOT)


class Access(Enum):
    """What a reader of a segment may do with it."""

    #: look at it
    READ = "read"
    #: change a private copy, made page by page as it is changed
    COPY = "copy"
    #: change the segment itself: nobody else will ever read it
    IN_PLACE = "in place"


_PROTECTION = {
    Access.READ: (mmap.PROT_READ, mmap.MAP_SHARED),
    Access.COPY: (mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE),
    Access.IN_PLACE: (mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED),
}


class SegmentLost(PenstockError):
    """A segment is gone from where it was, or its bytes are not those that were written."""

    def __init__(self, segment: SegmentId, why: str) -> None:
        super().__init__(why)
        self.segment = segment
        self.why = why

    def __reduce__(self) -> tuple[type[SegmentLost], tuple[SegmentId, str]]:
        return SegmentLost, (self.segment, self.why)


class MappedSegment(NamedTuple):
    """The bytes of a segment, mapped for as long as somebody has them or a part of them."""

    view: memoryview
    #: they lie on disk, where they are never changed: what asked to change them in place has a private copy
    spilled: bool


class Segments:
    """The segments of a run, as one process of it sees them."""

    def __init__(
        self,
        memory_dir: str,
        spill_dir: str,
        writer: int,
        *,
        alone: bool = False,
        layer_dirs: Mapping[str, str] | None = None,
    ) -> None:
        """``layer_dirs``: where segments are spilled to on storage layers; they need not exist yet."""
        self.memory_dir = memory_dir
        #: where processes spill what they write
        self.spill_dir = spill_dir
        self.layer_dirs = dict(layer_dirs or {})
        #: all places on disk
        self.spill_dirs = tuple(dict.fromkeys((spill_dir, *self.layer_dirs.values())))
        self.writer = writer
        #: a run that has made nothing yet makes its directories with the first segment; else one that is gone stays so
        self._makes_parents = alone and not os.path.isdir(os.path.dirname(spill_dir))
        #: no other process shares the store: segments are memory without a name, which goes with this process
        self._alone = alone
        self._nameless: dict[SegmentId, int] = {}
        self._nameless_lock = threading.Lock()
        #: shared segments that tasks of this process have used, the latest last: pages found once are not sought again
        self._shared: OrderedDict[SegmentId, memoryview] = OrderedDict()
        #: grants memory for turning objects to bytes and back; None: there is no limit
        self.admission: Admission | None = None
        #: the run ends: nothing can be written any more
        self.closed = False
        #: whether new segments go to disk, if that takes them
        self.diversion = Diversion(() if alone else (memory_dir, spill_dir))
        # The writer's number is part of a segment's, so that processes need not agree on a counter.
        self._numbers: Iterator[SegmentId] = itertools.count((writer << _WRITER) + 1)

    def admit(self, budget: int | None) -> None:
        """Let all processes together need no more than this much memory to turn objects to bytes and back."""
        if budget is not None and not self._alone:
            self.admission = Admission(os.path.join(self.memory_dir, "admission"), budget)

    def close(self) -> None:
        """Let go of what is open."""
        self.closed = True
        self.diversion.close()
        for descriptor in self._nameless.values():
            os.close(descriptor)
        self._nameless.clear()
        self._shared.clear()

    def path(self, segment: SegmentId, *, spilled: bool) -> str:
        """Where a segment lies when it is new."""
        return os.path.join(self.spill_dir if spilled else self.memory_dir, f"s{segment}")

    def undo_path(self, writer: int) -> str | None:
        """Where a process keeps what it changes in place; None where no other process could look for it."""
        return None if self._alone else os.path.join(self.memory_dir, f"u{writer}")

    # --- writing --------------------------------------------------------------------------------------------------

    def write(self, buffers: Sequence[Buffer]) -> list[Piece]:
        """Store buffers together in a new segment; one that is given in parts is stored as one."""
        try:
            if not self.closed:
                return self._write_somewhere(buffers)
        except (OSError, ValueError) as error:
            if not self.closed:
                if limit := behind(error):
                    error.add_note(f"While {format_size(_size(buffers))} were stored: {limit}.")
                raise
        raise RuntimeStopped("the runtime was stopped by another thread; nothing can be stored any more")

    def _write_somewhere(self, buffers: Sequence[Buffer]) -> list[Piece]:
        """Write to memory, or to disk if that is full; the other way round while segments are diverted."""
        segment = next(self._numbers)
        refusals: dict[bool, OSError] = {}
        for spilled in (True, False) if self.diversion and self._takes(buffers) else (False, True):
            try:
                return self._write(segment, buffers, spilled=spilled)
            except OSError as error:
                if not spilled and error.errno not in _FULL:
                    raise
                refusals[spilled] = error
        raise PenstockError(
            f"cannot store {format_size(_size(buffers))}: shared memory is full ({self.memory_dir}: "
            f"{room_in(self.memory_dir)}), and spilling to disk failed: {refusals[True].strerror} ({self.spill_dir}: "
            f"{room_in(self.spill_dir)}). Free space there, or set spill_dir to a larger disk, or memory_dir to a "
            f"larger file system."
        ) from refusals[True]

    def _takes(self, buffers: Sequence[Buffer]) -> bool:
        """Whether the disk seems to have room: to fill it up each time, only to find that it had none, takes long."""
        try:
            disk = os.statvfs(self.spill_dir)
        except OSError:
            return True  # the directory may have to be made, or whatever it is will be said by who writes
        return disk.f_blocks == 0 or disk.f_bavail * disk.f_frsize >= _size(buffers) + TRAILER

    def _write(self, segment: SegmentId, buffers: Sequence[Buffer], *, spilled: bool) -> list[Piece]:
        views: list[memoryview] = []
        offsets: list[int] = []
        pieces, end = [], 0
        for buffer in buffers:
            begin = end
            for part in _parts(buffer):
                views.append(memoryview(part).cast("B"))
                offsets.append(end)
                end += len(views[-1])
            pieces.append(Piece(segment, spilled, begin, end - begin))
            end = -(-end // _ALIGNMENT) * _ALIGNMENT
        try:
            if spilled:
                self._make_spill_dir(self.spill_dir)
                with _created(self.path(segment, spilled=True)) as descriptor:
                    write_checked(descriptor, views, offsets)
            else:
                with self._in_memory(segment, f"s{segment}") as descriptor:
                    _fill(descriptor, views, offsets)
        except BaseException:
            self.remove(segment)
            raise
        return pieces

    def _make_spill_dir(self, folder: str) -> None:
        """Make a folder for segments, but not the disk that it was on: that would be another one."""
        if self._makes_parents:
            os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)
            self._makes_parents = False
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, mode=0o700)

    def build(self, size: int) -> tuple[SegmentId, memoryview] | None:
        """A new segment, to be filled where it lies; None where it would be slower than a copy, or memory is full."""
        if self.closed or self.diversion:
            return None
        segment = next(self._numbers)
        try:
            with self._in_memory(segment, f"s{segment}") as descriptor:
                if prepared(descriptor, size) is not None:
                    if rest := size % HUGE:  # it must be there in truth, too
                        os.posix_fallocate(descriptor, size - rest, rest)
                    return segment, mapped(descriptor, size, *_PROTECTION[Access.IN_PLACE])
        except OSError as error:
            if error.errno not in _FULL:
                raise
        self.remove(segment)
        return None

    def share(self, size: int) -> tuple[SegmentId, memoryview]:
        """A new segment that several processes change at the same time, mapped; it never leaves memory."""
        segment = next(self._numbers)
        try:
            with self._in_memory(segment, f"s{segment}") as descriptor:
                if prepared(descriptor, size) is None:
                    os.ftruncate(descriptor, size)
                os.posix_fallocate(descriptor, 0, size)  # to write to it must not fail
                return segment, mapped(descriptor, size, *_PROTECTION[Access.IN_PLACE])
        except OSError as error:
            self.remove(segment)
            why = behind(error) or f"shared memory ({self.memory_dir}) has no room: {error.strerror}"
            raise PenstockError(f"cannot share {size} bytes between tasks: {why}") from error

    def map_shared(self, segment: SegmentId) -> memoryview:
        """The bytes of a shared segment, to be read and changed; the mapping is kept for the next task."""
        view = self._shared.get(segment)
        if view is None:
            view = self._shared[segment] = self.map(segment, spilled=False, access=Access.IN_PLACE).view
            if len(self._shared) > _KEPT:
                self._shared.popitem(last=False)
        else:
            self._shared.move_to_end(segment)
        return view

    def unshare(self, segment: SegmentId) -> None:
        """Give the memory of a shared segment back, also where a process still has it mapped."""
        with contextlib.suppress(FileNotFoundError):
            descriptor = self._open_in_memory(segment, os.O_RDWR)
            try:
                give_back(descriptor)
            finally:
                os.close(descriptor)
        self._remove_from_memory(segment)
        self._shared.pop(segment, None)

    @contextlib.contextmanager
    def _in_memory(self, segment: SegmentId, name: str) -> Iterator[int]:
        """A new file in memory."""
        if not self._alone:
            with _created(os.path.join(self.memory_dir, name)) as descriptor:
                yield descriptor
            return
        descriptor = os.memfd_create(f"penstock-{name}")
        try:
            yield descriptor
        except BaseException:
            os.close(descriptor)
            raise
        with self._nameless_lock:
            self._nameless[segment] = descriptor

    # --- reading --------------------------------------------------------------------------------------------------

    def map(self, segment: SegmentId, *, spilled: bool, access: Access) -> MappedSegment:
        """The bytes of a segment, without copying them; ``spilled`` says where it was when it was new."""
        descriptor, path = self._open(segment, os.O_RDWR if access is Access.IN_PLACE else os.O_RDONLY, spilled)
        try:
            on_disk = bool(path)
            size = check(descriptor) if on_disk else os.fstat(descriptor).st_size
            if on_disk and access is Access.IN_PLACE:
                access = Access.COPY
            return MappedSegment(mapped(descriptor, size, *_PROTECTION[access]), on_disk)
        except Damaged as damage:
            raise SegmentLost(segment, f"{path}, which held a part of it, is damaged: {damage}") from None
        except ValueError:  # there is nothing to map
            path = path or self.path(segment, spilled=False)
            raise SegmentLost(segment, f"{path}, which held a part of it, is empty") from None
        except OSError as error:
            if not path:
                raise
            raise SegmentLost(segment, f"{path}, which held a part of it, cannot be read: {error.strerror}") from error
        finally:
            os.close(descriptor)

    def _open(self, segment: SegmentId, flags: int, spilled: bool) -> tuple[int, str]:
        """Open a segment, wherever it is; gives its path if that is on disk."""
        for look in range(_LOOKS):
            if look or not spilled:
                with contextlib.suppress(FileNotFoundError):
                    return self._open_in_memory(segment, flags), ""
            for folder in self.spill_dirs:
                path = os.path.join(folder, f"s{segment}")
                with contextlib.suppress(FileNotFoundError):
                    return os.open(path, os.O_RDONLY | os.O_CLOEXEC), path
        path = self.path(segment, spilled=spilled)
        raise SegmentLost(segment, f"{path}, which held a part of it, is gone")

    def _open_in_memory(self, segment: SegmentId, flags: int) -> int:
        if self._alone:
            with self._nameless_lock:
                if segment not in self._nameless:
                    raise FileNotFoundError
                return os.open(f"/proc/self/fd/{self._nameless[segment]}", flags | os.O_CLOEXEC)
        return os.open(os.path.join(self.memory_dir, f"s{segment}"), flags | os.O_CLOEXEC)

    def is_there(self, segment: SegmentId) -> bool:
        """Whether a segment lies somewhere; what it holds is not looked at."""
        try:
            os.close(self._open(segment, os.O_RDONLY, spilled=False)[0])
        except SegmentLost:
            return False
        return True

    def holds(self, path: object) -> bool:
        """Whether a path is one of a segment."""
        return isinstance(path, str) and os.path.dirname(path) in (self.memory_dir, *self.spill_dirs)

    # --- moving and removing: only the main program does ----------------------------------------------------------

    def spill(self, segment: SegmentId, folder: str, progress: Callable[[int], None]) -> None:
        """Move a segment from memory to a folder on disk. Whatever fails, it stays where it was."""
        try:
            source = self._open_in_memory(segment, os.O_RDONLY)
        except FileNotFoundError:
            path = self.path(segment, spilled=False)
            raise SegmentLost(segment, f"{path}, which held a part of it, is gone") from None
        path = os.path.join(folder, f"s{segment}")
        try:
            self._make_spill_dir(folder)
            with _created(f"{path}.new") as target:
                copy_out(source, target, progress)
            os.replace(f"{path}.new", path)
        finally:
            os.close(source)
        self._remove_from_memory(segment)

    def restore(self, segment: SegmentId, folder: str, progress: Callable[[int], None]) -> None:
        """Move a segment from a folder on disk to memory. Whatever fails, it stays where it was."""
        path = os.path.join(folder, f"s{segment}")
        try:
            source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            gone = "is gone" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
            raise SegmentLost(segment, f"{path}, which held a part of it, {gone}") from None
        try:
            with self._in_memory(segment, f"s{segment}.new") as target:
                prepared(target, os.fstat(source).st_size - TRAILER)
                copy_in(source, target, progress)
        except Damaged as damage:
            raise SegmentLost(segment, f"{path}, which held a part of it, is damaged: {damage}") from None
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            raise SegmentLost(segment, f"{path}, which held a part of it, cannot be read: {error.strerror}") from error
        finally:
            os.close(source)
        if not self._alone:
            new = os.path.join(self.memory_dir, f"s{segment}")
            os.replace(f"{new}.new", new)
        os.unlink(path)

    def made_by(self, writer: int) -> list[SegmentId]:
        """The segments that one process wrote and that are still there."""
        names: list[str] = []
        for folder in (self.memory_dir, *self.spill_dirs):
            with contextlib.suppress(FileNotFoundError):
                names += os.listdir(folder)
        numbers = [int(name[1:]) for name in names if name[0] == "s" and name[1:].isdigit()]
        return [number for number in numbers if number >> _WRITER == writer]

    def remove(self, segment: SegmentId) -> None:
        """Delete a segment, wherever it lies."""
        if self._remove_from_memory(segment):
            return
        for folder in self.spill_dirs:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, f"s{segment}"))
                return

    def _remove_from_memory(self, segment: SegmentId) -> bool:
        try:
            if self._alone:
                with self._nameless_lock:
                    os.close(self._nameless.pop(segment))
            else:
                os.unlink(os.path.join(self.memory_dir, f"s{segment}"))
        except (FileNotFoundError, KeyError):
            return False
        return True


def _size(buffers: Sequence[Buffer]) -> int:
    return sum(memoryview(part).nbytes for buffer in buffers for part in _parts(buffer))


def _parts(buffer: Buffer) -> Sequence[memoryview | bytes]:
    return (buffer,) if isinstance(buffer, bytes | memoryview) else buffer


@contextlib.contextmanager
def _created(path: str) -> Iterator[int]:
    """A new file, which goes if it cannot be filled."""
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise
    finally:
        os.close(descriptor)


def _fill(descriptor: int, views: Sequence[memoryview], offsets: Sequence[int]) -> None:
    """Write buffers to their places in a new file in memory."""
    huge = prepared(descriptor, offsets[-1] + len(views[-1])) if views else None
    for view, offset in zip(views, offsets, strict=True):
        start = 0
        while huge is not None and start < len(view) and offset + start < len(huge):
            # In steps: other threads of this process want their turn meanwhile.
            step = min(_STEP, len(view) - start, len(huge) - offset - start)
            huge[offset + start : offset + start + step] = view[start : start + step]
            start += step
        write_all(descriptor, view[start:], offset + start)
