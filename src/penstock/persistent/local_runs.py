"""The runs that use a folder: each has a file that its processes lock, and a folder of notes.

    <folder>/runs/<run>.lock       locked, shared, by each process of the run that uses the store
    <folder>/runs/<run>/<token>    a note

The kernel lets go of a lock when the last process that has it ends, however it ends, and in whatever container it is:
who can have the lock for himself knows that the run is no more.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

from penstock.persistent.runs import Note, Runs, decode_note, encode_note

__all__ = ["LocalRuns"]

_LOCK = ".lock"


class LocalRuns(Runs):
    """Runs by locked files."""

    def __init__(self, folder: str, explained: Callable[[], contextlib.AbstractContextManager[None]]) -> None:
        self._folder = folder
        self._explained = explained
        self._held: dict[str, int] = {}
        self._turn = threading.Lock()

    def _lock_file(self, run: str) -> str:
        return os.path.join(self._folder, f"{run}{_LOCK}")

    def _notes_of(self, run: str) -> str:
        return os.path.join(self._folder, run)

    def hold(self, run: str, *, owner: bool) -> None:
        if run in self._held:
            return
        with self._turn, self._explained():
            while run not in self._held:
                os.makedirs(self._folder, exist_ok=True)
                descriptor = os.open(self._lock_file(run), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_SH)
                    if not _is_there(descriptor, self._lock_file(run)):
                        continue  # somebody took us for dead, or tidied up after us, before we had the lock
                    os.makedirs(self._notes_of(run), exist_ok=True)
                    self._held[run], descriptor = descriptor, -1
                finally:
                    if descriptor >= 0:
                        os.close(descriptor)

    def let_go(self) -> None:
        with self._turn:
            while self._held:
                os.close(self._held.popitem()[1])

    def abandon(self) -> None:
        self._turn = threading.Lock()
        self.let_go()  # the lock is the parent's for as long as that has its own descriptor

    def note(self, run: str, notes: Sequence[Note]) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC  # what is there is the same, or nothing: it need not go first
        with self._explained():
            for one in notes:
                descriptor = os.open(os.path.join(self._notes_of(run), one.entry.token), flags, 0o666)
                try:
                    os.write(descriptor, encode_note(one))
                finally:
                    os.close(descriptor)

    def strike(self, run: str, tokens: Iterable[str]) -> None:
        for token in tokens:
            with self._explained(), contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self._notes_of(run), token))

    def notes(self, run: str) -> list[Note]:
        found = []
        for name in self._listed(self._notes_of(run)):
            path = os.path.join(self._notes_of(run), name)
            with self._explained(), contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
                found.append(decode_note(file.read()))
        return [one for one in found if one is not None]

    def known(self) -> list[str]:
        return sorted(name.removesuffix(_LOCK) for name in self._listed(self._folder) if name.endswith(_LOCK))

    @contextlib.contextmanager
    def ended(self, run: str) -> Iterator[bool]:
        descriptor = -1
        with self._explained(), contextlib.suppress(FileNotFoundError):
            descriptor = os.open(self._lock_file(run), os.O_RDONLY | os.O_CLOEXEC)  # it may be another user's
        if descriptor < 0:
            yield True
            return
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True
        finally:
            os.close(descriptor)

    def _listed(self, folder: str) -> list[str]:
        with self._explained(), contextlib.suppress(FileNotFoundError):
            return os.listdir(folder)
        return []

    def remove(self, run: str) -> None:
        shutil.rmtree(self._notes_of(run), ignore_errors=True)
        with self._explained(), contextlib.suppress(FileNotFoundError):
            os.unlink(self._lock_file(run))


def _is_there(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
