"""Where the files of a run lie on storage layers.

    MOUNT/penstock-…-layer/run     whose folder it is, and where the names of its files are (layer_runs.py)
    MOUNT/penstock-…-layer/work/   what is being written, and what is of use during the run only: goes with the run
    MOUNT/penstock-…-layer/kept/   finished files that are not at home yet, each linked from its name

One folder per file, so that a file keeps the name that the task asked for.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import tempfile
import zlib

from penstock.executors.disposable import RECORD, hold, let_go
from penstock.executors.layer_runs import first_line, note_home

__all__ = ["LayerFolder", "is_place", "leads_to", "mark_of", "names_of"]

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
        self.mount = mount
        self.root = os.path.join(mount, f"{run}-layer")
        self.work = os.path.join(self.root, "work")
        self.kept = os.path.join(self.root, "kept")
        #: segments of the store that memory had no room for
        self.spilled = os.path.join(self.work, "spilled")
        #: where names lead here from, as far as that was noted
        self._homes: set[str] = set()
        #: the device that was mounted when the run started, if somebody has looked
        self._device: int | None = None

    def look(self) -> None:
        """Remember what is mounted: another device in its place is not the layer."""
        with contextlib.suppress(OSError):  # whoever writes there meets it
            self._device = os.stat(self.mount).st_dev

    def private(self, file: str, task: int, owner: str) -> str:
        """The folder in which an attempt writes a file."""
        return os.path.join(self.work, f"{task}-{owner}-{mark_of(file)}")

    def finished(self, file: str, task: int, attempt: int, *, temp: bool) -> str:
        """The path of a finished file; another attempt of the task has another one."""
        folder = os.path.join(self.work if temp else self.kept, f"{task}.{attempt}-{mark_of(file)}")
        return os.path.join(folder, os.path.basename(file))

    def reserve(self) -> None:
        """Say that this run lives and uses the layer; the program does so before anybody writes there."""
        if self._device not in (None, os.stat(self.mount).st_dev):
            raise FileNotFoundError(errno.ENOENT, "it is not mounted any more", self.mount)
        hold(self.root, RECORD, make=_make_one, note=first_line())
        hold(self.work, make=_make_one)

    def note_home(self, name: str) -> None:
        """Before a name leads to a file here: whoever brings that home after our death has to find the name."""
        folder = os.path.dirname(name)
        if folder not in self._homes:
            self._homes.add(folder)
            note_home(self.root, folder)

    def make_room_for(self, path: str) -> None:
        """Make the folders above a path of this layer; private, for others may use the mount too.

        Never the mount itself, nor the run's folder anew: what has vanished, or was unmounted, would come back as a
        folder on another disk.
        """
        if not os.path.exists(os.path.join(self.root, RECORD)):
            self._explain_absence()
        for folder in (os.path.dirname(os.path.dirname(path)), os.path.dirname(path)):
            _make_one(folder)

    def _explain_absence(self) -> None:
        """The program reserves the layer before anybody writes there: either it could not, or that is gone."""
        if os.path.isdir(self.root):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.root)  # not even for the record
        # Says what is wrong with the mount, if it is there. Nobody else makes this one: several may ask at a time.
        os.rmdir(tempfile.mkdtemp(prefix=".penstock-", dir=self.mount))
        raise FileNotFoundError(errno.ENOENT, "what this run had there is gone; was it unmounted?", self.root)

    def remove_if_empty(self) -> bool:
        """The run is over: the folder goes, unless files are in it that could not be brought home, or it is gone."""
        for folder in (self.work, self.kept):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        try:
            if os.listdir(self.root) == [RECORD]:
                os.unlink(os.path.join(self.root, RECORD))
            os.rmdir(self.root)
        except OSError:
            return False
        finally:
            let_go([self.root], RECORD)
        return True


def _make_one(folder: str) -> None:
    """Make a folder, but none above it."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, mode=0o700)


def mark_of(file: str) -> str:
    """A short mark of a file's name, by which its folders on layers are told apart."""
    return f"{zlib.crc32(file.encode(errors='surrogateescape')):x}"
