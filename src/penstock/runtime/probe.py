"""What a directory's device can do: bandwidth of writes and reads against the number of concurrent streams.

Called by ``penstock probe``, which shows the outcome and has ``describe`` write it down. The work is done by processes
of ``probe_stream``, one per stream; here they are started, told when to go, timed together and cleaned up after.

    check_directory ──▶ measure: for 1, 2, 4, … streams ──▶ write, read (up to three times) ──▶ Point ──▶ Measurement

All is bounded: space by a quarter of what is free, time by a budget that the steps share.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable

from msgspec import Struct

from penstock.errors import ConfigError
from penstock.runtime.probe_stream import BLOCK
from penstock.runtime.probe_streams import Passage, Streams
from penstock.units import format_size

__all__ = ["LEAST_FREE", "Limits", "Measurement", "Point", "Progress", "check_directory", "free_bytes", "measure"]

#: bytes that must be free for a measurement to mean anything
LEAST_FREE = 100_000_000
_SHARE_OF_FREE = 4
_ROUNDS = 3
_WARM_UP = 4 * BLOCK
#: of the best: enough of it to count as reached, and so little that it counts as lost
_REACHED, _LOST = 0.95, 0.90


class Limits(Struct, frozen=True):
    """How much a measurement may take."""

    #: bytes that each stream writes
    size: int = 64_000_000
    #: seconds in all
    time: float = 30.0
    #: the most concurrent streams
    streams: int = 32


class Point(Struct, frozen=True):
    """Aggregate bandwidth of a number of concurrent streams, in bytes per second."""

    streams: int
    write: float
    read: float
    #: how many times it was measured; the rates are medians
    rounds: int
    #: bytes written by all streams in one round
    size: int
    #: the clock ended a round before every stream had moved all of its bytes
    cut: bool


class Measurement(Struct, frozen=True):
    """All points, and what they say."""

    directory: str
    points: tuple[Point, ...]
    #: why larger numbers of streams were left out; empty if none were
    stopped: str = ""

    @property
    def best(self) -> Point:
        """The fastest at writing; of equals, the one with fewer streams."""
        return max(self.points, key=lambda point: (point.write, -point.streams))

    @property
    def knee(self) -> Point:
        """The fewest streams that write nearly as fast as the best."""
        return next(point for point in self.points if point.write >= _REACHED * self.best.write)

    @property
    def congestion(self) -> Point | None:
        """The fewest streams beyond the best with which writing is clearly slower again."""
        beyond = (point for point in self.points if point.streams > self.best.streams)
        return next((point for point in beyond if point.write < _LOST * self.best.write), None)


class Progress(Struct, frozen=True):
    """Where a measurement stands."""

    streams: int
    #: ``"write"`` or ``"read"``
    phase: str
    #: bytes per second in this phase so far
    rate: float
    #: of the whole measurement, from 0 to 1
    done: float


def check_directory(given: str) -> str:
    """The absolute path of a directory that can be measured; raises ConfigError for any other."""
    path = os.path.abspath(os.path.expanduser(given))
    if not os.path.exists(path):
        raise ConfigError(f"there is no directory {path}; make it first, or name another")
    if not os.path.isdir(path):
        raise ConfigError(f"{path} is not a directory; name the directory that is to be measured")
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        raise ConfigError(f"{path} is on a file system that is mounted read-only; only what can be written is measured")
    if not os.access(path, os.W_OK | os.X_OK):
        raise ConfigError(f"{path} is not writable for you; name a directory of your own on the same device")
    if (free := free_bytes(path)) < LEAST_FREE:
        raise ConfigError(f"{path} has only {format_size(free)} free; measuring needs {format_size(LEAST_FREE)}")
    return path


def free_bytes(path: str) -> int:
    """Bytes that an ordinary user may still write to the file system of ``path``."""
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


def measure(
    directory: str, limits: Limits, on_progress: Callable[[Progress], None] = lambda progress: None
) -> Measurement:
    """Measure ``directory``, which ``check_directory`` has found good. Leaves nothing behind, however it ends."""
    points: list[Point] = []
    stopped = ""
    counts = _stream_counts(limits.streams)
    room = free_bytes(directory) // _SHARE_OF_FREE
    end = time.monotonic() + limits.time
    try:
        with Streams(directory) as streams:
            rate = streams.write(1, _WARM_UP, end).rate
            for index, count in enumerate(counts):
                share = (end - time.monotonic()) / (len(counts) - index)
                if points and share <= 0:
                    stopped = "the time is used up"
                elif count * BLOCK > room:
                    stopped = "they would fill more than a quarter of the free space"
                if stopped:
                    break
                # As much as fits into half of the step's time at the pace of the step before: what lies in the page
                # cache when the clock runs out must still be fsynced, and no clock can cut that short.
                size = int(min(limits.size, room / count, rate * share / 2 / count))
                step = _Step(streams, count, max(BLOCK, size // BLOCK * BLOCK), share)
                points.append(step.run(_of_all(on_progress, index, len(counts))))
                rate = points[-1].write
    except OSError as error:
        if not points:
            raise
        stopped = f"the file system refused: {error.strerror}"
    return Measurement(directory, tuple(points), stopped)


def _stream_counts(most: int) -> list[int]:
    """1, 2, 4, … and ``most`` itself."""
    counts = [1]
    while counts[-1] < most:
        counts.append(min(2 * counts[-1], most))
    return counts


def _of_all(on_progress: Callable[[Progress], None], index: int, steps: int) -> Callable[[Progress], None]:
    """What step ``index`` calls with its own progress, to tell that of the whole."""
    return lambda own: on_progress(Progress(own.streams, own.phase, own.rate, (index + own.done) / steps))


class _Step:
    """One number of streams, measured up to three times while its share of the time lasts."""

    def __init__(self, streams: Streams, count: int, size: int, share: float) -> None:
        self._streams = streams
        self._count = count
        self._size = size
        self._share = share

    def run(self, on_progress: Callable[[Progress], None]) -> Point:
        begin = time.monotonic()
        writes: list[Passage] = []
        reads: list[Passage] = []
        while len(writes) < _ROUNDS:
            done = len(writes) / _ROUNDS
            deadline = time.monotonic() + self._share / 2
            writes.append(
                self._streams.write(self._count, self._size, deadline, self._told(on_progress, "write", done))
            )
            deadline = time.monotonic() + self._share / 2
            reads.append(self._streams.read(self._count, deadline, self._told(on_progress, "read", done)))
            # The next round takes about as long as this one: start it only if it ends in time.
            if (time.monotonic() - begin) * (len(writes) + 1) / len(writes) > self._share:
                break
        whole = self._count * self._size
        return Point(
            streams=self._count,
            write=statistics.median(passage.rate for passage in writes),
            read=statistics.median(passage.rate for passage in reads),
            rounds=len(writes),
            size=max(passage.moved for passage in writes),
            cut=any(w.moved < whole or r.moved < w.moved for w, r in zip(writes, reads, strict=True)),
        )

    def _told(self, on_progress: Callable[[Progress], None], phase: str, done: float) -> Callable[[int, float], None]:
        """What a passage calls while it runs, with the bytes moved by all streams and the seconds since its start."""
        before = done + (0.5 / _ROUNDS if phase == "read" else 0.0)
        whole = self._count * self._size

        def told(moved: int, seconds: float) -> None:
            part = min(moved / whole, 1.0) * 0.5 / _ROUNDS
            on_progress(Progress(self._count, phase, moved / seconds if seconds > 0 else 0.0, before + part))

        return told
