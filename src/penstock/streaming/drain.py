"""Files on their way out of a workflow: permanent ones are brought to their real place, temporary ones removed.

Copies are made by one thread while the steps go on, and all that wait at one time go together:

    copy each under another name ▶ sync them all ▶ rename each to its place ▶ sync the folders

So a name never stands for less than the whole file, also after a loss of power at any moment: what has its name then is
complete on the disk, what has not is missing, or is what it was before. When ``finish`` has returned, everything has
its name, on the disk too. What could not be delivered is kept in memory's folder and reported.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from penstock.streaming.changes import is_removal_mark
from penstock.streaming.file_copy import copy_file

__all__ = ["PAGE", "Drain", "punch", "remove_files"]

_KEEP_SIZE, _PUNCH_HOLE = 1, 2
PAGE = 4096
#: files that are synced one by one; if there are more, all of their file system is, with whatever others have written
_FEW = 8
#: files that go together: what is not synced is not yet safe
_MOST = 1000
_libc = ctypes.CDLL(None, use_errno=True)

#: what a delivered file was like, to notice that it has changed since
_Stamp = tuple[int, ...]


class _Copy(NamedTuple):
    """A file that is complete in its file system and has not got its name."""

    name: str
    stamp: _Stamp
    path: str


class Drain:
    """Delivers files from one tree to another, in the background.

    Copies that have not got their names lie in ``staging``, or beside their place if that is empty.
    """

    def __init__(self, source: str, target: str, delivered: Callable[[str, int], None], staging: str = "") -> None:
        self._source, self._target, self._staging = source, target, staging
        self._delivered = delivered
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="penstock-drain")
        self._waiting: dict[str, None] = {}
        self._carried: list[Future[None]] = []
        self._stamps: dict[str, _Stamp] = {}
        self._lock = threading.Lock()
        #: what could not be delivered, and why
        self.failures: dict[str, str] = {}

    def submit(self, name: str) -> None:
        """Deliver a file soon; one that is waiting already is delivered once."""
        with self._lock:
            if not self._waiting:
                self._carried.append(self._thread.submit(self._carry))
            self._waiting[name] = None

    def has_taken_up(self, name: str) -> bool:
        """Whether a file was delivered as it is now, or will be; of one that is being copied nobody can tell.

        What was in the way of that copy may just have gone, and with it the place where it is to get its name.
        """
        with self._lock:
            if name in self._waiting:
                return True
            stamp = self._stamps.get(name)
        about = None if stamp is None else _look(os.path.join(self._source, name))
        return about is not None and _stamp(about) == stamp

    def _carry(self) -> None:
        """Deliver all that wait."""
        while count := min(self._how_many_wait(), _MOST):
            self._carry_together(count)

    def _how_many_wait(self) -> int:
        with self._lock:  # who submits the first makes us look before it is there
            return len(self._waiting)

    def _next(self) -> str:
        with self._lock:
            name = next(iter(self._waiting))
            del self._waiting[name]
            return name

    def _carry_together(self, count: int) -> None:
        folders: set[str] = set()
        copies = [copy for _ in range(count) if (copy := self._copied(self._next(), folders)) is not None]
        try:
            _sync(copies)
        except OSError as error:
            for copy in copies:
                self._failed(copy.name, error)
                with contextlib.suppress(OSError):
                    os.unlink(copy.path)
            return
        for copy in copies:
            self._name(copy)
        for folder in folders:
            _sync_folder(folder)
        for copy in copies:
            if self._stamps.get(copy.name) == copy.stamp:
                self._delivered(copy.name, copy.stamp[0])

    def _copied(self, name: str, folders: set[str]) -> _Copy | None:
        """A copy under another name; None if there is nothing to copy. Adds the folders that get new entries."""
        if self._is_reached_by_link(name):
            return None  # it is delivered under its own name, and the link as a link
        source, target = os.path.join(self._source, name), os.path.join(self._target, name)
        folder = os.path.dirname(target)
        # As the mover's: `penstock recover` knows by the number that nobody will finish it.
        beside = os.path.join(self._staging or folder, f".penstock-{os.urandom(4).hex()}-{os.getpid()}")
        try:
            about = _look(source)
            if about is None or (stamp := _stamp(about)) == self._stamps.get(name):
                return None
            if folder not in folders:
                _make_parents(os.path.dirname(source), folder, folders)
            if stat.S_ISLNK(about.st_mode):
                os.symlink(os.readlink(source), beside)
            elif stat.S_ISREG(about.st_mode):
                copy_file(source, beside, about)
            else:
                return None  # a pipe or socket means something only while its makers run
        except OSError as error:
            self._failed(name, error)
            with contextlib.suppress(OSError):
                os.unlink(beside)
            return None
        folders.add(folder)
        return _Copy(name, stamp, beside)

    def _name(self, copy: _Copy) -> None:
        target = os.path.join(self._target, copy.name)
        try:
            os.rename(copy.path, target)
        except OSError as error:
            self._failed(copy.name, error)
            with contextlib.suppress(OSError):
                os.unlink(copy.path)
            return
        self._stamps[copy.name] = copy.stamp
        self.failures.pop(copy.name, None)
        if self._is_gone(copy.name):  # removed meanwhile; through an overlay it would be seen again
            with contextlib.suppress(OSError):
                os.unlink(target)

    def _failed(self, name: str, error: OSError) -> None:
        if not self._is_gone(name):  # else it was removed or renamed meanwhile
            self.failures[name] = error.strerror or str(error)

    def _is_gone(self, name: str) -> bool:
        return _look(os.path.join(self._source, name)) is None

    def finish(self) -> None:
        """Return when all is delivered. What was delivered and was removed or renamed since goes from its place too."""
        self._thread.shutdown(wait=True)
        for carried in self._carried:
            carried.result()  # what nobody foresaw took the other files of its batch along: never in silence
        for name in self._stamps:
            if self._is_gone(name):
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(self._target, name))
                    self._leave_no_folders(os.path.dirname(name))

    def make_folders(self, names: Iterable[str]) -> None:
        """Make directories that are not there yet, because nothing was delivered into them."""
        parents: set[str] = set()
        for name in names:
            try:
                _make_parents(os.path.join(self._source, name), os.path.join(self._target, name), parents)
            except OSError as error:
                self._failed(name, error)
        for folder in parents:
            _sync_folder(folder)

    def _leave_no_folders(self, folder: str) -> None:
        """Remove folders that were made for a file and that the workflow has removed or renamed since."""
        while folder and self._is_gone(folder):
            os.rmdir(os.path.join(self._target, folder))
            folder = os.path.dirname(folder)

    def _is_reached_by_link(self, name: str) -> bool:
        folder = os.path.dirname(name)
        while folder:
            if os.path.islink(os.path.join(self._source, folder)):
                return True
            folder = os.path.dirname(folder)
        return False


def _look(path: str) -> os.stat_result | None:
    """What something is, or None if it is not there."""
    try:
        about = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return None if is_removal_mark(about) else about


def _stamp(about: os.stat_result) -> _Stamp:
    return about.st_size, about.st_mtime_ns, about.st_ino, about.st_mode, about.st_uid, about.st_gid


def _make_parents(source: str, target: str, folders: set[str]) -> None:
    """The folders of a target, with the permissions of those of its source; adds those that get new entries."""
    if os.path.isdir(target):
        return
    _make_parents(os.path.dirname(source), os.path.dirname(target), folders)
    with contextlib.suppress(FileExistsError):
        os.mkdir(target, os.stat(source).st_mode & 0o7777 | 0o300)
        folders.add(os.path.dirname(target))


def _sync(copies: list[_Copy]) -> None:
    """Return when the copies are on the disk."""
    if len(copies) <= _FEW:
        for copy in copies:
            if not os.path.islink(copy.path):
                _sync_one(copy.path, os.fsync)
    else:
        folders = {os.path.dirname(copy.path) for copy in copies}
        for folder in {os.stat(folder).st_dev: folder for folder in folders}.values():
            _sync_one(folder, _sync_file_system)


def _sync_one(path: str, sync: Callable[[int], None]) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def _sync_file_system(descriptor: int) -> None:
    if _libc.syncfs(descriptor):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _sync_folder(path: str) -> None:
    with contextlib.suppress(OSError):  # some file systems cannot, and need not
        _sync_one(path, os.fsync)


def punch(descriptor: int, end: int) -> int:
    """Give back the memory or disk space of a file's first ``end`` bytes, rounded down to pages; how far it went."""
    end -= end % PAGE
    if end <= 0:
        return 0
    start, length = ctypes.c_long(0), ctypes.c_long(end)
    if _libc.fallocate(descriptor, _KEEP_SIZE | _PUNCH_HOLE, start, length):
        return 0  # the file system cannot: nothing is lost but room
    return end


def remove_files(root: str, names: list[str]) -> None:
    """Remove files, deepest first, and directories that become empty among them."""
    for name in sorted(names, key=lambda one: one.count("/"), reverse=True):
        path = os.path.join(root, name)
        with contextlib.suppress(OSError):
            if os.path.isdir(path) and not os.path.islink(path):
                os.rmdir(path)
            else:
                os.unlink(path)
