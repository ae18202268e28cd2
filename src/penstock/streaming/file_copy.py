"""A copy of one file, between a disk and memory in either direction: its data without its holes, and its looks."""

from __future__ import annotations

import contextlib
import os

__all__ = ["copy_file"]

_CHUNK = 8 << 20


def copy_file(source: str, target: str, about: os.stat_result) -> None:
    """Make a file with the bytes, holes, permissions, times and, where that is allowed, the owner of another one."""
    reading = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(reading).st_size
            _copy_data(reading, writing, size)
            os.ftruncate(writing, size)  # a hole at the end
            made = os.fstat(writing)
            if (made.st_uid, made.st_gid) != (about.st_uid, about.st_gid):
                with contextlib.suppress(OSError):
                    os.fchown(writing, about.st_uid, about.st_gid)
            os.fchmod(writing, about.st_mode & 0o7777)
            os.utime(writing, ns=(about.st_atime_ns, about.st_mtime_ns))
        finally:
            os.close(writing)
    finally:
        os.close(reading)


def _copy_data(reading: int, writing: int, size: int) -> None:
    """Copy what is data; holes stay holes."""
    at = 0
    while at < size:
        try:
            start = os.lseek(reading, at, os.SEEK_DATA)
        except OSError:
            return  # only a hole is left
        end = os.lseek(reading, start, os.SEEK_HOLE)
        os.lseek(writing, start, os.SEEK_SET)
        while start < end:
            copied = os.sendfile(writing, reading, start, min(_CHUNK, end - start))
            if copied == 0:
                return  # it became shorter meanwhile
            start += copied
        at = end
