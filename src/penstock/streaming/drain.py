"""Files on their way out of a workflow: permanent ones are brought to their real place, temporary ones removed.

Copies are made by one thread, in the order in which files are committed, while the steps go on. A file appears in its
place by rename, complete and on the disk. What could not be delivered is kept in memory's folder and reported.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

__all__ = ["Drain", "deliver", "punch", "remove_files"]

_CHUNK = 8 << 20
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_PAGE = 4096
_libc = ctypes.CDLL(None, use_errno=True)

#: what a delivered file was like, to notice that it has changed since
_Stamp = tuple[int, int, int]


class Drain:
    """Delivers files from one tree to another, in the background."""

    def __init__(self, source: str, target: str, delivered: Callable[[str, int], None]) -> None:
        self._source, self._target = source, target
        self._delivered = delivered
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="penstock-drain")
        self._waiting: dict[str, Future[None]] = {}
        self._stamps: dict[str, _Stamp] = {}
        self._lock = threading.Lock()
        #: what could not be delivered, and why
        self.failures: dict[str, str] = {}

    @property
    def pending(self) -> int:
        """How many files wait for their turn."""
        with self._lock:
            return len(self._waiting)

    def submit(self, name: str) -> None:
        """Deliver a file soon; one that is waiting already is delivered once."""
        with self._lock:
            if name not in self._waiting:
                self._waiting[name] = self._thread.submit(self._carry, name)

    def _carry(self, name: str) -> None:
        with self._lock:
            self._waiting.pop(name, None)
        source = os.path.join(self._source, name)
        if self._is_reached_by_link(name):
            return  # it is delivered under its own name, and the link as a link
        try:
            before = _stamp(source)
            if before is None or before == self._stamps.get(name):
                return
            deliver(source, os.path.join(self._target, name))
            self._stamps[name] = before
            self.failures.pop(name, None)
            self._delivered(name, before[0])
        except OSError as error:
            if os.path.lexists(source):  # else it was removed or renamed meanwhile
                self.failures[name] = error.strerror or str(error)

    def finish(self) -> None:
        """Return when all is delivered. What was delivered and was removed or renamed since goes from its place too."""
        self._thread.shutdown(wait=True)
        for name in self._stamps:
            if not os.path.lexists(os.path.join(self._source, name)):
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(self._target, name))
                    self._leave_no_folders(os.path.dirname(name))

    def _leave_no_folders(self, folder: str) -> None:
        """Remove folders that were made for a file and that the workflow has removed or renamed since."""
        while folder and not os.path.lexists(os.path.join(self._source, folder)):
            os.rmdir(os.path.join(self._target, folder))
            folder = os.path.dirname(folder)

    def _is_reached_by_link(self, name: str) -> bool:
        folder = os.path.dirname(name)
        while folder:
            if os.path.islink(os.path.join(self._source, folder)):
                return True
            folder = os.path.dirname(folder)
        return False


def _stamp(path: str) -> _Stamp | None:
    try:
        about = os.lstat(path)
    except FileNotFoundError:
        return None
    return about.st_size, about.st_mtime_ns, about.st_ino


def deliver(source: str, target: str) -> None:
    """Copy a file, link or directory so that it appears whole, and stays after a loss of power."""
    _make_parents(os.path.dirname(source), os.path.dirname(target))
    about = os.lstat(source)
    if stat.S_ISDIR(about.st_mode):
        with contextlib.suppress(FileExistsError):
            os.mkdir(target, about.st_mode & 0o7777)
        return
    beside = os.path.join(os.path.dirname(target), f".penstock-{os.urandom(6).hex()}")
    try:
        if stat.S_ISLNK(about.st_mode):
            os.symlink(os.readlink(source), beside)
        elif stat.S_ISREG(about.st_mode):
            _copy(source, beside, about)
        else:
            return  # a pipe or socket means something only while its makers run
        os.rename(beside, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
    _sync_folder(os.path.dirname(target))


def _make_parents(source: str, target: str) -> None:
    """The folders of a target, with the permissions of those of its source."""
    if os.path.isdir(target):
        return
    _make_parents(os.path.dirname(source), os.path.dirname(target))
    with contextlib.suppress(FileExistsError):
        os.mkdir(target, os.stat(source).st_mode & 0o7777 | 0o300)


def _copy(source: str, target: str, about: os.stat_result) -> None:
    reading = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(reading).st_size
            _copy_data(reading, writing, size)
            os.ftruncate(writing, size)  # a hole at the end
            os.fchmod(writing, about.st_mode & 0o7777)
            os.utime(writing, ns=(about.st_atime_ns, about.st_mtime_ns))
            os.fsync(writing)
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
                return  # it became shorter meanwhile; it is delivered again at the end
            start += copied
        at = end


def _sync_folder(path: str) -> None:
    with contextlib.suppress(OSError):  # some file systems cannot, and need not
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def punch(path: str, end: int) -> int:
    """Give back the memory or disk space of a file's first ``end`` bytes, rounded down to pages; how far it went."""
    end -= end % _PAGE
    if end <= 0:
        return 0
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        start, length = ctypes.c_long(0), ctypes.c_long(end)
        if _libc.fallocate(descriptor, _KEEP_SIZE | _PUNCH_HOLE, start, length):
            return 0  # the file system cannot: nothing is lost but room
        return end
    finally:
        os.close(descriptor)


def remove_files(root: str, names: list[str]) -> None:
    """Remove files, deepest first, and directories that become empty among them."""
    for name in sorted(names, key=lambda one: one.count("/"), reverse=True):
        path = os.path.join(root, name)
        with contextlib.suppress(OSError):
            if os.path.isdir(path) and not os.path.islink(path):
                os.rmdir(path)
            else:
                os.unlink(path)
