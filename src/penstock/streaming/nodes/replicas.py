"""Files on this node that stand for files of other nodes, from an empty placeholder to a full copy.

Every name that came over the network is checked before it becomes a path: nothing outside of the workflow's directory
is ever opened, made or removed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import secrets
import stat
from collections.abc import Iterator

from penstock.streaming.copies import CopyList

__all__ = ["Replicas", "is_proper_name"]

_MARK = ".penstock-node-"


def is_proper_name(name: str) -> bool:
    """Whether it is the name of something below a directory, as the shared table spells it."""
    return bool(
        name
        and "\0" not in name
        and not name.startswith("/")
        and name not in (".", "..")
        and not name.startswith("../")
        and posixpath.normpath(name) == name
    )


class Replicas:
    """The workflow's directory on this node, as the other nodes may use it."""

    def __init__(self, root: str, listed: CopyList | None = None) -> None:
        self.root = os.path.realpath(root)
        #: directories that were made for copies, each before what lies in it
        self._made_folders: list[str] = []
        self._made: set[str] = set()
        #: None where the directory goes with its server
        self._listed = listed

    @contextlib.contextmanager
    def marked(self) -> Iterator[str]:
        """A file that a server with the same directory would see."""
        mark = f"{_MARK}{secrets.token_hex(8)}"
        path = os.path.join(self.root, mark)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        try:
            yield mark
        finally:
            os.unlink(path)

    def has_mark(self, mark: str) -> bool:
        """Whether another server's mark is here."""
        return mark.startswith(_MARK) and "/" not in mark and os.path.lexists(os.path.join(self.root, mark))

    def path(self, name: str) -> str:
        """Where a name lies; ValueError if it is improper or a link on the way leads out of the directory."""
        if not is_proper_name(name):
            raise ValueError(f"not a name in the workflow's directory: {name!r}")
        path = os.path.join(self.root, name)
        folder = os.path.realpath(os.path.dirname(path))
        if folder != self.root and not folder.startswith(self.root + "/"):
            raise ValueError(f"{name!r} leads out of the workflow's directory")
        return path

    def open_for_reading(self, name: str) -> int:
        """A descriptor of a regular file; OSError or ValueError if it is none."""
        descriptor = os.open(self.path(name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise ValueError(f"{name!r} is not a regular file")
        return descriptor

    def make_folder(self, name: str, mode: int) -> None:
        """A directory that another node has made."""
        path = self.path(name)
        self._make_parents(path)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, mode | 0o700)
            self._note_folder(path)

    def _make_parents(self, path: str) -> None:
        parent = os.path.dirname(path)
        if not os.path.isdir(parent):
            self._make_parents(parent)
            os.mkdir(parent, 0o755)
            self._note_folder(parent)

    def _note_folder(self, path: str) -> None:
        name = os.path.relpath(path, self.root)
        self._made_folders.append(name)
        if self._listed is not None:
            self._listed.add(name)

    def _note(self, name: str) -> None:
        self._made.add(name)
        if self._listed is not None:
            self._listed.add(name)

    def make_placeholder(self, name: str, mode: int) -> int:
        """An empty file in place of whatever an earlier run left; returns a descriptor to fill it with."""
        path = self.path(name)
        self._make_parents(path)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, mode & 0o777 | 0o600)
        self._note(name)
        return descriptor

    def make_link(self, name: str, target: str) -> None:
        """A symbolic link."""
        path = self.path(name)
        self._make_parents(path)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        os.symlink(target, path)
        self._note(name)

    def rename(self, old: str, new: str) -> None:
        """Follow a change of names, of a whole directory too."""
        source, target = self.path(old), self.path(new)
        self._make_parents(target)
        _merge(source, target)
        self.note_rename(old, new)

    def note_rename(self, old: str, new: str) -> None:
        """Copies have other names."""
        if old in self._made:
            self._made.discard(old)
            self._note(new)
        elif os.path.isdir(os.path.join(self.root, new)):
            for name in [name for name in self._made if name.startswith(old + "/")]:
                self._made.discard(name)
                self._note(new + name[len(old) :])
            for name in [name for name in self._made_folders if name == old or name.startswith(old + "/")]:
                self._made_folders.remove(name)
                self._note_folder(os.path.join(self.root, new + name[len(old) :]))

    def remove(self, name: str, *, even_own: bool = False) -> None:
        """Follow a removal; of a file that was made on this node only if a program of another node said so."""
        path = self.path(name)
        with contextlib.suppress(OSError):
            if os.path.isdir(path) and not os.path.islink(path):
                os.rmdir(path)
            elif even_own or name in self._made:
                os.unlink(path)
        self._made.discard(name)

    def is_copy(self, name: str) -> bool:
        """Whether it was made here for another node."""
        return name in self._made

    def keep(self, name: str) -> None:
        """This node is the file's home: its copy stays when the workflow ends."""
        self._made.discard(name)
        if self._listed is not None:
            self._listed.keep(name)

    def keep_no_more(self, name: str) -> None:
        """It is a copy by another name now, of which this node need not be the home."""
        if name not in self._made:
            self._note(name)

    def clear(self) -> None:
        """Remove all copies that are not kept, and directories that were made for them."""
        for name in list(self._made):
            self.remove(name)
        for folder in reversed(self._made_folders):
            with contextlib.suppress(OSError):
                os.rmdir(os.path.join(self.root, folder))
        if self._listed is not None:
            self._listed.close()


def _merge(source: str, target: str) -> None:
    """Rename; into a directory that is not empty here, since files of this node lie in it, entry by entry."""
    try:
        os.rename(source, target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        for entry in os.listdir(source):
            _merge(os.path.join(source, entry), os.path.join(target, entry))
        os.rmdir(source)
