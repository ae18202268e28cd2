"""Where runs that are gone have left something beside the user's files: names that are links, and hidden copies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import time
from typing import NamedTuple

from penstock.executors.layer_runs import is_process
from penstock.executors.mover import writer_of
from penstock.runtime.found_layers import is_on_network

__all__ = ["Names", "Place", "is_abandoned"]

_LAYER = re.compile(r"penstock-\d+-\d+-[0-9a-f]{8}-layer")
#: what a name on which a run has placed a file leads to
_PLACE = re.compile(rf"(?P<root>/.*/penstock-{os.getuid()}-(?P<pid>\d+)-[0-9a-f]{{8}}-layer)/(?P<part>kept|work)/.+")
#: the folder of a measurement, and that of a task that writes a file beside its name; finished files may be in others
_PROBE = re.compile(r"\.penstock-probe-(\d+)-[0-9a-f]{8}")
_PRIVATE = re.compile(rf"\.penstock-{os.getuid()}-\d+-[0-9a-f]{{8}}-\d+-\d+-[0-9a-f]+")
#: seconds within which a copy on a file system of many machines may still be written by another one
_WRITTEN_WITHIN = 3600.0


class Place(NamedTuple):
    """A path on a layer that a name leads to."""

    path: str
    root: str
    pid: str
    temp: bool


class Names:
    """Links to files on layers, and hidden copies, in a directory tree and in folders beyond it."""

    def __init__(self, directory: str) -> None:
        self.folders: list[str] = []
        #: hidden copies, and the processes that wrote them
        self.hidden: list[tuple[str, str]] = []
        #: by where they lead to in truth: the mount may have been described by a link
        self._links: dict[str, list[str]] = {}
        #: hidden folders
        self._folders: list[str] = []
        self._seen: set[str] = set()
        for folder, folders, _ in os.walk(os.path.abspath(directory)):
            folders[:] = sorted(name for name in folders if not _LAYER.fullmatch(name) and not _is_ours(name))
            self.look_in(folder)

    def look_in(self, folder: str) -> None:
        """Look at what is in a folder, but not below it."""
        real = os.path.realpath(folder)
        if real in self._seen:
            return
        self._seen.add(real)
        self.folders.append(folder)
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                pid = writer_of(entry.name)
                if pid is not None:
                    self.hidden.append((entry.path, pid))
                elif _is_ours(entry.name):
                    self._folders.append(entry.path)
                elif entry.is_symlink():
                    target = os.readlink(entry.path)
                    if _PLACE.fullmatch(target):
                        self._links.setdefault(_real(target), []).append(entry.path)

    def mounts(self) -> list[str]:
        """The layers that names lead to."""
        return list(dict.fromkeys(os.path.dirname(_place(path).root) for path in self._links))

    def to(self, place: str) -> list[str]:
        """The names that lead to a file, as of now."""
        return [
            name for name in self._links.get(place, []) if os.path.islink(name) and _real(os.readlink(name)) == place
        ]

    def abandoned_folders(self) -> list[str]:
        """Hidden folders of measurements and tasks that were killed.

        Those of tasks go with their run (disposable.py), unless the whole machine went down: they are older than that.
        """
        return [path for path in self._folders if _is_abandoned_folder(path)]

    def dangling(self) -> list[tuple[Place, list[str]]]:
        """What is not there, with the names that lead to it."""
        return [(_place(path), self.to(path)) for path in self._links if not os.path.lexists(path)]


def _real(place: str) -> str:
    """A path on a layer, without links on the way to it."""
    return os.path.join(os.path.realpath(os.path.dirname(place)), os.path.basename(place))


def _place(path: str) -> Place:
    parts = _PLACE.fullmatch(path)
    assert parts is not None
    return Place(path, parts["root"], parts["pid"], parts["part"] == "work")


def is_abandoned(path: str, pid: str) -> bool:
    """Whether a hidden copy is of a process that is gone. Whoever writes one has it locked, wherever that can be."""
    with contextlib.suppress(OSError):
        about = os.lstat(path)
        if about.st_uid != os.getuid() or stat.S_ISDIR(about.st_mode):
            return False
        if is_process(pid) and _started(pid) <= about.st_ctime + 1:
            return False
        if is_on_network(path) and time.time() - about.st_ctime < _WRITTEN_WITHIN:
            return False
        return stat.S_ISLNK(about.st_mode) or _is_free(path)
    return False


def _is_ours(name: str) -> bool:
    return bool(_PROBE.fullmatch(name) or _PRIVATE.fullmatch(name))


def _is_abandoned_folder(path: str) -> bool:
    with contextlib.suppress(OSError):
        about = os.lstat(path)
        if about.st_uid != os.getuid() or not stat.S_ISDIR(about.st_mode) or is_on_network(path):
            return False
        probe = _PROBE.fullmatch(os.path.basename(path))
        if probe is not None:
            return not is_process(probe[1]) or _started(probe[1]) > about.st_ctime + 1
        return about.st_ctime < boot_time()
    return False


def boot_time() -> float:
    """When this machine was started, by the clock."""
    with open("/proc/uptime", "rb") as file:
        return time.time() - float(file.read().split()[0])


def _is_free(path: str) -> bool:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def _started(pid: str) -> float:
    """When a process started, by the clock: numbers are used again."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        ticks = int(file.read().rpartition(b")")[2].split()[19])
    return boot_time() + ticks / os.sysconf("SC_CLK_TCK")
