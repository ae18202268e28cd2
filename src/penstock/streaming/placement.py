"""Where the files of a workflow live: in place, or in memory with the user's directory standing aside meanwhile.

    before              while it runs in memory                              after
    work/   (files)     work → /dev/shm/penstock-…/files                     work/   (files, and what is permanent)
                        .work.penstock/  (the user's directory, complete)

The two names change places in one step (RENAME_EXCHANGE), so at no moment is there no ``work``, and a process killed
at any point leaves one of the three pictures above. ``put_back`` leads from each of them to the last.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import shutil
from collections.abc import Callable

from penstock.errors import ConfigError
from penstock.streaming.copies import remove_copies
from penstock.streaming.folders import RunFolders, lock_directory, remove_remains

__all__ = ["Placement", "put_back", "repair", "true_root"]

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
_libc = ctypes.CDLL(None, use_errno=True)


def true_root(path: str) -> str:
    """The absolute name of a workflow's directory, links resolved, except the one that a placement in memory makes."""
    path = os.path.abspath(path)
    own = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    if os.path.islink(own) and _is_placement(os.readlink(own)):
        return own
    if not os.path.lexists(own) and os.path.lexists(_aside_of(own)):
        return own
    return os.path.realpath(path)


def _is_placement(target: str) -> bool:
    return re.search(rf"/penstock-{os.getuid()}-\d+-[0-9a-f]{{8}}/files$", target) is not None


def _aside_of(root: str) -> str:
    return os.path.join(os.path.dirname(root), f".{os.path.basename(root)}.penstock")


def put_back(root: str) -> bool:
    """Give a directory its name again after a server that was killed; False if there was nothing to do.

    Only the holder of the directory's lock may do this.
    """
    aside = _aside_of(root)
    if not os.path.lexists(aside):
        return False
    if os.path.islink(aside):
        os.unlink(aside)  # killed just before, or just after, the directory was aside
    elif not os.path.lexists(root):
        os.rename(aside, root)
    elif os.path.islink(root) and _is_placement(os.readlink(root)):
        _exchange(aside, root)
        os.unlink(aside)
    else:
        raise ConfigError(
            f"{aside} is the directory of a workflow that was killed, but {root} has been made anew since; "
            f"look at both, and remove or rename one of them"
        )
    return True


def _exchange(one: str, other: str) -> None:
    """Let two names change places in one step; where the file system cannot, in three."""
    if _libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return
    number = ctypes.get_errno()
    if number not in (errno.EINVAL, errno.ENOSYS):
        raise OSError(number, os.strerror(number), other)
    # One of them is a link that can be made again; the directory keeps one of its two names throughout.
    link, directory = (one, other) if os.path.islink(one) else (other, one)
    target = os.readlink(link)
    os.unlink(link)
    os.rename(directory, link)
    os.symlink(target, directory)


class Placement:
    """A workflow's directory in memory. ``begin`` puts the user's aside, ``end`` gives it its name again."""

    def __init__(self, root: str, folders: RunFolders) -> None:
        self.root = root
        self.files = os.path.join(folders.memory, "files")
        #: where the user's own directory is while this lasts
        self.aside = _aside_of(root)
        self._folders = folders
        self._begun = False

    def begin(self, is_output: Callable[[str], bool], is_excluded: Callable[[str], bool]) -> None:
        """Make the directory in memory, with what exists, and let it take the place of the user's."""
        if os.path.ismount(self.root) or os.path.dirname(self.root) == self.root:
            raise ConfigError(f"{self.root} is a mount point and cannot be put aside; use a directory in it")
        if not os.access(os.path.dirname(self.root), os.W_OK | os.X_OK):
            parent = os.path.dirname(self.root)
            raise ConfigError(f"cannot put {self.root} aside: no right to write in {parent}; run without --memory")
        os.mkdir(self.files, stat_mode(self.root))
        self._populate(".", is_output, is_excluded)
        self._folders.write(aside=self.aside)
        os.symlink(self.files, self.aside)
        _exchange(self.aside, self.root)
        self._begun = True

    def _populate(self, folder: str, is_output: Callable[[str], bool], is_excluded: Callable[[str], bool]) -> None:
        """What exists is seen as links to it; what steps may rewrite is copied, what is excluded stays where it is."""
        for entry in os.scandir(os.path.join(self.root, folder)):
            name = entry.name if folder == "." else f"{folder}/{entry.name}"
            here, there = os.path.join(self.files, name), os.path.join(self.aside, name)
            if entry.is_dir(follow_symlinks=False) and not is_excluded(name):
                os.mkdir(here, stat_mode(entry.path) | 0o300)
                self._populate(name, is_output, is_excluded)
            elif entry.is_file(follow_symlinks=False) and is_output(name) and not is_excluded(name):
                self._copy(entry.path, here, name)
            else:
                os.symlink(there, here)

    def _copy(self, source: str, target: str, name: str) -> None:
        free = os.statvfs(self.files)
        size = os.stat(source).st_size
        if size > free.f_bavail * free.f_frsize:
            raise ConfigError(
                f"{name}, an output of an earlier run, has {size} bytes and does not fit into memory; "
                f"remove it, or run without --memory"
            )
        shutil.copy2(source, target)

    def end(self) -> None:
        """Give the user's directory its name again."""
        if self._begun:
            put_back(self.root)
            self._begun = False
            self._folders.write(aside="")


def stat_mode(path: str) -> int:
    """The permissions of a file or directory."""
    return os.stat(path).st_mode & 0o7777


def repair(root: str, memory_parent: str = "") -> bool:
    """Clean up after servers that were killed, above all in this directory; whether it had been aside."""
    repaired = put_back(root)
    for one in remove_remains():
        if one.root == root:
            remove_copies(one.copies, root)
            continue
        # The directory of another workflow: its next start does this, unless it can be done here and now.
        with contextlib.suppress(ConfigError, OSError), lock_directory(one.root):
            put_back(one.root)
            remove_copies(one.copies, one.root)
    remove_remains(memory_parent)
    return repaired
