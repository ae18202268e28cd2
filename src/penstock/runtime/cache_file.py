"""What runs learn about functions and outlives them, as JSON in the user's cache directory: one file per kind.

Several runs may end at once: a save holds a lock on a side file while it reads, merges and replaces the file by
rename. It is only a cache: a run never fails because of it; it says so in the log and goes on without. A link to the
file stays a link. What is no regular file (a device, a pipe), or has the format of another version of Penstock, is
left alone.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Generic, Literal, Protocol, TypeVar

import msgspec
from msgspec import Struct

__all__ = ["CacheFile", "Record", "default_path", "matches"]

#: seconds to wait for another run's save
_PATIENCE = 5.0

_logger = logging.getLogger("penstock")


class _Entry(Protocol):
    """Something known of a function on a storage layer, or on none (an empty name)."""

    @property
    def function(self) -> str: ...

    @property
    def layer(self) -> str: ...


E = TypeVar("E", bound=_Entry)


class Record(Struct, Generic[E], frozen=True):
    """One entry of a file."""

    entry: E
    #: when it was learned
    learned: datetime


class _File(Struct, Generic[E], frozen=True):
    entries: list[Record[E]]
    #: of the format
    version: Literal[1] = 1


class _AnyFile(Struct, frozen=True):
    """What a file says in every format."""

    version: int


class _Corrupt(Exception):
    """The file is there and cannot be understood."""


def default_path(name: str) -> str:
    """``penstock/NAME`` in the user's cache directory."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(cache):  # the rule of that variable: a relative path counts as unset
        cache = os.path.join(os.path.expanduser("~"), ".cache")
    if not os.path.isabs(cache):  # a user without a home, as in some containers
        cache = os.path.join(tempfile.gettempdir(), f"penstock-cache-{os.getuid()}")
    return os.path.join(cache, "penstock", name)


def matches(entry: _Entry, function: str | None, layer: str | None) -> bool:
    """Whether an entry is of this function (its full name, or the end of it after one of ``/:.``) and this layer."""
    ends = () if function is None else tuple(mark + function for mark in "/:.")
    named = function is None or entry.function == function or entry.function.endswith(ends)
    return named and (layer is None or entry.layer == layer)


def _key(entry: _Entry) -> tuple[str, str]:
    return entry.function, entry.layer


class CacheFile(Generic[E]):
    """Entries of one kind; ``what`` is how messages call them."""

    def __init__(self, path: str, kind: type[E], what: str) -> None:
        self.path = path
        self._form: Any = _File[kind]  # type: ignore[valid-type]
        self._what = what

    @property
    def _place(self) -> str:
        """Where the file really is."""
        return os.path.realpath(self.path)

    def load(self) -> dict[tuple[str, str], E]:
        """What is known, by function and layer; empty if there is nothing or it cannot be read."""
        return {_key(record.entry): record.entry for record in self.records()}

    def records(self) -> list[Record[E]]:
        """All entries with the time when they were learned; none if there are none or they cannot be read."""
        try:
            return self._read()
        except OSError as error:
            _logger.warning("cannot read %s from %s: %s", self._what, self.path, error)
        except _Corrupt:
            # Whoever holds the lock may be replacing it with a good one: look again before setting it aside.
            try:
                with self._locked():
                    return self._read_or_set_aside()
            except OSError as error:
                _logger.warning("%s in %s is damaged and stays so: %s", self._what, self.path, error)
        return []

    def save(self, entries: Iterable[E], merge: Callable[[E, E], E] = lambda old, new: new) -> None:
        """Add entries; one whose function and layer are there already is merged with it. All others stay."""
        entries = list(entries)
        if not entries:
            return
        try:
            os.makedirs(os.path.dirname(self._place), mode=0o700, exist_ok=True)
            with self._locked():
                kept = {_key(record.entry): record for record in self._read_or_set_aside()}
                now = _now()
                for entry in entries:
                    old = kept.get(_key(entry))
                    merged = entry if old is None else merge(old.entry, entry)
                    # What was only used, not learned anew, keeps its date.
                    if old is None or old.entry != merged:
                        kept[_key(entry)] = Record(merged, now)
                self._write(kept.values())
        except OSError as error:
            _logger.warning("cannot keep %s in %s: %s", self._what, self.path, error)

    def clear(self, function: str | None = None, layer: str | None = None) -> int:
        """Forget the entries of a function, a layer, both, or all; return how many. Raises OSError if it cannot."""
        if not os.path.exists(self.path):
            return 0
        with self._locked():
            before = self._read_or_set_aside()
            kept = [record for record in before if not matches(record.entry, function, layer)]
            if len(kept) < len(before):
                self._write(kept)
        return len(before) - len(kept)

    def _read(self) -> list[Record[E]]:
        try:
            with open(self._place, "rb", opener=_open_at_once) as file:
                _refuse_unless_regular(os.fstat(file.fileno()))
                content = file.read()
        except FileNotFoundError:
            return []
        try:
            found: _File[E] = msgspec.json.decode(content, type=self._form)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            _refuse_another_version(content)
            raise _Corrupt(str(error)) from None
        return found.entries

    def _read_or_set_aside(self) -> list[Record[E]]:
        try:
            return self._read()
        except _Corrupt as error:
            aside = f"{self._place}.damaged"
            os.replace(self._place, aside)
            _logger.warning(
                "cannot understand %s in %s (%s): moved to %s, learning again", self._what, self.path, error, aside
            )
            return []

    def _write(self, kept: Iterable[Record[E]]) -> None:
        """Replace the file in one step, durably."""
        content = msgspec.json.encode(_File(sorted(kept, key=lambda record: _key(record.entry))))
        folder, name = os.path.split(self._place)
        prefix = f".{name.partition('.')[0]}-"
        descriptor, temporary = tempfile.mkstemp(prefix=prefix, dir=folder)
        try:
            with open(descriptor, "wb") as file:
                os.fchmod(descriptor, self._mode())
                file.write(msgspec.json.format(content, indent=1))
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self._place)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        directory = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _mode(self) -> int:
        """Who may read and write the file: whoever could before; a new one, as the user's settings say."""
        try:
            found = os.stat(self._place)
        except FileNotFoundError:
            found = os.stat(self._lock)
        return stat.S_IMODE(found.st_mode)

    @property
    def _lock(self) -> str:
        return f"{self._place}.lock"

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other saves out. The lock is not on the file itself, which is replaced under it."""
        with contextlib.suppress(FileNotFoundError):  # before there is a lock beside a device
            _refuse_unless_regular(os.lstat(self._place))
        lock = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o666)  # as the umask allows: a team may share it
        try:
            deadline = time.monotonic() + _PATIENCE
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    # A stopped process may hold it for ever, and a run must be able to end.
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.02)
            try:
                yield
            finally:
                # Told to the kernel, not left to close: a process forked meanwhile has the descriptor too.
                fcntl.flock(lock, fcntl.LOCK_UN)
        finally:
            os.close(lock)


def _open_at_once(path: str, flags: int) -> int:
    """A pipe that nobody writes to would be waited for."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def _refuse_unless_regular(found: os.stat_result) -> None:
    """What else has that name is not ours to read, to move or to replace: ``/dev/null``, for instance."""
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "is not a regular file")


def _refuse_another_version(content: bytes) -> None:
    """What another version keeps is of use to it: two that set each other's aside in turn would both keep nothing."""
    try:
        version = msgspec.json.decode(content, type=_AnyFile).version
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return  # damaged, then
    if version != 1:
        raise OSError(
            errno.EINVAL, f"has format {version}, of another version of Penstock; this one needs another file"
        )


def _now() -> datetime:
    return datetime.now(UTC)
