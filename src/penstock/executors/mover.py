"""The thread that touches file systems so that the control thread need not: deletes, renames, private copies."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import queue
import re
import shutil
import threading
import zlib
from collections.abc import Callable, Iterator

from penstock.alert_waits import until_ended, until_set
from penstock.executors.layer_files import leads_to
from penstock.own_threads import OwnThread

__all__ = [
    "Mover",
    "NameChanged",
    "copy_directory",
    "copy_file",
    "directory_size",
    "discard",
    "link",
    "publish",
    "relocate",
    "rename",
    "secure",
    "share_name",
    "writer_of",
]

#: bytes copied between two reports of progress
_STEP = 4 << 20
#: a copy, or a link, that is about to take a name
_BESIDE = re.compile(r"\.penstock-[0-9a-f]{1,8}-(\d+)")
#: folders that a run makes for single files
_OURS = re.compile(r"/\.?penstock-\d+-\d+-[0-9a-f]+[-/]")


class NameChanged(Exception):
    """The program has changed what a file's name means while the file was copied."""


class Mover:
    """Does file-system work in the order it was asked for: in a thread of its own, or inline, when told to catch up."""

    def __init__(self, name: str = "mover", *, inline: bool = False) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._inline = inline
        self._thread: threading.Thread | None = None

    def do(self, job: Callable[[], None]) -> None:
        """Have something done soon, after what was asked for before."""
        if self._thread is None and not self._inline:
            self._thread = OwnThread(self._name, self._run)
            self._thread.start()
        self._jobs.put(job)

    def catch_up(self) -> None:
        """Inline: do what was asked for, in this thread."""
        while self._inline and not self._jobs.empty():
            job = self._jobs.get_nowait()  # nobody else takes any
            if job is not None:
                job()

    def finish(self) -> None:
        """Return when everything asked for so far is done."""
        self.catch_up()
        if self._thread is not None and threading.current_thread() is not self._thread:
            done = threading.Event()
            self._jobs.put(done.set)
            until_set(done)

    def close(self) -> None:
        """Return when everything asked for is done."""
        self.catch_up()
        if self._thread is not None:
            self._jobs.put(None)
            until_ended(self._thread)
            self._thread = None

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception:  # what is asked for next must still be done
                import logging

                logging.getLogger("penstock").exception("work on files failed")


def copy_file(source: str, target: str) -> None:
    """Copy a file with its attributes; where the file system can share the blocks, nothing is copied.

    The target must be new: what is there already could be another name of the source, and would be emptied with it.
    """
    with open(source, "rb") as old, open(target, "xb") as new:
        left = os.fstat(old.fileno()).st_size
        try:
            while left > 0 and (copied := os.copy_file_range(old.fileno(), new.fileno(), left)):
                left -= copied
        except OSError:
            old.seek(0)
            new.seek(0)
        shutil.copyfileobj(old, new)  # all that is left, where the kernel could not copy it or says that it is nothing
    shutil.copystat(source, target)


def copy_directory(source: str, target: str) -> None:
    """Copy a directory with all that is in it; links stay links, and what is one file under two names stays one."""
    copies: dict[tuple[int, int], str] = {}

    def copy(old: str, new: str) -> str:
        about = os.lstat(old)
        first = copies.setdefault((about.st_dev, about.st_ino), new) if about.st_nlink > 1 else new
        if first is not new:
            with contextlib.suppress(OSError):
                os.link(first, new)
                return new
        copy_file(old, new)
        return new

    shutil.copytree(source, target, symlinks=True, copy_function=copy)


def directory_size(path: str) -> int:
    """Bytes of the files in a directory."""
    sizes = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                sizes += os.lstat(os.path.join(folder, name)).st_size
    return sizes


def publish(source: str, target: str) -> None:
    """Let a finished file or directory appear under its final name; whoever uses the private one keeps it."""
    folder, name = os.path.split(source)
    beside = os.path.join(folder, "named" if name != "named" else "to-be-named")  # not longer than names may be
    _remove(beside)
    try:
        if os.path.isdir(source):
            shutil.copytree(source, beside, symlinks=True, copy_function=_second_name)
        else:
            _second_name(source, beside)
        rename(beside, target)
    except BaseException:
        _remove(beside)
        raise


def _second_name(source: str, target: str) -> str:
    """Another name for a file; a copy on a file system without hard links."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        copy_file(source, target)
    return target


def share_name(path: str, name: str) -> None:
    """Let a file appear under another name in its folder too, in place of whatever bears that."""
    beside = _beside(name)
    _remove(beside)
    _second_name(path, beside)
    rename(beside, name)


def link(source: str, name: str) -> None:
    """Make a file's name a link to where it lies, in place of whatever bears the name."""
    beside = _beside(name)
    _remove(beside)
    os.symlink(source, beside)
    try:
        os.replace(beside, name)
    except OSError:
        os.unlink(beside)
        raise


def rename(path: str, target: str) -> None:
    """Give a file or a directory the name of what it replaces.

    Where both names mean one file already the system does nothing: then the first one goes. A directory that is not
    empty changes its name with the new one, at once where the system can, and goes.
    """
    try:
        os.replace(path, target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        _exchange(path, target)
    _remove(path)


def _exchange(path: str, other: str) -> None:
    """Exchange two names in one folder tree."""
    import ctypes

    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    if renameat2 is not None and not renameat2(here, os.fsencode(path), here, os.fsencode(other), exchange):
        return
    # A file system that cannot: for a moment there is nothing under the name.
    aside = f"{path}.old"
    os.rename(other, aside)
    try:
        os.rename(path, other)
    except BaseException:
        os.rename(aside, other)
        raise
    os.rename(aside, path)


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)


def relocate(
    source: str,
    target: str,
    name: str,
    progress: Callable[[int], None],
    *,
    share: bool = True,
    linked: bool = False,
    new: bool = False,
) -> None:
    """Copy a file to its new place, durably, and have its name mean that. The source stays.

    On one file system nothing is copied, if the two may ``share`` their blocks. A name that must be ``linked`` to the
    source is left alone if it is not, or no more when the copy is made; a ``new`` one if there is something by then.
    Whatever fails and wherever, the name means a complete file: the old one until the last step, the new one after it.
    """
    beside = _beside(target)
    try:
        _remove(beside)
        with contextlib.ExitStack() as until_named:
            if not (share and _shared(source, beside, progress)):
                until_named.enter_context(_copied_durably(source, beside, progress))
            if linked and not leads_to(name, source):
                raise NameChanged(name)
            if new:
                _take_free_name(beside, target)
            else:
                rename(beside, target)
    except BaseException:
        _remove(beside)
        raise
    try:
        secure(os.path.dirname(target))
    except OSError:
        if linked and target == name:
            link(source, name)  # else it would look as if the program had put a file there
        raise
    if target != name:
        # From here on the name means the new copy: whatever fails before leaves the old one, and nothing may after.
        link(target, name)


def _take_free_name(path: str, target: str) -> None:
    """Give a file a name that nothing has."""
    try:
        os.link(path, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without second names
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target) from None
        os.rename(path, target)
    else:
        os.unlink(path)


def _beside(path: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, f".penstock-{zlib.crc32(name.encode(errors='surrogateescape')):x}-{os.getpid()}")


def writer_of(name: str) -> str | None:
    """The process that a name is that of a hidden copy of, beside what it was to replace; None if it is none."""
    found = _BESIDE.fullmatch(name)
    return None if found is None else found[1]


def _shared(source: str, target: str, progress: Callable[[int], None]) -> bool:
    """Give a file a second name, if that can be."""
    try:
        os.link(source, target)
    except OSError:
        return False
    secure(target)
    progress(os.stat(target).st_size)
    return True


@contextlib.contextmanager
def _copied_durably(source: str, target: str, progress: Callable[[int], None]) -> Iterator[None]:
    """A copy, locked in the block: one that nobody has locked was left by a process that was killed."""
    with open(source, "rb") as old, open(target, "xb") as new:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(new, fcntl.LOCK_EX | fcntl.LOCK_NB)
        size = left = os.fstat(old.fileno()).st_size
        while left > 0:
            try:
                copied = os.copy_file_range(old.fileno(), new.fileno(), min(left, _STEP))
            except OSError as error:
                if error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
                    raise
                copied = os.sendfile(new.fileno(), old.fileno(), None, min(left, _STEP))
            if not copied:
                raise OSError(errno.EIO, f"the file ended {left} bytes early", source)
            left -= copied
            progress(copied)
        os.fsync(new.fileno())
        if os.fstat(new.fileno()).st_size != size:
            raise OSError(errno.EIO, "the copy has another size", target)
        shutil.copystat(source, target)
        yield


def secure(path: str) -> None:
    """See that a file, or the entries of a folder, survive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EROFS):  # file systems that cannot, for folders
            raise
    finally:
        os.close(descriptor)


def discard(path: str) -> None:
    """Remove a private copy and the folder made for it, which bears our name or that of a layer's run."""
    _remove(path)  # if it is not gone already, or on a file system that was taken from us
    folder = os.path.dirname(path)
    if _OURS.search(folder + "/"):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
