"""A file of another node as this node knows it: what is here, what is wanted, when it is complete. No I/O of its own
except on the descriptor of the local copy."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal

from penstock.streaming.written import Written

__all__ = ["Asked", "RemoteFile"]

_PIECE = 1 << 20


class Asked:
    """A range that is being fetched: [start, end), where the end moves once it is known how much comes."""

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end
        #: the answer has begun, so the end is known, and the file goes on after it
        self.goes_on = False

    def comes_to(self, end: int, *, goes_on: bool) -> None:
        """The answer has begun, and goes that far."""
        self.end = max(self.end, end)
        self.goes_on = goes_on


class RemoteFile:
    """One file, from the news of its birth to its full copy."""

    def __init__(self, name: str, slot: int, maker: str, descriptor: int, mode: int) -> None:
        self.name = name
        self.slot = slot
        #: the node that made it
        self.maker = maker
        #: of the local copy; and of copies that stood in its place and that somebody has open
        self.descriptors = [descriptor]
        self.mode = mode
        self.mtime_ns: int | None = None
        #: its name has stood for another file before, of which other nodes than the maker may still have copies
        self.only_from_maker = False
        #: how often its name was changed: what was asked for by an earlier one may be of another file
        self.moves = 0
        #: the node that has changed its name last
        self.mover = ""
        #: known once it is final
        self.size: int | None = None
        #: size and time of change when it was final by an earlier name
        self.was_final: tuple[int, int | None] | None = None
        self.have = Written()
        #: all of it is wanted
        self.whole = False
        #: where the last reader asked, and how far readers have come
        self.front = 0
        self.position = 0
        #: ranges that are being fetched
        self.asked: set[Asked] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.pumping = False
        #: it will be fetched without being asked for, when its turn comes
        self.queued = False
        self.stirred = asyncio.Event()
        #: nothing more comes: it is all here, or it is lost or gone
        self.ended = False
        #: since when the node that made it knows no such file, by the clock of the event loop
        self.missing_since: float | None = None

    def put(self, offset: int, data: memoryview) -> None:
        """Bytes have come."""
        for descriptor in self.descriptors:
            _write(descriptor, offset, data)
        self.have.add(offset, offset + len(data))

    def put_for_now(self, offset: int, data: memoryview) -> None:
        """Bytes have come that may yet change: for its own step, and nobody else."""
        for descriptor in self.descriptors:
            _write(descriptor, offset, data)

    def ends_for_now(self, size: int) -> None:
        """The file is not longer than that where it is, for now."""
        size = max(size, *(end for _, end in self.have.ranges), 0)
        for descriptor in self.descriptors:
            if os.fstat(descriptor).st_size > size:
                os.ftruncate(descriptor, size)

    @property
    def complete(self) -> bool:
        """Whether all bytes of a final file are here."""
        return self.size is not None and self.have.covers(0, self.size)

    def gaps(self, start: int, end: int) -> list[tuple[int, int]]:
        """What is missing of a range."""
        if self.size is not None:
            end = min(end, self.size)
        found = []
        for low, high in self.have.ranges:
            if high <= start:
                continue
            if low >= end:
                break
            if low > start:
                found.append((start, low))
            start = max(start, high)
        if start < end:
            found.append((start, end))
        return found

    def ask(self, start: int, end: int) -> Asked:
        """Somebody is about to fetch this."""
        asked = Asked(start, end)
        self.asked.add(asked)
        return asked

    def is_coming(self, offset: int) -> bool:
        """Whether somebody has asked for what begins there."""
        return any(one.start <= offset < one.end for one in self.asked)

    def gap_ahead(self, prefetch: int) -> tuple[int, int] | None:
        """What is worth fetching before it is asked for; None for nothing, now.

        What is on its way is not; and what lies after it only once it is known how far that goes.
        """
        endless = 1 << 62
        found = self.gaps(0, endless) if self.whole else self.gaps(self.front, self.position + prefetch)
        for start, end in found:
            while coming := [one for one in self.asked if one.start <= start < one.end]:
                if not all(one.goes_on for one in coming):
                    return None
                start = max(one.end for one in coming)
            if start < end:
                return start, end
        return None

    # --- by another name --------------------------------------------------------------------------------------------

    def not_final_yet(self) -> None:
        """What was said of it by an earlier name does not hold by this one."""
        self.only_from_maker = True
        if self.size is not None:
            self.was_final = self.size, self.mtime_ns
        self.size = None
        self.missing_since = None

    def reopen(self, path: str) -> None:
        """Its copy was complete, but may not be what the file is by its new name."""
        os.chmod(path, self.mode & 0o777 | 0o600)
        self.descriptors = [os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)]
        self.ended = self.pumping = self.queued = False
        self.stirred.clear()

    def take_place_of(self, other: RemoteFile) -> None:
        """Whoever has opened the other, which never came, gets this one."""
        for number, descriptor in enumerate(other.descriptors):
            # The first had the name until now: somebody may be just opening it.
            if self.ended or (number and not _is_open_elsewhere(descriptor)):
                os.close(descriptor)
                continue
            os.ftruncate(descriptor, 0)
            for start, end in self.have.ranges:
                while start < end:
                    data = os.pread(self.descriptors[0], min(end - start, _PIECE), start)
                    _write(descriptor, start, memoryview(data))
                    start += len(data)
            self.descriptors.append(descriptor)
        other.descriptors = []

    def start_over(self) -> None:
        """What is here is of an earlier file."""
        self.call_off()
        self.have = Written()
        self.was_final = None
        for descriptor in self.descriptors:
            os.ftruncate(descriptor, 0)

    def call_off(self) -> None:
        """Whatever is on its way."""
        for task in self.tasks:
            task.cancel()
        self.asked.clear()
        self.pumping = self.queued = False

    def close(self) -> None:
        """Let go of the local copy; what is on its way is called off."""
        self.ended = True
        self.stirred.set()
        self.call_off()
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors = []


def _write(descriptor: int, at: int, data: memoryview) -> None:
    while data:
        done = os.pwrite(descriptor, data, at)
        data = data[done:]
        at += done


def _is_open_elsewhere(descriptor: int) -> bool:
    """Whether a program may have the file open: a lease to write is given to the only one who has."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)  # instead of a deadly one, if it is opened in between
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return True
    return False
