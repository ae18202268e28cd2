"""Which files this program writes: another one of the same user on this machine that would write one of them too is
told, instead of mixing with it in silence.

    MEMORY_DIR/files    eight bytes for each path that the run is to write, and again if not; locked while it lives

Whoever is to write a path for the first time adds it to his own record, and then looks into those of the others; so of
two that come at once at least one sees the other. The lock goes with the process, however that ends, and the record
with the directory of its run. There is one descriptor per run, and a path costs some microseconds, once.

A directory is written with all that is in it. So a run also notes the directories that it writes as wholes, which
whoever writes inside looks for, and all below which it writes something, which whoever writes one as a whole looks for.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Iterable

from penstock.executors.disposable import hold

__all__ = ["FileClaims"]

_NAME = "files"
#: what a mark of a directory says that is not its own as a path; no path ends like this
_WHOLE, _BELOW = b"/", b"//"
_SIZE = 8
#: seconds for which what a directory held may have changed although its time stamp has not
_COARSE = 1.0


class FileClaims:
    """The files that this run writes, and what other runs write."""

    def __init__(self, memory_dir: str) -> None:
        self._parent = os.path.dirname(memory_dir)
        self._record = os.path.join(memory_dir, _NAME)
        #: all of those of this program: several runs of one process may write the same files
        self._mine = f"penstock-{os.getuid()}-{os.getpid()}-"
        self._descriptor = -1
        #: a finaliser that calls a task may come by while this very thread has it: that must not wait for itself
        self._lock = threading.RLock()
        self._claimed: set[bytes] = set()
        #: by folder: the marks of all around it, as something below which is written, and as wholes
        self._around: dict[str, tuple[list[bytes], list[bytes]]] = {}
        #: what was known of the parent directory when it was looked at, and when that was
        self._seen = (-1, 0.0)
        #: other runs, by directory
        self._others: dict[str, _Other] = {}

    def claim(self, wanted: Iterable[tuple[str, bool]]) -> tuple[str, str] | None:
        """Say that this run will write these files, and directories (True) with all that is in them.

        If another run writes one of them: which, and who that is. Then this one will write none of them.
        """
        with self._lock, contextlib.suppress(OSError):  # without a place for records nobody is told anything
            new: set[bytes] = set()
            conflicts = []
            for path, directory in wanted:
                mark = _mark(path)
                key = _mark(path, _WHOLE) if directory else mark
                if key not in self._claimed:
                    below, whole = self._folders_around(os.path.dirname(path))
                    new.update((mark, key, *below))
                    conflicts.append((path, {mark, *whole, *([_mark(path, _BELOW)] if directory else ())}))
            if not conflicts:
                return None
            if self._descriptor < 0:
                self._begin()
            new -= self._claimed
            os.write(self._descriptor, b"".join(new))
            for path, marks in conflicts:
                other = self._writer_of(marks)
                if other:
                    os.write(self._descriptor, b"".join(new))
                    return path, other
            self._claimed |= new
        return None

    def _folders_around(self, folder: str) -> tuple[list[bytes], list[bytes]]:
        known = self._around.get(folder)
        if known is None:
            from pathlib import PurePath  # most programs have no use for it

            folders = [folder, *map(str, PurePath(folder).parents)]
            known = [_mark(one, _BELOW) for one in folders], [_mark(one, _WHOLE) for one in folders]
            self._around[folder] = known
        return known

    def _writer_of(self, marks: set[bytes]) -> str:
        for name, other in self._others_now():
            if not other.lives():
                self._others.pop(name, None)
            elif not marks.isdisjoint(other.marks):
                return f"process {name.split('-')[2]}"
        return ""

    def close(self) -> None:
        """The run is over; its directory goes with the record."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        for other in self._others.values():
            other.close()
        self._others.clear()

    def _begin(self) -> None:
        hold(os.path.dirname(self._record))
        descriptor = os.open(self._record, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._descriptor = descriptor

    def _others_now(self) -> list[tuple[str, _Other]]:
        """The other runs that there are; the directory of runs is only read when it has changed."""
        changed, when = os.stat(self._parent).st_mtime_ns, time.time()
        if self._seen[0] != changed or self._seen[1] - changed / 1e9 < _COARSE:
            self._seen = changed, when
            user = f"penstock-{os.getuid()}-"
            for name in os.listdir(self._parent):
                if name.startswith(user) and not name.startswith(self._mine) and name not in self._others:
                    self._others[name] = _Other(os.path.join(self._parent, name, _NAME))
        return list(self._others.items())


def _mark(path: str, kind: bytes = b"") -> bytes:
    import hashlib  # with OpenSSL, which takes 3 ms and only files need

    return hashlib.blake2b(os.fsencode(path) + kind, digest_size=_SIZE).digest()


class _Other:
    """The record of another run, read as it grows."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = -1
        self._rest = b""
        self.marks: set[bytes] = set()

    def lives(self) -> bool:
        """Whether its run does; what it writes is known then."""
        if self._descriptor < 0:
            try:
                self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return os.path.isdir(os.path.dirname(self._path))  # it has written nothing yet
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            self._read()
            return True
        self.close()
        return False

    def _read(self) -> None:
        while data := os.read(self._descriptor, 1 << 16):
            data = self._rest + data
            whole = len(data) - len(data) % _SIZE
            self._rest = data[whole:]
            for at in range(0, whole, _SIZE):
                self.marks ^= {data[at : at + _SIZE]}

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._descriptor)
        self._descriptor = -1
