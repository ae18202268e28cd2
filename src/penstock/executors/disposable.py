"""Directories that go with their run, also when nobody was left to remove them: the next run does.

    PLACE/penstock-UID-PID-ID[-spill]/owner    locked by the program while it lives; says on which machine that is
    MOUNT/penstock-UID-PID-ID-layer/work/owner  likewise; what lies beside ``work`` is the user's
    MOUNT/penstock-UID-PID-ID-layer/run         likewise, until the last file is home (layer_runs.py)

The guardian (`forkserver_main`) removes what a program leaves that dies, but one can be killed before there is a
guardian, or together with it, and inline there is none. Numbers of processes prove nothing, since others may share the
directory from a container of their own; a lock does, and goes with its process, however that ends.

A directory can be swept between the moments at which it is made and locked. Whoever makes it sees that, and makes it
again; so nothing depends on how long anything takes. A directory that is not empty and was never locked stays.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import threading
import time
from collections.abc import Callable, Iterable

__all__ = ["RECORD", "hold", "is_locked", "let_go", "machine", "of_runs", "places_of", "remove_directories", "sweep"]

_LOCK = "owner"
#: what says of a run's folder on a storage layer whose it is; not the same, since without it the folder is not removed
RECORD = "run"
#: what a sweep has taken off its name, and nobody uses any more
_DEAD = "-dead"
#: A thread of the main program may put a file into a directory that is being removed: it is not empty at the end, then.
_REMOVALS = 10
#: seconds within which a living process may still be about to fill an empty directory of its name
_FILLED_WITHIN = 60.0

#: descriptors of the locks of this process, by path
_held: dict[str, int] = {}
_guard = threading.Lock()


def _make(directory: str) -> None:
    os.makedirs(directory, mode=0o700, exist_ok=True)


def hold(directory: str, lock: str = _LOCK, *, make: Callable[[str], None] = _make, note: bytes | None = None) -> None:
    """Make a directory if there is none, for this user alone, and say that it is in use until this process ends.

    ``note`` is what the lock says instead of which machine it is held on.
    """
    path = os.path.join(directory, lock)
    with _guard:
        while path not in _held:
            make(directory)
            try:
                descriptor = _locked(path, machine() if note is None else note)
            except FileNotFoundError:
                continue  # swept at this very moment
            except OSError:
                return  # no locks there, or no room: nobody will take it for the remains of a dead run and remove it
            if descriptor is not None:
                _held[path] = descriptor


def _locked(path: str, note: bytes) -> int | None:
    """A descriptor that holds the lock; None if the file was swept before it was locked."""
    # Not for writing: a file system on which a file is open for writing cannot be made read-only.
    descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if _is_at(descriptor, path):
            with open(path, "wb") as file:
                file.write(note)
            return descriptor
    except OSError:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def let_go(directories: Iterable[str], lock: str = _LOCK) -> None:
    """The run is over, and its directories are gone."""
    for directory in directories:
        if (descriptor := _held.pop(os.path.join(directory, lock), None)) is not None:
            os.close(descriptor)


def _forget_in_fork() -> None:
    """The lock is the program's; a process that it forks must not keep it beyond the program's end."""
    global _guard
    _guard = threading.Lock()  # a thread that is not here may have been about to make a directory
    while _held:
        os.close(_held.popitem()[1])


os.register_at_fork(after_in_child=_forget_in_fork)


def places_of(directories: Iterable[str]) -> list[str]:
    """Where directories of runs lie; that of a run on a storage layer is one level deeper."""
    parents = [os.path.dirname(directory) for directory in directories]
    return list(dict.fromkeys(os.path.dirname(one) if one.endswith("-layer") else one for one in parents))


def sweep(places: Iterable[str]) -> list[str]:
    """Remove what runs of this user that are gone have left in these places; gives what was removed."""
    removed = []
    for place in places:
        for path, pid, on_layer in of_runs(place):
            with contextlib.suppress(OSError):  # whatever it is, it does not concern the run that sweeps
                if (_remove_on_layer if on_layer else _remove_if_dead)(path, pid):
                    removed.append(path)
    return removed


def of_runs(place: str) -> list[tuple[str, str, bool]]:
    """Directories of runs of this user: path, number of the process, and whether it is that on a storage layer."""
    ours = re.compile(rf"penstock-{os.getuid()}-(\d+)-[0-9a-f]{{8}}(?:-spill|(-layer))?(?:{_DEAD})?")
    found = []
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(place)):
            parts, path = ours.fullmatch(name), os.path.join(place, name)
            with contextlib.suppress(OSError):  # it goes while we look
                if parts is not None and _is_own_directory(path):
                    found.append((path, parts[1], parts[2] is not None))
    return found


def is_locked(directory: str, lock: str = _LOCK) -> bool:
    """Whether a living process holds a lock in a directory."""
    try:
        descriptor = os.open(os.path.join(directory, lock), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _remove_on_layer(root: str, pid: str) -> bool:
    """Of a run's folder on a storage layer only ``work`` goes: finished files that are not at home yet stay."""
    removed = False
    for name in ("work", f"work{_DEAD}"):
        with contextlib.suppress(FileNotFoundError):
            removed = _remove_if_dead(os.path.join(root, name), pid) or removed
    with contextlib.suppress(OSError):  # finished files are there
        removed = _remove_root(root) or _remove_if_dead(root, pid) or removed
    if removed:
        from penstock.executors.layer_table import tidy_on

        with contextlib.suppress(OSError):
            tidy_on(os.path.dirname(root))
    return removed


def _remove_root(root: str) -> bool:
    """Remove a run's folder on a storage layer that has nothing in it but the record of a run that is gone."""
    if not os.path.exists(os.path.join(root, RECORD)) or is_locked(root, RECORD):
        return False
    with contextlib.suppress(OSError):
        os.rmdir(os.path.join(root, "kept"))
    if os.listdir(root) != [RECORD]:
        return False
    os.unlink(os.path.join(root, RECORD))
    os.rmdir(root)
    return True


def _is_own_directory(path: str) -> bool:
    import stat

    about = os.lstat(path)
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid()


def _remove_if_dead(path: str, pid: str) -> bool:
    if path.endswith(_DEAD):
        _remove(os.fsencode(path))
        return True
    lock = os.path.join(path, _LOCK)
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        if os.path.exists(f"/proc/{pid}") and time.time() - os.lstat(path).st_mtime < _FILLED_WITHIN:
            return False
        os.rmdir(path)  # its process was killed before it was locked; if there is anything in it, it is not known whose
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _is_at(descriptor, lock) or not _of_this_machine(descriptor, path):
            return False
        _remove_linked(os.fsencode(path))
        # Off its name first: whoever is about to lock it must not find it half removed.
        os.rename(path, path + _DEAD)
        _remove(os.fsencode(path + _DEAD))
    finally:
        os.close(descriptor)
    return True


def _is_at(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def _of_this_machine(descriptor: int, path: str) -> bool:
    """Not every network file system passes locks on: there, one that is free here may be held on another machine."""
    known = os.pread(descriptor, 100, 0)
    return known == machine() or (not known and os.listdir(path) == [_LOCK])


def machine() -> bytes:
    """This machine since it was last started."""
    with open("/proc/sys/kernel/random/boot_id", "rb") as file:
        return file.read().strip()


def remove_directories(directories: Iterable[bytes]) -> None:
    """Remove all that a run's own directories hold, which is over; what is already gone is no error.

    The main program and the guardian may do it at the same time.
    """
    for directory in directories:
        _remove_linked(directory)
        _remove(directory)
        parent = os.path.dirname(directory)
        if parent.endswith(b"-layer"):  # the run's folder on a storage layer, unless finished files are there too
            from penstock.executors.layer_table import leave_for

            with contextlib.suppress(OSError):
                if not _remove_root(os.fsdecode(parent)):
                    os.rmdir(parent)
            with contextlib.suppress(OSError):
                leave_for(os.fsdecode(parent).removesuffix("-layer"))


def _remove(directory: bytes) -> None:
    import shutil

    for _ in range(_REMOVALS):
        shutil.rmtree(directory, ignore_errors=True)
        if not os.path.lexists(directory):
            break


def _remove_linked(directory: bytes) -> None:
    """Remove folders beside the user's files that tasks of this run were writing to: they bear the run's name."""
    import shutil

    targets = []
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):  # no link, or just removed by somebody else
                targets.append(os.readlink(entry.path))
    for target in targets:
        if os.path.basename(target).startswith(b"." + os.path.basename(directory)):
            shutil.rmtree(target, ignore_errors=True)
