"""What an attempt changes in place, kept so that it can be put back should the attempt fail.

Each process has one place for it, which it uses again and again. In worker processes that is a file in the run's
memory: what a killed worker was changing is put back by the main program.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import struct
from collections.abc import Callable, Sequence
from typing import Any

from penstock.data.huge_pages import mapped, prepared
from penstock.errors import PenstockError
from penstock.graph.regions import Region, runs, size_of
from penstock.model.data import SegmentId, TaskId

__all__ = ["Undo", "gather", "put_back_of", "scatter"]

#: the task, and how long the list of what it changes is; 0 is none
_HEADER = struct.Struct("<QQ")


class Undo:
    """The place of one process; ``path`` is that of its file, or None if nobody else will ever look for it."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._memory: memoryview | None = None

    def keep(self, task: TaskId, changed: Sequence[tuple[SegmentId, Region, memoryview]]) -> None:
        """Copy the regions of memory that a task is about to change."""
        listed = pickle.dumps([(segment, tuple(one)) for segment, one, _ in changed], 5)
        at = _HEADER.size + len(listed)
        memory = self._of_size(at + sum(size_of(one) for _, one, _ in changed))
        _HEADER.pack_into(memory, 0, 0, 0)  # while it is being filled, it is of no use
        memory[_HEADER.size : at] = listed
        for _, one, source in changed:
            gather(source, one, memory[at : at + size_of(one)])
            at += size_of(one)
        _HEADER.pack_into(memory, 0, task, len(listed))

    def put_back(self, task: TaskId, memory_of: Callable[[SegmentId], memoryview]) -> None:
        """Undo what a task has changed."""
        if self._memory is not None:
            _put_back(self._memory[:], task, memory_of)

    def _of_size(self, size: int) -> memoryview:
        if self._memory is None or len(self._memory) < size:
            # Twice as much at least, so that parts of growing size cost no more than their copies.
            self._memory = self._enlarged(max(size, 2 * len(self._memory or b""), mmap.PAGESIZE))
        return self._memory

    def _enlarged(self, size: int) -> memoryview:
        if self._path is None:
            return memoryview(mmap.mmap(-1, size))
        descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            prepared(descriptor, size)
            os.posix_fallocate(descriptor, 0, size)  # to write to it must not fail
            return mapped(descriptor, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED)
        except OSError as error:
            raise PenstockError(
                f"cannot keep {size} bytes that the task is about to change ({self._path}): {error.strerror}. "
                f"Free shared memory, or give tasks smaller parts."
            ) from error
        finally:
            os.close(descriptor)


def put_back_of(path: str, tasks: Sequence[TaskId], memory_of: Callable[[SegmentId], memoryview]) -> None:
    """A process has ended while it carried out one of these tasks: undo what it has changed. Its file goes."""
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as kept:
            for task in tasks:
                _put_back(memoryview(kept), task, memory_of)
        os.unlink(path)


def _put_back(kept: memoryview, task: TaskId, memory_of: Callable[[SegmentId], memoryview]) -> None:
    with kept:
        owner, length = _HEADER.unpack_from(kept)
        if owner != task or not length:
            return
        at = _HEADER.size + length
        for segment, (lo, hi, dims, run) in pickle.loads(kept[_HEADER.size : at]):
            one = Region(lo, hi, dims, run)
            with kept[at : at + size_of(one)] as old:
                scatter(old, one, memory_of(segment))
            at += size_of(one)
        if not kept.readonly:
            _HEADER.pack_into(kept, 0, 0, 0)


def gather(memory: memoryview, one: Region, target: memoryview) -> None:
    """Copy a region of memory to one row of bytes."""
    if not one.dims:
        target[:] = memory[one.lo : one.hi]
    elif (rows := _rows(memory, one)) is not None:
        import numpy

        numpy.copyto(numpy.frombuffer(target, numpy.uint8).reshape(rows.shape), rows)
    else:
        at = 0
        for begin, end in runs(one):
            target[at : at + one.run] = memory[begin:end]
            at += one.run


def scatter(source: memoryview, one: Region, memory: memoryview) -> None:
    """Copy one row of bytes to a region of memory."""
    if not one.dims:
        memory[one.lo : one.hi] = source
    elif (rows := _rows(memory, one)) is not None:
        import numpy

        numpy.copyto(rows, numpy.frombuffer(source, numpy.uint8).reshape(rows.shape))
    else:
        at = 0
        for begin, end in runs(one):
            memory[begin:end] = source[at : at + one.run]
            at += one.run


def _rows(memory: memoryview, one: Region) -> Any:
    """The region as an array of bytes; None without NumPy."""
    try:
        import numpy
    except ImportError:
        return None
    shape = (*(count for count, _ in one.dims), one.run)
    strides = (*(stride for _, stride in one.dims), 1)
    return numpy.ndarray(shape, numpy.uint8, numpy.frombuffer(memory, numpy.uint8), one.lo, strides)
