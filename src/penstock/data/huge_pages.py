"""Pages of 2 MiB for large segments.

The kernel gives files in shared memory pages of 4 KiB, unless the administrator wants it otherwise. To find and clear
these takes most of the time of a large write, and to map them most of the time of a first read. Since Linux 6.1 a
program can ask for large pages under a range of a file itself (``MADV_COLLAPSE``). Where that is not granted,
everything works as before, only slower.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from typing import Any

__all__ = ["HUGE", "detach", "give_back", "mapped", "own", "prepared"]

#: bytes of a large page
HUGE = 1 << 21

_MADV_COLLAPSE = 25
#: the system does not know the request, or not for files like these: it is not asked again
_NEVER = (errno.EINVAL, errno.ENOSYS)

#: large pages refused in a row after which no more are asked for: memory is too scattered to look on
_PATIENCE = 8

_possible = True


def prepared(descriptor: int, size: int) -> memoryview | None:
    """Put large pages under the beginning of a new file, and map it for writing; None where that cannot be had.

    What is mapped is there in truth: to write to it cannot fail, even if shared memory is full by then.
    """
    whole = size // HUGE * HUGE
    if not whole or not _possible:
        return None
    os.ftruncate(descriptor, size)
    for offset in range(0, whole, HUGE):
        os.pwrite(descriptor, b"\0", offset)  # a range without any page is not given one
    view, address = _aligned(descriptor, whole, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED)
    if _collapse(address, whole) or _collapse_some(descriptor, address, whole):
        return view
    return None


def _collapse(address: int, size: int) -> bool:
    """Have a mapped range in large pages; False if one of them was refused, with the reason in ``errno``."""
    return bool(_libc().madvise(address, size, _MADV_COLLAPSE) == 0)


def _collapse_some(descriptor: int, address: int, size: int) -> bool:
    """The same page by page: one that is busy, or for which memory is too scattered, is no reason to do without all.

    Those that cannot be had are filled with small ones, so that all is there. False if there is none, or no room.
    """
    global _possible
    without: list[int] = []
    in_vain = 0
    for offset in range(0, size, HUGE):
        if in_vain < _PATIENCE and _collapse(address + offset, HUGE):
            in_vain = 0
        else:
            in_vain += 1
            without.append(offset)
    if len(without) * HUGE == size:
        if ctypes.get_errno() in _NEVER and _has_room(descriptor):
            _possible = False
        return False
    try:
        for offset in without:
            os.posix_fallocate(descriptor, offset, HUGE)
    except OSError:
        return False
    return True


def _has_room(descriptor: int) -> bool:
    """Whether a refusal is not for want of room: the system gives the same reason for that."""
    memory = os.fstatvfs(descriptor)
    return memory.f_blocks == 0 or memory.f_bavail * memory.f_frsize >= HUGE


def mapped(descriptor: int, size: int, prot: int, flags: int) -> memoryview:
    """Map a file; a large one so that its large pages, if it has any, are mapped as such."""
    if size >= HUGE:
        return _aligned(descriptor, size, prot, flags)[0]
    return memoryview(mmap.mmap(descriptor, size, flags=flags, prot=prot))


def detach(address: int, size: int, descriptor: int) -> None:
    """Whatever is written to a mapped range from now on does not reach its file.

    What others write to the file still shows in pages that were not written to here: see ``own``.
    """
    flags = mmap.MAP_PRIVATE | _MAP_FIXED
    if _libc().mmap(address, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, descriptor, 0) != address:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def give_back(descriptor: int) -> None:
    """Free the pages of a file in memory, whoever has it mapped; what is read of it afterwards is zero."""
    size = os.fstat(descriptor).st_size
    _libc().fallocate(descriptor, _PUNCH_HOLE, ctypes.c_long(0), ctypes.c_long(size))  # memory for a while, if it fails


def own(address: int, size: int) -> None:
    """Write to every page of a detached range: it has nothing to do with its file any more."""
    memory = memoryview((ctypes.c_ubyte * size).from_address(address)).cast("B")
    for offset in range(0, size, mmap.PAGESIZE):
        memory[offset] = memory[offset]


def _aligned(descriptor: int, size: int, prot: int, flags: int) -> tuple[memoryview, int]:
    # Python's mapping takes no address. So it reserves a range, and owns it; the file is laid over a part of that.
    reserved = mmap.mmap(-1, size + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(reserved))
    address = -(-start // HUGE) * HUGE
    if _libc().mmap(address, size, prot, flags | _MAP_FIXED, descriptor, 0) != address:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    view = memoryview(reserved)[address - start : address - start + size]
    return view if prot & mmap.PROT_WRITE else view.toreadonly(), address


_MAP_FIXED = 0x10
_MAP_NORESERVE = 0x4000
#: ``FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE``
_PUNCH_HOLE = 0x03
_loaded: Any = None


def _libc() -> Any:
    global _loaded
    if _loaded is None:
        _loaded = ctypes.CDLL(None, use_errno=True)
        _loaded.mmap.restype = ctypes.c_void_p
        _loaded.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        _loaded.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return _loaded
