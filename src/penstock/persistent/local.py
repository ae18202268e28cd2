"""The store that needs no server: a folder, shared by all processes that see it.

    <folder>/objects/<ab>/<id>     the manifest, exchanged by rename
    <folder>/blocks/<ab>/<token>   the bytes of one state of a large object, written once and mapped by whoever reads it
    <folder>/writing/…             what a process has not finished: <token>, or <run>-… for a manifest
    <folder>/runs/                 the runs that use the store (local_runs.py)
    <folder>/lock                  held while a manifest is compared and exchanged

A process that is killed leaves the old manifest or the new one. What else it leaves is removed by who comes next
(upkeep.py). Objects carry a checksum: what a loss of power damaged is found.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import mmap
import os
import socket
import threading
from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import quote, unquote
from uuid import uuid4

from penstock.errors import StorageError, StoreFull, StoreUnreachable
from penstock.persistent.local_runs import LocalRuns
from penstock.persistent.manifest import STAMP, Entry
from penstock.persistent.stores import Buffer, Change, Found, Store

__all__ = ["LocalStore"]

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOMEM)
#: blocks start at multiples of this
_ALIGNMENT = 64
#: the kernel writes at most about this much in one call
_CHUNK = 1 << 30
#: longest name that is used as it is
_LONGEST = 200


class LocalStore(Store):
    """A folder of objects."""

    checks = True

    def __init__(self, folder: str) -> None:
        self.folder = os.path.abspath(folder)
        super().__init__(f"local:{folder}", LocalRuns(os.path.join(self.folder, "runs"), self._explained))
        self._turn = threading.Lock()
        with self._explained():
            for name in ("objects", "blocks", "writing"):
                os.makedirs(os.path.join(self.folder, name), exist_ok=True)

    # --- manifests ----------------------------------------------------------------------------------------------

    def _path(self, identifier: str) -> str:
        name = quote(identifier, safe="")
        digest = hashlib.blake2b(identifier.encode(errors="surrogatepass"), digest_size=20).hexdigest()
        if len(name) > _LONGEST or name.startswith("."):
            name = f"%{digest}"
        return os.path.join(self.folder, "objects", digest[:2], name)

    def _manifests(self, identifiers: Sequence[str]) -> list[bytes | None]:
        return [self._manifest_file(identifier) for identifier in identifiers]

    def _manifest_file(self, identifier: str) -> bytes | None:
        with self._explained():
            try:
                with open(self._path(identifier), "rb") as file:
                    return file.read()
            except FileNotFoundError:
                if not os.path.isdir(self.folder):
                    raise StoreUnreachable(f"the folder of {self} is gone") from None
                return None

    def _swap(self, changes: Sequence[Change]) -> list[bool]:
        with self._explained():
            written = [None if one.manifest is None else self._written(one.manifest) for one in changes]
            try:
                with self._locked():
                    return [self._swap_one(one, new) for one, new in zip(changes, written, strict=True)]
            finally:
                for path in written:
                    if path is not None:
                        with contextlib.suppress(FileNotFoundError):
                            os.unlink(path)

    def _swap_one(self, change: Change, new: str | None) -> bool:
        path = self._path(change.identifier)
        try:
            with open(path, "rb", buffering=0) as file:
                stamp = file.read(STAMP)
        except FileNotFoundError:
            stamp = b""
        if stamp != change.stamp:
            return False
        if new is None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            return True
        if change.entry is not None and change.entry.blocks:
            _rename(self._staged_file(change.entry), self._block_file(change.entry))
        _rename(new, path)
        return True

    def _written(self, data: bytes) -> str:
        path = self._private()
        with open(path, "xb", buffering=0) as file:
            _write_all(file.fileno(), memoryview(data), 0)
        return path

    def _private(self) -> str:
        """A name that says whose it is."""
        self.hold()
        return os.path.join(self.folder, "writing", f"{self.run}-{uuid4().hex}")

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """The lock of the folder is one of processes, ours is one of threads."""
        with self._turn:
            lock = os.open(os.path.join(self.folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
            finally:
                os.close(lock)

    # --- blocks -------------------------------------------------------------------------------------------------

    def _block_file(self, entry: Entry) -> str:
        return os.path.join(self.folder, "blocks", entry.token[:2], entry.token)

    def _staged_file(self, entry: Entry) -> str:
        return os.path.join(self.folder, "writing", entry.token)

    def _write(self, identifier: str, entry: Entry, blocks: Sequence[Sequence[memoryview]]) -> None:
        with self._explained():
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            descriptor = os.open(self._staged_file(entry), flags, 0o666)
            try:
                at = 0
                for block in blocks:
                    for piece in block:
                        _write_all(descriptor, piece, at)
                        at += len(piece)
                    at += -at % _ALIGNMENT
            finally:
                os.close(descriptor)

    def _read(self, wanted: Sequence[tuple[str, Entry, bool]]) -> list[list[Buffer] | None]:
        return [self._mapped(entry, writable=writable) for _, entry, writable in wanted]

    def _mapped(self, entry: Entry, *, writable: bool) -> list[Buffer] | None:
        with self._explained():
            try:
                descriptor = os.open(self._block_file(entry), os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return None
            try:
                # A private mapping: pages that are changed are copied, and the file stays as it is.
                access = mmap.ACCESS_COPY if writable else mmap.ACCESS_READ
                view = memoryview(mmap.mmap(descriptor, 0, access=access))
            except ValueError:
                raise StorageError(f"a file of {self} is damaged: it is empty") from None
            finally:
                os.close(descriptor)
        blocks: list[Buffer] = []
        at = 0
        for size in entry.blocks:
            blocks.append(view[at : at + size])
            at += size + -(at + size) % _ALIGNMENT
        if len(view) < at - _ALIGNMENT or any(len(b) != n for b, n in zip(blocks, entry.blocks, strict=True)):
            raise StorageError(f"a file of {self} is damaged: it has lost its end")
        return blocks

    def _erase(self, states: Sequence[tuple[str, Entry]]) -> None:
        with self._explained():
            for _, entry in states:
                for path in (self._block_file(entry), self._staged_file(entry)):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(path)

    # --- the folder ---------------------------------------------------------------------------------------------

    def unfinished(self, run: str) -> list[Found]:
        """What a run was writing."""
        with self._explained():
            return [one for one in _files(os.path.join(self.folder, "writing")) if one.name.startswith(f"{run}-")]

    def inventory(self) -> Iterator[tuple[str, bytes]]:
        with self._explained():
            for found in _files(os.path.join(self.folder, "objects")):
                with contextlib.suppress(FileNotFoundError), open(found.place, "rb") as file:
                    yield (found.name if _is_digest(found.name) else unquote(found.name)), file.read()

    def blocks(self) -> Iterator[Found]:
        with self._explained():
            yield from _files(os.path.join(self.folder, "blocks"))
            for found in _files(os.path.join(self.folder, "writing")):
                run, _, name = found.name.rpartition("-")
                yield found._replace(name=name, run=run)

    def discard(self, found: Iterable[Found]) -> None:
        with self._explained():
            for one in found:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(one.place)

    def locations(self, identifier: str, entry: Entry | None = None) -> list[str]:
        return [socket.gethostname()]

    def place(self, host: str) -> str:
        return uuid4().hex

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if isinstance(error, StorageError):
                raise
            why = f"{self} cannot be used: {error.strerror} ({error.filename})"
            if error.errno in _FULL:
                raise StoreFull(f"{why}. Free space there, or choose another folder with the setting store.") from error
            if error.errno == errno.ENOENT and not os.path.isdir(os.path.join(self.folder, "objects")):
                raise StoreUnreachable(f"the folder of {self} is gone") from error
            raise StoreUnreachable(f"{why}. Choose another folder with the setting store.") from error


def _is_digest(name: str) -> bool:
    """Whether a manifest's name stands for an id that no file can have as its name."""
    return len(name) == 41 and name.startswith("%") and name == name.lower()


def _files(folder: str) -> Iterator[Found]:
    """All files below a folder."""
    for where, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                path = os.path.join(where, name)
                yield Found(name, path, os.path.getsize(path))


def _rename(source: str, target: str) -> None:
    try:
        os.rename(source, target)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.rename(source, target)


def _write_all(descriptor: int, view: memoryview, at: int) -> None:
    while view:
        written = os.pwrite(descriptor, view[:_CHUNK], at)
        view = view[written:]
        at += written
