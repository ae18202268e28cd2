"""A copy of one file, between a disk and memory in either direction: its data without its holes, and its looks."""

from __future__ import annotations

import contextlib
import os
import stat

__all__ = ["copy_file"]

_CHUNK = 8 << 20


def copy_file(source: str, target: str, about: os.stat_result) -> None:
    """Make a file with the bytes, holes, permissions, times and, where that is allowed, the owner of another one."""
    reading = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, about.st_mode & 0o777)
        try:
            now = os.fstat(reading)
            if (_copy_dense if now.st_blocks * 512 >= now.st_size else _copy_sparse)(reading, writing, now.st_size):
                os.ftruncate(writing, now.st_size)  # a hole at the end
            made = os.fstat(writing)
            if (made.st_uid, made.st_gid) != (about.st_uid, about.st_gid):
                with contextlib.suppress(OSError):
                    os.fchown(writing, about.st_uid, about.st_gid)
            if made.st_mode != about.st_mode or made.st_mode & (stat.S_ISUID | stat.S_ISGID):
                os.fchmod(writing, about.st_mode & 0o7777)  # after the owner, whose change takes rights away
            os.utime(writing, ns=(about.st_atime_ns, about.st_mtime_ns))
        finally:
            os.close(writing)
    finally:
        os.close(reading)


def _copy_dense(reading: int, writing: int, size: int) -> bool:
    """Copy a file without holes; whether something is missing at the end."""
    at = 0
    while at < size:
        copied = os.sendfile(writing, reading, at, min(_CHUNK, size - at))
        if copied == 0:
            return True  # it became shorter meanwhile
        at += copied
    return False


def _copy_sparse(reading: int, writing: int, size: int) -> bool:
    """Copy what is data; holes stay holes. Whether something is missing at the end."""
    at = 0
    while at < size:
        try:
            start = os.lseek(reading, at, os.SEEK_DATA)
        except OSError:
            return True  # only a hole is left
        end = os.lseek(reading, start, os.SEEK_HOLE)
        os.lseek(writing, start, os.SEEK_SET)
        while start < end:
            copied = os.sendfile(writing, reading, start, min(_CHUNK, end - start))
            if copied == 0:
                return True  # it became shorter meanwhile
            start += copied
        at = end
    return False
