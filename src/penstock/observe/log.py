"""The event log: written once, read by progress, summary, reports and the simulator.

    control thread ──append──▶ list ──every 0.1 s──▶ feeder thread ──batch──▶ subscribers
                                                          └──bytes──▶ disk thread ──▶ events.jsonl

Appending is ``list.append`` and nothing else, so the control thread never encodes, locks or touches a disk. Feeder
and disk are two threads because a disk may hang: the views stay live, and what waits for the disk is bounded.
A log that cannot be written is reported once and given up; it never hurts the run.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import get_args

import msgspec

from penstock.alert_waits import until_ended
from penstock.observe.records import Dropped, Record
from penstock.own_threads import OwnThread

__all__ = ["EventLog", "Subscriber", "read_log"]

Subscriber = Callable[[list[Record]], None]

_INTERVAL = 0.1
#: bytes that may wait for a slow disk before records are dropped
_BACKLOG = 64 << 20
#: seconds that ``close`` grants a disk that hangs
_PATIENCE = 5.0

_logger = logging.getLogger("penstock")


class EventLog:
    """Collects records, writes them to ``path`` unless it is None, and hands them to subscribers in batches."""

    #: Keep a record. Look this attribute up at each use: it changes when the first subscriber comes.
    append: Callable[[Record], None]

    def __init__(self, path: str | None, *, interval: float = _INTERVAL, backlog: int = _BACKLOG) -> None:
        self.path = path
        self._interval = interval
        self._pending: list[Record] = []
        self._subscribers: list[Subscriber] = []
        self._stopping = threading.Event()
        #: whether anybody will see the records; if not, there is no need to make any
        self.active = False
        self._feeder: threading.Thread | None = None
        self._file = _open_file(path, backlog)
        self.append = _ignore
        if self._file is not None:
            self._start()

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call ``subscriber`` with each batch, from the feeder thread; one that raises is not called again."""
        self._subscribers.append(subscriber)
        if self._feeder is None and not self._stopping.is_set():
            self._start()

    def close(self) -> None:
        """Hand over and write what is left, and make it durable. Later records are ignored."""
        if self._stopping.is_set():
            return
        self.append = _ignore
        self.active = False
        self._stopping.set()
        if self._feeder is not None:
            until_ended(self._feeder)
        if self._file is not None:
            self._file.close()

    def _start(self) -> None:
        self.append = self._pending.append
        self.active = True
        self._feeder = OwnThread("log", self._feed)
        self._feeder.start()

    def _feed(self) -> None:
        encode = msgspec.json.Encoder().encode_lines
        stopping = False
        while not stopping:
            stopping = self._stopping.wait(self._interval)
            pending = self._pending
            # Two steps, each of them atomic: what is appended in between stays for the next round.
            batch = pending[:]
            del pending[: len(batch)]
            if batch:
                if self._file is not None:
                    self._file.write(_encode(encode, batch), batch)
                for subscriber in self._subscribers[:]:
                    self._hand_over(subscriber, batch)

    def _hand_over(self, subscriber: Subscriber, batch: list[Record]) -> None:
        try:
            subscriber(batch)
        except Exception:
            self._subscribers.remove(subscriber)
            _logger.exception("%r failed on the event log and gets no further events", subscriber)


def _ignore(record: Record) -> None:
    """Nobody listens."""


def _encode(encode: Callable[[list[Record]], bytes], batch: list[Record]) -> bytes:
    try:
        return encode(batch)
    except UnicodeEncodeError:
        # A path or message with bytes that are no text, as Python carries them in surrogates.
        return encode([_printable(record) for record in batch])


def _printable(record: Record) -> Record:
    def clean(value: object) -> object:
        if isinstance(value, str):
            return value.encode("utf-8", "backslashreplace").decode()
        return [clean(item) for item in value] if isinstance(value, list) else value

    fields = msgspec.structs.asdict(record)
    return msgspec.structs.replace(record, **{name: clean(value) for name, value in fields.items()})


def _open_file(path: str | None, backlog: int) -> _LogFile | None:
    if path is None:
        return None
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    except OSError as error:
        _logger.warning("the run goes on without an event log: cannot open %s: %s", path, error.strerror)
        return None
    return _LogFile(descriptor, path, backlog)


class _LogFile:
    """The disk thread and the bounded line of bytes in front of it."""

    def __init__(self, descriptor: int, path: str, backlog: int) -> None:
        self._descriptor = descriptor
        self._path = path
        self._backlog = backlog
        self._chunks: deque[bytes] = deque()
        #: bytes in ``_chunks`` and in the write under way
        self._waiting = 0
        self._dropped = 0
        self._closing = self._failed = False
        self._changed = threading.Condition()
        self._thread = OwnThread("log-disk", self._drain)
        self._thread.start()

    def write(self, chunk: bytes, batch: list[Record]) -> None:
        """Have ``chunk``, which is ``batch`` in JSON, written; drop it if too much is waiting."""
        with self._changed:
            if self._failed:
                return
            if self._waiting and self._waiting + len(chunk) > self._backlog:
                self._dropped += len(batch)
                return
            if self._dropped:
                chunk = msgspec.json.encode(Dropped(batch[0].t, self._dropped)) + b"\n" + chunk
                self._dropped = 0
            self._chunks.append(chunk)
            self._waiting += len(chunk)
            self._changed.notify()

    def close(self) -> None:
        """Wait until all is on the disk, but not for ever."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(_PATIENCE)
        if self._thread.is_alive():
            _logger.warning("the disk of %s does not answer: the end of the event log is missing", self._path)

    def _drain(self) -> None:
        try:
            while (chunk := self._next()) is not None:
                _write_all(self._descriptor, chunk)
                with self._changed:
                    self._waiting -= len(chunk)
            os.fsync(self._descriptor)
        except OSError as error:
            _logger.warning("the run goes on without its event log: cannot write %s: %s", self._path, error.strerror)
            with self._changed:
                self._failed = True
                self._chunks.clear()
        finally:
            os.close(self._descriptor)

    def _next(self) -> bytes | None:
        with self._changed:
            while not self._chunks:
                if self._closing:
                    return None
                self._changed.wait()
            chunk = b"".join(self._chunks)
            self._chunks.clear()
            return chunk


def _write_all(descriptor: int, chunk: bytes) -> None:
    rest = memoryview(chunk)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


_KNOWN = frozenset(kind.__struct_config__.tag for kind in get_args(Record))


class _Kind(msgspec.Struct):
    event: str


def read_log(path: str) -> Iterator[Record]:
    """The records of a log, also of one that is still being written or whose writer was killed.

    Events that this version does not know are skipped. A line in the middle that is no record is a ValueError.
    """
    decode = msgspec.json.Decoder(Record).decode
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                if not line.endswith(b"\n"):
                    return  # cut off while it was written
                if not _is_unknown(line):
                    raise ValueError(f"{path}, line {number}: not a record of an event log: {error}") from None


def _is_unknown(line: bytes) -> bool:
    try:
        return msgspec.json.decode(line, type=_Kind).event not in _KNOWN
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
