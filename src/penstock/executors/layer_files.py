"""Where the files of a run lie on storage layers.

    MOUNT/penstock-…-layer/work/   what is being written, and what is of use during the run only: goes with the run
    MOUNT/penstock-…-layer/kept/   finished files that are not at home yet, each linked from its name

One folder per file, so that a file keeps the name that the task asked for.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import zlib

from penstock.executors.disposable import hold

__all__ = ["LayerFolder", "is_place", "leads_to", "names_of"]

#: the path of a finished file on a layer; a link to such a path is ours
_PLACED = re.compile(r"/penstock-\d+-\d+-[0-9a-f]+-layer/(kept|work)/")


def is_place(target: str) -> bool:
    """Whether what a link leads to is a file on a layer: then a run made it."""
    return _PLACED.search(target) is not None


def leads_to(name: str, place: str) -> bool:
    """Whether a name is a link to a place; not if that cannot be known."""
    try:
        return os.readlink(name) == place
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EINVAL):  # nothing is there, or no link
            raise
        return False


def names_of(name: str, place: str) -> list[str]:
    """The links in a file's folder to the place where it lies: its own name first, if the program has left that.

    The folder is looked through only if there is a reason to: the name is another one now, or not the only one.
    """
    if leads_to(name, place) and os.lstat(name).st_nlink == 1:
        return [name]
    with os.scandir(os.path.dirname(name)) as entries:
        found = [entry.path for entry in entries if entry.is_symlink() and leads_to(entry.path, place)]
    return sorted(found, key=lambda path: (path != name, path))


class LayerFolder:
    """The folder of one run on one layer."""

    def __init__(self, mount: str, run: str) -> None:
        self.root = os.path.join(mount, f"{run}-layer")
        self.work = os.path.join(self.root, "work")
        self.kept = os.path.join(self.root, "kept")
        #: segments of the store that memory had no room for
        self.spilled = os.path.join(self.work, "spilled")

    def private(self, file: str, task: int, owner: str) -> str:
        """The folder in which an attempt writes a file."""
        return os.path.join(self.work, f"{task}-{owner}-{_mark(file)}")

    def finished(self, file: str, task: int, attempt: int, *, temp: bool) -> str:
        """The path of a finished file; another attempt of the task has another one."""
        folder = os.path.join(self.work if temp else self.kept, f"{task}.{attempt}-{_mark(file)}")
        return os.path.join(folder, os.path.basename(file))

    def reserve(self) -> None:
        """Say that this run lives and uses the layer; the program does so before anybody writes there."""
        self._make_root()
        hold(self.work)

    def make_room_for(self, path: str) -> None:
        """Make the folders above a path of this layer; private, for others may use the mount too."""
        self._make_root()
        os.makedirs(os.path.dirname(path), exist_ok=True)

    def _make_root(self) -> None:
        """Never the mount itself: one that has vanished would come back as a folder on another disk."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(self.root, mode=0o700)


def _mark(file: str) -> str:
    return f"{zlib.crc32(file.encode(errors='surrogateescape')):x}"
