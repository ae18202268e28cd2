"""Where a running workflow leaves its marks, and who cleans up after one that was killed.

    RUNTIME/penstock-UID/stream-NAME-PID-ID/    server.json (who, where), copies (of other nodes' files)
    RUNTIME/penstock-UID/lock-HASH          held by whoever streams through a directory; the kernel lets go of it
    MEMORY/penstock-UID-PID-ID/             table, control.sock, and upper/ or files/ where the workflow lives in memory

A folder whose process is gone is remains: the next start removes it and what was staged for delivery, and puts back a
directory that stood aside, or removes the copies that are in it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator

import msgspec

from penstock.errors import ConfigError
from penstock.streaming.processes import is_alive, started_at

__all__ = ["Identity", "RunFolders", "living_servers", "lock_directory", "remove_remains", "remove_tree"]

_STATE_FILE = "server.json"
_TABLE = "table"


class Identity(msgspec.Struct, frozen=True):
    """A server, as others find it."""

    name: str
    pid: int
    #: with the number, which process it is
    started: int
    #: the workflow's directory, by the name that its programs use
    root: str
    #: in shared memory: the table, and the files if they live there
    memory: str
    #: where the user's own directory stands while the workflow's is in memory; empty in place
    aside: str = ""
    #: the folder in the user's directory where files are written that will be permanent, while programs cannot see it
    staging: str = ""
    source: str = ""
    #: the folder this was read from
    folder: str = ""

    @property
    def alive(self) -> bool:
        return is_alive(self.pid, self.started)

    @property
    def control(self) -> str:
        """Path of the control socket: a short one, as sockets need."""
        return os.path.join(self.memory, "control.sock")

    @property
    def table(self) -> str:
        """Path of the shared table."""
        return os.path.join(self.memory, _TABLE)

    @property
    def copies(self) -> str:
        """Path of the list of files in its directory that are copies of other nodes' files."""
        return os.path.join(self.folder, "copies")


def _base(*, make: bool = True) -> str:
    """The folder of all servers of this user."""
    runtime = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    if not os.access(runtime, os.W_OK | os.X_OK):
        runtime = tempfile.gettempdir()
    base = os.path.join(runtime, f"penstock-{os.getuid()}")
    if make:
        os.makedirs(base, mode=0o700, exist_ok=True)
    if os.path.exists(base) and os.stat(base).st_uid != os.getuid():
        raise ConfigError(f"{base} belongs to somebody else; set TMPDIR to a directory of your own")
    return base


class RunFolders:
    """The folders of one server, made by ``make`` at its start and removed at its end, or before it."""

    def __init__(self, name: str, root: str, source: str, memory_parent: str) -> None:
        mark = os.urandom(4).hex()
        if not os.access(memory_parent, os.W_OK | os.X_OK):
            raise ConfigError(f"streaming needs shared memory: cannot write in {memory_parent}; see `penstock doctor`")
        self.memory = os.path.join(memory_parent, f"penstock-{os.getuid()}-{os.getpid()}-{mark}")
        readable = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:40]
        pid = os.getpid()
        self.folder = os.path.join(_base(), f"stream-{readable}-{pid}-{mark}")
        self.identity = Identity(name, pid, started_at(pid), root, self.memory, source=source, folder=self.folder)

    def make(self) -> None:
        """Make them, once somebody has undertaken to remove them."""
        # In this order: whatever else there is of a server that is killed, its folder says so.
        os.makedirs(self.folder, mode=0o700)
        self.write()
        os.makedirs(self.memory, mode=0o700)

    def write(self, aside: str = "", staging: str = "") -> None:
        """Say who this is; before a directory is put aside or gets a new folder, so that somebody else can undo it."""
        self.identity = msgspec.structs.replace(self.identity, aside=aside, staging=staging)
        path = os.path.join(self.folder, _STATE_FILE)
        with open(path + ".new", "wb") as file:
            file.write(msgspec.json.encode(self.identity))
            file.flush()
            os.fsync(file.fileno())
        os.rename(path + ".new", path)

    @property
    def rescue(self) -> str:
        """Where files go that cannot be delivered: no later run takes it for remains."""
        return f"{self.memory}-undelivered"

    def remove(self) -> None:
        """Leave nothing, except a rescue folder."""
        remove_tree(self.memory)
        shutil.rmtree(self.folder, ignore_errors=True)


def remove_tree(memory: str) -> None:
    """Remove a folder in memory; the kernel has made one in it that nobody may look into, for an overlay."""
    with contextlib.suppress(OSError):
        os.chmod(os.path.join(memory, "work", "work"), 0o700)
    with contextlib.suppress(OSError):
        for name in os.listdir(memory):
            if name != _TABLE:  # goes last: a folder with a table is removed by the next start, should this be killed
                shutil.rmtree(os.path.join(memory, name), ignore_errors=True)
    shutil.rmtree(memory, ignore_errors=True)


def _recorded() -> Iterator[Identity]:
    base = _base(make=False)
    for entry in os.listdir(base) if os.path.isdir(base) else ():
        if entry.startswith("stream-"):
            folder = os.path.join(base, entry)
            try:
                with open(os.path.join(folder, _STATE_FILE), "rb") as file:
                    yield msgspec.structs.replace(msgspec.json.decode(file.read(), type=Identity), folder=folder)
            except (OSError, msgspec.DecodeError):
                if not started_at(int(entry.split("-")[-2])):
                    shutil.rmtree(folder, ignore_errors=True)  # killed before it had done anything


def living_servers() -> list[Identity]:
    """The servers of this user on this machine."""
    return sorted((one for one in _recorded() if one.alive), key=lambda one: one.started)


def remove_remains(memory_parent: str = "") -> list[Identity]:
    """Remove what killed servers have left; those whose directory is aside, or has copies in it, are for the caller.

    Remains in memory of which no record tells are found in ``memory_parent`` only.
    """
    waiting = []
    for one in _recorded():
        if one.alive:
            continue
        if (one.aside and os.path.lexists(one.aside)) or os.path.lexists(one.copies):
            waiting.append(one)
            continue
        remove_tree(one.memory)
        if one.staging:
            shutil.rmtree(one.staging, ignore_errors=True)
        shutil.rmtree(one.folder, ignore_errors=True)
    if memory_parent:
        _sweep_memory(memory_parent, {one.memory for one in waiting})
    with contextlib.suppress(OSError):
        os.rmdir(_base(make=False))
    return waiting


def _sweep_memory(memory_parent: str, spared: set[str]) -> None:
    """Remove tables whose server is gone and whose record was lost, as by a cleaner of temporary files."""
    for name in os.listdir(memory_parent) if os.path.isdir(memory_parent) else ():
        ours = re.fullmatch(rf"penstock-{os.getuid()}-(\d+)-[0-9a-f]{{8}}", name)
        path = os.path.join(memory_parent, name)
        if ours and path not in spared and not started_at(int(ours[1])):
            if os.path.exists(os.path.join(path, _TABLE)):
                remove_tree(path)
            else:
                with contextlib.suppress(OSError):
                    os.rmdir(path)  # killed before it had a table; what is not empty is not known to be ours


@contextlib.contextmanager
def lock_directory(root: str) -> Iterator[None]:
    """Hold the right to stream through a directory; a ConfigError if another workflow does."""
    digest = hashlib.blake2b(os.fsencode(root), digest_size=8).hexdigest()
    path = os.path.join(_base(), f"lock-{digest}")
    descriptor = _locked(path, root)
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)  # while it is held: who comes now finds no file, or notices that it is not that one
        os.close(descriptor)
        with contextlib.suppress(OSError):
            os.rmdir(os.path.dirname(path))  # the last one turns off the light


def _locked(path: str, root: str) -> int:
    while True:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue  # somebody has just removed the folder
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.exists(path) and os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
            os.close(descriptor)
        except BlockingIOError:
            pid = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "?"
            os.close(descriptor)
            raise ConfigError(
                f"another workflow streams through {root} (process {pid}); wait for it, or stop it: kill {pid}"
            ) from None
