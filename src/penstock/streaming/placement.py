"""A workflow's directory in memory where programs cannot have a view of their own: the user's stands aside meanwhile.

    before              while it runs in memory                              after
    work/   (files)     work → /dev/shm/penstock-…/files                     work/   (files, and what is permanent)
                        .work.penstock/  (the user's directory, complete)

The two names change places in one step (RENAME_EXCHANGE), so at no moment is there no ``work``, and a process killed
at any point leaves one of the three pictures above. ``put_back`` leads from each of them to the last.

What exists is copied, so that programs find files and no links. What does not fit into memory is linked all the same,
and the user is told. ``private_view`` is the better way, where the kernel allows it.
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
from penstock.streaming.changes import Changes, is_directory
from penstock.streaming.copies import remove_copies
from penstock.streaming.file_copy import copy_file
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

    #: deliveries are written beside their place, which no program sees
    staging = ""

    def __init__(self, root: str, folders: RunFolders) -> None:
        self.root = root
        self.files = self.source = os.path.join(folders.memory, "files")
        #: where the user's own directory is while this lasts
        self.aside = self.home = _aside_of(root)
        #: how many files are links since they do not fit into memory, and their bytes
        self.linked = self.linked_bytes = 0
        self._folders = folders
        self._begun = False
        self._existed: list[str] = []
        #: copies of files that have several names
        self._copies: dict[tuple[int, int], str] = {}

    def begin(self, is_output: Callable[[str], bool], is_excluded: Callable[[str], bool]) -> None:
        """Make the directory in memory, with what exists, and let it take the place of the user's."""
        parent = os.path.dirname(self.root)
        if not os.access(parent, os.W_OK | os.X_OK):
            raise ConfigError(f"cannot put {self.root} aside: no right to write in {parent}; run without --memory")
        os.mkdir(self.files, 0o700)
        self._populate(".", is_output, is_excluded, self._room_for_inputs())
        shutil.copystat(self.root, self.files)
        self._folders.write(aside=self.aside)
        os.symlink(self.files, self.aside)
        try:
            _exchange(self.aside, self.root)
        except OSError as error:
            os.unlink(self.aside)
            self._folders.write()
            why = "something is mounted there" if error.errno == errno.EBUSY else error.strerror
            raise ConfigError(
                f"{self.root} cannot be put aside ({why}); use a directory in it, or run without --memory"
            ) from None
        self._begun = True

    def _room_for_inputs(self) -> int:
        """Bytes of what exists and is only read that may be copied: half of the memory is for the workflow."""
        free = os.statvfs(self.files)
        return free.f_bavail * free.f_frsize // 2

    def _populate(
        self, folder: str, is_output: Callable[[str], bool], is_excluded: Callable[[str], bool], room: int
    ) -> int:
        """What exists is copied, in its order and as far as there is room; returns the room that is left."""
        for entry in sorted(os.scandir(os.path.join(self.root, folder)), key=lambda entry: entry.name):
            name = entry.name if folder == "." else f"{folder}/{entry.name}"
            here, there = os.path.join(self.files, name), os.path.join(self.aside, name)
            self._existed.append(name)
            if is_excluded(name):
                os.symlink(there, here)  # it stays where it is
            elif entry.is_dir(follow_symlinks=False):
                os.mkdir(here, 0o700)
                room = self._populate(name, is_output, is_excluded, room)
                shutil.copystat(entry.path, here)
                os.chmod(here, stat_mode(entry.path) | 0o300)
            elif entry.is_file(follow_symlinks=False):
                size = entry.stat().st_blocks * 512
                if is_output(name):
                    self._copy(entry, here, name)
                elif size <= room and os.access(entry.path, os.R_OK):
                    room -= size
                    self._copy(entry, here, name)
                else:
                    self.linked, self.linked_bytes = self.linked + 1, self.linked_bytes + size
                    os.symlink(there, here)
            elif self._keeps_meaning(entry):
                os.symlink(os.readlink(entry.path), here)
                shutil.copystat(entry.path, here, follow_symlinks=False)
            else:
                os.symlink(there, here)
        return room

    def _keeps_meaning(self, entry: os.DirEntry[str]) -> bool:
        """Whether this is a link that leads to the same place from memory."""
        if not entry.is_symlink():
            return False
        target = os.readlink(entry.path)
        reached = os.path.normpath(os.path.join(os.path.dirname(entry.path), target))
        return target.startswith("/") or reached.startswith(self.root + "/")

    def _copy(self, entry: os.DirEntry[str], target: str, name: str) -> None:
        about = entry.stat()
        known = self._copies.setdefault((about.st_dev, about.st_ino), target)
        if about.st_nlink > 1 and known != target:
            os.link(known, target)
            return
        free = os.statvfs(self.files)
        if about.st_blocks * 512 > free.f_bavail * free.f_frsize:
            raise ConfigError(
                f"{name}, an output of an earlier run, has {about.st_size} bytes and does not fit into memory; "
                f"remove it, or run without --memory"
            )
        copy_file(entry.path, target, about)

    def changes(self) -> Changes:
        """What the programs have done to the user's directory so far, as it would be without this placement."""
        written, made = [], []
        for folder, folders, names in os.walk(self.files):
            base = "" if folder == self.files else os.path.relpath(folder, self.files)
            for name in [*names, *folders]:
                path, found = os.path.join(folder, name), os.path.join(base, name)
                if is_directory(path):
                    if not is_directory(os.path.join(self.aside, found)):
                        made.append(found)
                elif not (os.path.islink(path) and os.readlink(path).startswith(self.aside + "/")):
                    written.append(found)
        return Changes(written, [name for name in self._existed if self._is_gone(name)], made)

    def _is_gone(self, name: str) -> bool:
        here, there = os.path.join(self.files, name), os.path.join(self.aside, name)
        if not os.path.lexists(here):
            return True
        if os.path.islink(here) and os.readlink(here) == there:
            return False
        return is_directory(there) != is_directory(here)

    def end(self) -> None:
        """Give the user's directory its name again."""
        if self._begun:
            put_back(self.root)
            self._begun = False
            self._folders.write()


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
