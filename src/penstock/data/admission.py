"""How much memory may go into turning objects to bytes and back, over all processes of a node at once.

Pickling needs the stream beside the object, and then the segment beside the stream; unpickling needs the object beside
the stream. A process about to do that with something large claims twice the stream's size out of a budget, and waits
while others have too much of it. The claims are locks on the bytes of one file, one byte per slot, held by the kernel
on behalf of an open file: what a process that dies held is free at that moment.

    gate │ slot 0 │ slot 1 │ … │ slot 63       the one who waits for slots holds the gate; the others wait for the gate
"""

from __future__ import annotations

import fcntl
import itertools
import os
import struct
import threading
import time
from collections.abc import Iterable
from typing import Any

__all__ = ["FREE", "Admission", "Claim", "Overdrawn", "estimate"]

#: streams up to this many bytes need no claim: they are not what exhausts a machine, and asking takes time
FREE = 8 << 20
#: the budget is given out in this many parts
SLOTS = 64
#: what is in memory for each byte of a stream
_TIMES = 2
_GATE = 0
#: seconds between two looks at the slots; only one process of a node looks, and jobs worth a claim take longer
_LOOK = 0.003
#: objects looked at for an estimate, and how many of one container
_VISITS = 4000
_SAMPLE = 10


class Overdrawn(BaseException):
    """What is being pickled is larger than its claim, which cannot grow now. No user's handler should catch it."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


class _OfThread(threading.local):
    #: claims that this thread has
    claims = 0


_mine = _OfThread()


class Admission:
    """The budget of a node, as one process of it sees it."""

    def __init__(self, path: str, budget: int) -> None:
        self._path = path
        self._slot = max(1, budget // SLOTS)

    def claim(self, size: int) -> Claim:
        """Wait until a stream of this size can be handled; one that is larger than the budget has it alone.

        A thread that has a claim already never waits: it might wait for somebody who waits for it.
        """
        return Claim(self._path, self._slot, size, wait=not _mine.claims)


class Claim:
    """A part of the budget, until it is released."""

    def __init__(self, path: str, slot: int, size: int, *, wait: bool) -> None:
        self._slot = slot
        self._held: set[int] = set()
        self._file = -1
        _mine.claims += 1
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return  # the store is gone, and who needs it will say so
        try:
            self._take(self._wanted(size), wait=wait)
        except BaseException:
            self.release()
            raise

    @property
    def covers(self) -> int:
        """The largest stream that the claim is enough for."""
        without_limit = self._file < 0 or len(self._held) == SLOTS
        return 1 << 62 if without_limit else len(self._held) * self._slot // _TIMES

    def grow(self, size: int) -> bool:
        """Cover a larger stream, if that is possible without waiting."""
        wanted = self._wanted(size)
        if len(self._held) < wanted:
            self._take(wanted, wait=False)
        return len(self._held) >= wanted

    def release(self) -> None:
        """Give everything back."""
        _mine.claims -= 1
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            self._held.clear()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *raised: object) -> None:
        self.release()

    def _wanted(self, size: int) -> int:
        return min(SLOTS, max(1, -(-_TIMES * size // self._slot)))

    def _take(self, wanted: int, *, wait: bool) -> None:
        if not wait:
            if _lock(self._file, _GATE, wait=False):  # or somebody else is waiting, and goes first
                self._take_free(wanted)
                _unlock(self._file, _GATE)
            return
        _lock(self._file, _GATE, wait=True)
        self._take_free(wanted)
        while len(self._held) < wanted:
            time.sleep(_LOOK)
            self._take_free(wanted)
        _unlock(self._file, _GATE)

    def _take_free(self, wanted: int) -> None:
        for slot in range(1, SLOTS + 1):
            if len(self._held) >= wanted:
                return
            if slot not in self._held and _lock(self._file, slot, wait=False):
                self._held.add(slot)


def _lock(file: int, byte: int, *, wait: bool) -> bool:
    """Lock one byte for this open file. The locks of ordinary POSIX would belong to the process, threads and all."""
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK, _range(fcntl.F_WRLCK, byte))
    except BlockingIOError:
        return False
    except PermissionError:  # the other way to say so
        return False
    return True


def _unlock(file: int, byte: int) -> None:
    fcntl.fcntl(file, fcntl.F_OFD_SETLK, _range(fcntl.F_UNLCK, byte))


def _range(kind: int, byte: int) -> bytes:
    return struct.pack("hhqqi4x", kind, os.SEEK_SET, byte, 1, 0)


def estimate(obj: Any) -> int:
    """About how many bytes an object takes in a stream: of each container, a few elements are looked at.

    Buffers that travel beside the stream do not count. It may be wrong by a lot; who relies on it must notice.
    """
    return int(_Estimate().of(obj))


class _Estimate:
    def __init__(self) -> None:
        self._visits = _VISITS
        #: by address, and kept, so that no other takes its address
        self._met: dict[int, Any] = {}

    def of(self, obj: Any) -> float:
        self._visits -= 1
        kind = type(obj)
        if kind in (bytes, bytearray, str):
            return float(len(obj) + 5)
        if kind in (int, float, bool, complex) or obj is None:
            return 9.0
        if id(obj) in self._met or self._visits < 0:
            return 2.0 if self._visits >= 0 else 50.0
        self._met[id(obj)] = obj
        count, sample = _sample(obj)
        return 50.0 + sum(map(self.of, sample)) * count / max(1, len(sample))


def _sample(obj: Any) -> tuple[int, list[Any]]:
    """How many parts an object has, and some of them."""
    parts: Iterable[Any]
    if isinstance(obj, dict | list | tuple | set | frozenset):
        parts, count = obj.items() if isinstance(obj, dict) else obj, len(obj)
    elif type(obj).__name__ == "ndarray" and obj.dtype.hasobject:
        parts, count = obj.flat, obj.size
    else:
        content = getattr(obj, "__dict__", None)
        inside = [*content.values()] if isinstance(content, dict) else []
        return len(inside), inside
    return count, [*itertools.islice(parts, 0, None, max(1, count // _SAMPLE))]
