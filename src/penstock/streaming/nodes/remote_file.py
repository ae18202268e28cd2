"""A file of another node as this node knows it: what is here, what is wanted, when it is complete. No I/O of its own
except on the descriptor of the local copy."""

from __future__ import annotations

import asyncio
import os

from penstock.streaming.written import Written

__all__ = ["Asked", "RemoteFile"]


class Asked:
    """A range that is being fetched: [start, end), where the end moves once it is known how much comes."""

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end

    def comes_to(self, end: int) -> None:
        """The answer has begun, and goes that far."""
        self.end = max(self.end, end)


class RemoteFile:
    """One file, from the news of its birth to its full copy."""

    def __init__(self, name: str, slot: int, maker: str, descriptor: int, mode: int) -> None:
        self.name = name
        self.slot = slot
        #: the node that made it
        self.maker = maker
        self.descriptor = descriptor
        self.mode = mode
        self.mtime_ns: int | None = None
        #: known once it is final
        self.size: int | None = None
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

    def put(self, offset: int, data: bytes) -> None:
        """Bytes have come."""
        view = memoryview(data)
        at = offset
        while view:
            done = os.pwrite(self.descriptor, view, at)
            view = view[done:]
            at += done
        self.have.add(offset, at)

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
        """What is worth fetching before it is asked for; None for nothing, now."""
        endless = 1 << 62
        if self.whole:
            found = self.gaps(0, endless)
        else:
            found = self.gaps(self.front, self.position + prefetch)
        return found[0] if found else None

    def close(self) -> None:
        """Let go of the local copy; what is on its way is called off."""
        self.ended = True
        self.stirred.set()
        for task in self.tasks:
            task.cancel()
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
