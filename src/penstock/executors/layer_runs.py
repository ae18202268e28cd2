"""The record of a run in its folder on a storage layer: whose it is, and where the names of its files are.

    MOUNT/penstock-UID-PID-ID-layer/run    {"host": ..., "boot": ...}   then one line for each folder with names

The program holds a lock on it from before it writes there until its last file is home. A run that is killed leaves it,
unlocked: then whoever brings its files home (`penstock recover`) knows where to look for their names.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from typing import NamedTuple

from penstock.executors.disposable import RECORD, is_locked, machine, of_runs

__all__ = ["DeadRun", "dead_runs", "first_line", "is_process", "note_home", "taken_over"]


class DeadRun(NamedTuple):
    """The folder of a run that is over on a storage layer."""

    root: str
    #: where it ran; empty if that is not known
    host: str
    boot: str
    #: folders in which names of its files were
    homes: tuple[str, ...]

    @property
    def mount(self) -> str:
        """The layer that it is on."""
        return os.path.dirname(self.root)

    @property
    def of_this_machine(self) -> bool:
        """Whether a lock that is free here is free everywhere, also where the file system does not pass locks on."""
        return not self.boot or self.boot == machine().decode() or self.host == os.uname().nodename


def first_line() -> bytes:
    """What the record of a run of this process begins with."""
    import json  # not needed by most runs, as everywhere below

    return json.dumps({"host": os.uname().nodename, "boot": machine().decode()}).encode() + b"\n"


def note_home(root: str, folder: str) -> None:
    """Note that names in a folder lead to files of a run."""
    import json

    # Not made anew: a record that nobody holds would say that the run is over.
    with contextlib.suppress(OSError):  # no room: the names are still there for who knows where to look
        descriptor = os.open(os.path.join(root, RECORD), os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            os.write(descriptor, json.dumps(folder).encode() + b"\n")
        finally:
            os.close(descriptor)


def dead_runs(mount: str) -> list[DeadRun]:
    """What runs of this user that are over have on a storage layer.

    Where there is no record, as after a run that could not write one, the number of the process has to do.
    """
    found = []
    for root, pid, on_layer in of_runs(mount):
        if not on_layer:
            continue
        if os.path.exists(os.path.join(root, RECORD)):
            dead = not is_locked(root, RECORD)
        else:
            dead = not is_process(pid) and not is_locked(os.path.join(root, "work"))
        if dead:
            found.append(_described(root))
    return found


def is_process(pid: str) -> bool:
    """Whether a process of this number is to be seen."""
    return os.path.exists(f"/proc/{pid}")


def _described(root: str) -> DeadRun:
    import json

    lines: list[bytes] = []
    with contextlib.suppress(OSError), open(os.path.join(root, RECORD), "rb") as file:
        lines = file.read().split(b"\n")[:-1]  # what has no end was being written when the run was killed
    who: dict[str, object] = {}
    homes: list[str] = []
    for line in lines:
        with contextlib.suppress(ValueError):
            said = json.loads(line)
            if isinstance(said, dict):
                who = said
            elif isinstance(said, str) and said not in homes:
                homes.append(said)
    return DeadRun(root, str(who.get("host", "")), str(who.get("boot", "")), tuple(homes))


@contextlib.contextmanager
def taken_over(run: DeadRun) -> Iterator[bool]:
    """Hold the record of a dead run, so that no two look after it; False if somebody does, or it is gone."""
    flags = os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(os.path.join(run.root, RECORD), flags, 0o600)
    except OSError as error:  # read-only, say: then nobody else can do anything there either
        yield not isinstance(error, FileNotFoundError)
        return
    try:
        yield _may_be_held(descriptor)
    finally:
        os.close(descriptor)


def _may_be_held(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # a file system without locks
    return True
