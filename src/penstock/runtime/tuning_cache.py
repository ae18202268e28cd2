"""What auto constraints have learned, kept between runs in one file of the user's cache directory.

Runs load it when they start and save what they learned when they end; ``penstock tuning`` shows and clears it. Several
runs may end at once: a save holds a lock on a side file while it reads, merges and replaces the file by rename. It is
only a cache: a run never fails because of it, it says so in the log and learns again.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Literal

import msgspec
from msgspec import Struct

from penstock.tuning.registry import Learned

__all__ = ["Record", "clear", "default_path", "load", "matches", "records", "save"]

#: seconds to wait for another run's save
_PATIENCE = 5.0

_logger = logging.getLogger("penstock")


class Record(Struct, frozen=True):
    """One entry of the file."""

    entry: Learned
    #: when it was learned
    learned: datetime


class _File(Struct, frozen=True):
    entries: list[Record]
    #: of the format; another one is as good as unreadable
    version: Literal[1] = 1


class _Corrupt(Exception):
    """The file is there and cannot be understood."""


def default_path() -> str:
    """``penstock/tuning.json`` in the user's cache directory."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(cache):  # the rule of that variable: a relative path counts as unset
        cache = os.path.join(os.path.expanduser("~"), ".cache")
    if not os.path.isabs(cache):  # a user without a home, as in some containers
        cache = os.path.join(tempfile.gettempdir(), f"penstock-cache-{os.getuid()}")
    return os.path.join(cache, "penstock", "tuning.json")


def load(path: str | None = None) -> dict[tuple[str, str], Learned]:
    """What is known, by function and layer; empty if there is nothing or it cannot be read."""
    return {(record.entry.function, record.entry.layer): record.entry for record in records(path)}


def records(path: str | None = None) -> list[Record]:
    """All entries with the time when they were learned, by function and layer."""
    path = path or default_path()
    try:
        return _read(path)
    except OSError as error:
        _logger.warning("cannot read what was learned about storage from %s: %s", path, error)
    except _Corrupt:
        # Whoever holds the lock may be replacing it with a good one: look again before setting it aside.
        try:
            with _locked(path):
                return _read_or_set_aside(path)
        except OSError as error:
            _logger.warning("what was learned about storage in %s is damaged and stays so: %s", path, error)
    return []


def save(entries: Iterable[Learned], path: str | None = None) -> None:
    """Add entries, in the place of older ones of the same function and layer; all others in the file stay."""
    path = path or default_path()
    entries = list(entries)
    if not entries:
        return
    try:
        os.makedirs(os.path.dirname(path) or ".", mode=0o700, exist_ok=True)
        with _locked(path):
            kept = {_key(record.entry): record for record in _read_or_set_aside(path)}
            now = datetime.now(UTC)
            for entry in entries:
                # What was only used, not learned anew, keeps its date.
                if _key(entry) not in kept or kept[_key(entry)].entry != entry:
                    kept[_key(entry)] = Record(entry, now)
            _write(path, kept.values())
    except OSError as error:
        _logger.warning("cannot keep what was learned about storage in %s: %s", path, error)


def clear(function: str | None = None, layer: str | None = None, path: str | None = None) -> int:
    """Forget the entries of a function, a layer, both, or all; return how many. Raises OSError if it cannot."""
    path = path or default_path()
    if not os.path.exists(path):
        return 0
    with _locked(path):
        before = _read_or_set_aside(path)
        kept = [record for record in before if not matches(record.entry, function, layer)]
        if len(kept) < len(before):
            _write(path, kept)
    return len(before) - len(kept)


def matches(entry: Learned, function: str | None, layer: str | None) -> bool:
    """Whether an entry is of this function (its full name, or the end of it after one of ``/:.``) and this layer."""
    named = function is None or entry.function == function or entry.function.endswith(_ends(function))
    return named and (layer is None or entry.layer == layer)


def _ends(function: str) -> tuple[str, ...]:
    return tuple(mark + function for mark in "/:.")


def _key(entry: Learned) -> tuple[str, str]:
    return entry.function, entry.layer


def _read(path: str) -> list[Record]:
    try:
        with open(path, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        return []
    try:
        return msgspec.json.decode(content, type=_File).entries
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _Corrupt(str(error)) from None


def _read_or_set_aside(path: str) -> list[Record]:
    try:
        return _read(path)
    except _Corrupt as error:
        aside = f"{path}.damaged"
        os.replace(path, aside)
        _logger.warning(
            "cannot understand what was learned about storage in %s (%s): moved to %s, learning again",
            path,
            error,
            aside,
        )
        return []


def _write(path: str, kept: Iterable[Record]) -> None:
    """Replace the file in one step, durably."""
    content = msgspec.json.encode(_File(sorted(kept, key=lambda record: _key(record.entry))))
    folder = os.path.dirname(path) or "."
    descriptor, temporary = tempfile.mkstemp(prefix=".tuning-", dir=folder)
    try:
        with open(descriptor, "wb") as file:
            file.write(msgspec.json.format(content, indent=1))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@contextlib.contextmanager
def _locked(path: str) -> Iterator[None]:
    """Keep other saves out. The lock is not on the file itself, which is replaced under it."""
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
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
