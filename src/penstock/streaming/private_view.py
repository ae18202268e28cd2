"""A directory in memory over the user's, at the same path, seen by the programs of the workflow and nobody else.

    programs, server    work/  =  what they make (/dev/shm/penstock-…/upper) over what exists (the user's directory)
    everybody else      work/  =  the user's directory, where permanent files appear

What exists is seen as what it is: a file, of its size, under its path. A file that is changed is copied into memory
first; one that is removed leaves a mark there. ``changes`` reads from these what has to happen to the user's directory.
The mount goes with the last process that sees it, so a kill leaves nothing but ``staging``, an empty folder or one with
copies that had not got their names.

Whether all this works is tried before, in a child that makes what it needs and removes it. Nobody else does, and no
signal reaches it: Penstock may be interrupted or killed meanwhile.

``placement`` is the way where the kernel does not allow this; ``reason_against`` says why.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator

from penstock.errors import ConfigError
from penstock.streaming.changes import Changes, is_directory, is_removal_mark, names_below
from penstock.streaming.directories import Measure, measured
from penstock.streaming.folders import RunFolders, remove_tree
from penstock.streaming.mounts import bind, have_own_mounts, is_user_namespace_needed, mount_overlay, unmount
from penstock.streaming.processes import signals_held

__all__ = ["PrivateView", "reason_against"]


def reason_against(root: str, memory: str) -> str:
    """Why programs cannot have a view of their own of this directory, tried in another process; empty if they can."""
    if not os.path.isdir(root) or os.path.islink(root) or os.path.dirname(root) == root:
        return f"{root} is not a directory that something can be mounted on"
    if inside := _mount_below(root):
        return f"something else is mounted in it, at {inside}"
    if not os.access(root, os.W_OK | os.X_OK):
        return f"no right to write in {root}"
    if is_user_namespace_needed() and (foreign := _not_ours(root)):
        return f"{foreign} belongs to another user or group, whom a user namespace does not know"
    return _try_in_child(root, memory)


def _mount_below(root: str) -> str:
    with open("/proc/self/mountinfo", "rb") as file:  # blanks are written as \\040 there
        places = [line.split()[4].decode("unicode_escape").encode("latin-1") for line in file]
    return os.fsdecode(next((place for place in places if place.startswith(os.fsencode(root) + b"/")), b""))


def _not_ours(root: str) -> str:
    """Something in a directory that is not of this user and group."""
    ours = (os.geteuid(), os.getegid())
    for folder, folders, names in os.walk(root):
        for name in (".", *folders, *names):
            path = os.path.join(folder, name)
            with contextlib.suppress(FileNotFoundError):
                about = os.lstat(path)
                if (about.st_uid, about.st_gid) != ours:
                    return os.path.normpath(path)
    return ""


def _try_in_child(root: str, memory: str) -> str:
    """Mount over the directory for a moment, where nobody sees it, and do what is hardest for such a mount."""
    reading, writing = os.pipe()
    child = 0
    try:
        with signals_held():
            child = os.fork()
            if child == 0:
                _try_and_exit(root, memory, writing)
        os.close(writing)
        with open(reading, "rb") as answer:
            told = answer.read()
    finally:
        if child:
            os.waitpid(child, 0)  # also when a signal came: then nothing is left of the trial when we end
    return os.fsdecode(told[1:]) if told else "the trial was killed"


def _try_and_exit(root: str, memory: str, writing: int) -> None:
    """Answers with a byte and the reason against it, if there is one; does not return."""
    try:
        os.setsid()  # a kill of our process group is not for this one: it has only moments to live
        told = _tried(root, memory)
    except OSError as error:
        told = error.strerror or str(error)
    except BaseException as error:
        told = repr(error)
    try:
        os.write(writing, b"." + os.fsencode(told))
    finally:
        os._exit(0)


def _tried(root: str, memory: str) -> str:
    # Named and filled as what a server leaves: if this process is killed, it is removed like that.
    name = f"penstock-{os.getuid()}-{os.getpid()}-{os.urandom(4).hex()}"
    scratch = os.path.join(memory, name)
    os.mkdir(scratch, 0o700)
    try:
        open(os.path.join(scratch, "table"), "w", encoding="ascii").close()
        below, upper, work = (os.path.join(scratch, part) for part in ("below", "upper", "work"))
        for folder in (os.path.join(below, name), upper, work):
            os.makedirs(folder)
        open(os.path.join(below, name, "removed"), "w", encoding="ascii").close()
        have_own_mounts()
        mount_overlay([below, root], upper, work, root)
        try:
            # To make a directory again that was removed needs marks that not every kernel can leave in memory.
            again = os.path.join(root, name)
            os.unlink(os.path.join(again, "removed"))
            os.rmdir(again)
            os.mkdir(again)
            return "a removed directory that is made anew shows what was in it" if os.listdir(again) else ""
        finally:
            unmount(root)
    finally:
        remove_tree(scratch)


class PrivateView:
    """The workflow's directory, for a process that has mounts of its own. ``begin`` mounts, ``end`` unmounts."""

    def __init__(self, root: str, folders: RunFolders) -> None:
        self.root = self.files = root
        #: what programs have made or changed; only to be read
        self.source = os.path.join(folders.memory, "upper")
        self._work = os.path.join(folders.memory, "work")
        self._folders = folders
        self._staging = f".penstock-{os.path.basename(folders.memory)}"
        self._descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        #: the user's own directory, which nothing is mounted on when it is reached in this way
        self.home = f"/proc/self/fd/{self._descriptor}"
        self.staging = os.path.join(self.home, self._staging)
        self._mounted: list[str] = []
        #: what directories have in the user's directory; measured by ``begin``
        self.measure: Measure | None = None

    def begin(self, is_output: Callable[[str], bool], is_excluded: Callable[[str], bool]) -> None:
        """Let the programs have their view."""
        about = os.stat(self.root)
        os.mkdir(self.source)
        os.mkdir(self._work)
        shutil.copystat(self.root, self.source)
        if (about.st_uid, about.st_gid) != (os.geteuid(), os.getegid()):
            os.chown(self.source, about.st_uid, about.st_gid)
        self._folders.write(staging=os.path.join(self.root, self._staging))
        os.mkdir(self.staging, 0o700)
        self.measure = measured(self.staging)
        mount_overlay([self.root], self.source, self._work, self.root)
        self._mounted.append(self.root)
        os.rmdir(os.path.join(self.root, self._staging))  # programs do not see it from now on
        shutil.copystat(self.home, self.source)
        linked: dict[tuple[int, int], list[str]] = {}
        for entry, name in self._existing(".", is_excluded):
            if is_excluded(name):
                bind(os.path.join(self.home, name), os.path.join(self.root, name))
                self._mounted.append(os.path.join(self.root, name))
            elif (about := entry.stat(follow_symlinks=False)).st_nlink > 1:
                linked.setdefault((about.st_dev, about.st_ino), []).append(name)
            elif is_output(name):
                self._copy_up(name)
        for names in linked.values():
            if any(map(is_output, names)):
                self._copy_up_linked(*names)

    def _existing(self, folder: str, is_excluded: Callable[[str], bool]) -> Iterator[tuple[os.DirEntry[str], str]]:
        """Files that exist, and directories that are excluded."""
        for entry in os.scandir(os.path.join(self.home, folder)):
            name = entry.name if folder == "." else f"{folder}/{entry.name}"
            if name == self._staging:
                continue
            if entry.is_dir(follow_symlinks=False):
                if is_excluded(name):
                    yield entry, name
                else:
                    yield from self._existing(name, is_excluded)
            elif entry.is_file(follow_symlinks=False) and not is_excluded(name):
                yield entry, name

    def _copy_up(self, name: str) -> None:
        """Have an old output in memory before anybody opens it: who reads and who rewrites it must have one file."""
        path = os.path.join(self.root, name)
        size, free = os.stat(path).st_size, os.statvfs(self.source)
        if size > free.f_bavail * free.f_frsize:
            raise ConfigError(
                f"{name}, an output of an earlier run, has {size} bytes and does not fit into memory; "
                f"remove it, or run without --memory"
            )
        with contextlib.suppress(PermissionError):  # who may not write to it does not rewrite it
            os.close(os.open(path, os.O_WRONLY | os.O_CLOEXEC))

    def _copy_up_linked(self, first: str, *others: str) -> None:
        """The same for a file of several names: each would become a file of its own when it is written to."""
        self._copy_up(first)
        for name in others:
            path = os.path.join(self.root, name)
            with contextlib.suppress(PermissionError):
                os.unlink(path)
                os.link(os.path.join(self.root, first), path)

    def changes(self) -> Changes:
        """What the programs have done to the user's directory so far, as it would be without this view."""
        changes = Changes([], [], [])
        self._compare("", changes, opaque=False)
        return changes

    def _compare(self, folder: str, changes: Changes, *, opaque: bool) -> None:
        above, home = os.path.join(self.source, folder), os.path.join(self.home, folder)
        #: what is in the user's directory, and whether it is a directory
        below = {entry.name: entry.is_dir(follow_symlinks=False) for entry in _entries(home)}
        seen = set()
        for entry in os.scandir(above):
            seen.add(entry.name)
            name = os.path.join(folder, entry.name)
            if entry.is_dir(follow_symlinks=False):
                if below.get(entry.name) is False:
                    changes.removed.append(name)
                if not below.get(entry.name):
                    changes.made.append(name)
                self._compare(name, changes, opaque=opaque or _is_opaque(entry.path))
            elif not entry.is_file(follow_symlinks=False) and is_removal_mark(entry.stat(follow_symlinks=False)):
                if name != self._staging:
                    changes.removed.extend(names_below(self.home, name))
            else:
                if below.get(entry.name):
                    changes.removed.extend(names_below(self.home, name))
                changes.written.append(name)
        if opaque:
            for name in below.keys() - seen:
                changes.removed.extend(names_below(self.home, os.path.join(folder, name)))

    def end(self) -> None:
        """The programs are over: everything is the user's directory again."""
        try:
            while self._mounted:
                unmount(self._mounted.pop())
        finally:
            shutil.rmtree(self.staging, ignore_errors=True)
            os.close(self._descriptor)
        self._folders.write()


def _entries(folder: str) -> list[os.DirEntry[str]]:
    """What is in a directory; nothing, if it is none."""
    if not is_directory(folder):
        return []
    with os.scandir(folder) as entries:
        return list(entries)


def _is_opaque(path: str) -> bool:
    """Whether nothing of the user's directory of that name is seen through this one."""
    for name in ("trusted.overlay.opaque", "user.overlay.opaque"):
        with contextlib.suppress(OSError):
            if os.getxattr(path, name) == b"y":
                return True
    return False
