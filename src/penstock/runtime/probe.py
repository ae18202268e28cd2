"""What a directory's device can do: bandwidth of writes and reads against the number of concurrent streams.

Called by ``penstock probe``, which shows the outcome and has ``describe`` write it down. The work is done by processes
of ``probe_stream``, one per stream; here they are told when to go, and what comes of it is collected.

    check_directory ──▶ measure: rounds, each of 1, 2, 4, … streams that write, then read ──▶ Points ──▶ Measurement

Steps are repeated in rounds, and not each for itself: what changes with time, because others use the device, shows as a
difference between repeats, and not as one between numbers of streams. All is bounded: space by a quarter of what is
free, time by the clock, also where the device hangs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

from msgspec import Struct

from penstock.errors import ConfigError, PenstockError
from penstock.runtime.probe_busy import OtherUse
from penstock.runtime.probe_points import Measurement, Point
from penstock.runtime.probe_stream import BLOCK
from penstock.runtime.probe_streams import Passage, Streams, Unanswered
from penstock.units import format_duration, format_size

__all__ = ["LEAST_FREE", "Limits", "Measurement", "Point", "Progress", "check_directory", "free_bytes", "measure"]

#: bytes that must be free for a measurement to mean anything
LEAST_FREE = 100_000_000
_SHARE_OF_FREE = 4
#: rounds that the time is planned for, and how many there are if it is not used up then
_ROUNDS, _MOST_ROUNDS = 3, 5
_WARM_UP = 4 * BLOCK


class Limits(Struct, frozen=True):
    """How much a measurement may take."""

    #: bytes that each stream writes
    size: int = 64_000_000
    #: seconds in all
    time: float = 30.0
    #: the most concurrent streams
    streams: int = 32


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
    end = time.monotonic() + limits.time
    room = free_bytes(directory) // _SHARE_OF_FREE
    with Streams(directory, end) as streams:
        measuring = _Measuring(streams, limits, room, end, on_progress)
        measuring.run()
    points = tuple(step.point() for step in measuring.steps if step.writes and step.reads)
    if not points:
        late = f"{measuring.unfinished} was not done by then; " if measuring.unfinished else ""
        raise PenstockError(
            f"nothing could be measured in {format_duration(limits.time)}: {late}give it more --time, or look whether "
            f"the storage behind {directory} answers at all"
        )
    return Measurement(directory, points, measuring.stopped, measuring.unfinished, measuring.others.share)


def _stream_counts(most: int) -> list[int]:
    """1, 2, 4, … and ``most`` itself."""
    counts = [1]
    while counts[-1] < most:
        counts.append(min(2 * counts[-1], most))
    return counts


class _Step:
    """One number of streams, and what its repeats gave."""

    def __init__(self, count: int) -> None:
        self.count = count
        #: bytes for each stream; the same in all rounds, or they could not be compared
        self.size = 0
        self.writes: list[Passage] = []
        self.reads: list[Passage] = []
        #: of the last round
        self.seconds = 0.0

    def point(self) -> Point:
        whole = self.count * self.size
        pairs = list(zip(self.writes, self.reads, strict=False))  # a write without its read still counts
        return Point(
            self.count,
            tuple(passage.rate for passage in self.writes),
            tuple(passage.rate for passage in self.reads),
            max(passage.moved for passage in self.writes),
            any(written.moved < whole or read.moved < written.moved for written, read in pairs),
        )


class _Measuring:
    """The rounds of a measurement, for as long as the time lasts."""

    def __init__(
        self, streams: Streams, limits: Limits, room: int, end: float, on_progress: Callable[[Progress], None]
    ) -> None:
        self._streams = streams
        self._limits = limits
        self._room = room
        self._end = end
        self._on_progress = on_progress
        self.steps = [_Step(count) for count in _stream_counts(limits.streams)]
        #: repeats of steps that are over
        self._over = 0
        self.stopped = ""
        self.unfinished = "writing the first blocks"
        self.others = OtherUse()

    def run(self) -> None:
        """Measure until all is done, the time is up, or the file system refuses."""
        try:
            rate = self._streams.write(1, _WARM_UP, self._end).rate
            for number in range(_MOST_ROUNDS):
                for step in self._round(number):
                    self._repeat(step, rate)
                    rate = step.writes[-1].rate
        except Unanswered:
            if not self.steps[-1].writes:
                self.stopped = "the time is used up"
        except OSError as error:
            if not self.steps[0].reads:
                raise
            if not self.steps[-1].writes:
                self.stopped, self.unfinished = f"the file system refused: {error.strerror}", ""

    def _round(self, number: int) -> Iterator[_Step]:
        """The steps of a round, as far as the time lasts; every other begins with the most streams."""
        self.unfinished = ""
        tried = self.steps if not number else [step for step in self.steps if step.reads]
        for step in tried if number % 2 == 0 else reversed(tried):
            left = self._end - time.monotonic()
            if not number and step.count * BLOCK > self._room:
                self.stopped = "they would fill more than a quarter of the free space"
                return
            if not number and left <= 0:
                self.stopped = "the time is used up"
                return
            if number and step.seconds > left:
                continue  # it would not end in time; one with fewer streams may
            yield step

    def _repeat(self, step: _Step, rate: float) -> None:
        """Let the streams of a step write and read once."""
        left = self._end - time.monotonic()
        share = left / max(1, len(self.steps) * _ROUNDS - self._over)
        if not step.size:
            # As much as fits into a third of its share at the pace of the step before: what lies in the page cache
            # when the clock runs out must still be fsynced, and then be read.
            size = int(min(self._limits.size, self._room / step.count, rate * share / 3 / step.count))
            step.size = max(BLOCK, size // BLOCK * BLOCK)
        begin = time.monotonic()
        streams = "1 stream" if step.count == 1 else f"{step.count} streams"
        self.unfinished = f"writing with {streams}"
        self.others.begin()
        step.writes.append(self._streams.write(step.count, step.size, begin + share, self._told(step, "write")))
        self.others.end(step.writes[-1].cpu)
        self.unfinished = f"reading with {streams}"
        step.reads.append(self._streams.read(step.count, time.monotonic() + share, self._told(step, "read")))
        step.seconds = time.monotonic() - begin
        self._over += 1
        self.unfinished = ""

    def _told(self, step: _Step, phase: str) -> Callable[[int, float], None]:
        """What a passage calls while it runs, with the bytes moved by all streams and the seconds since its start."""
        whole, all_of_them = step.count * step.size, len(self.steps) * _MOST_ROUNDS

        def told(moved: int, seconds: float) -> None:
            part = (min(moved / whole, 1.0) + (phase == "read")) / 2
            gone = 1 - (self._end - time.monotonic()) / self._limits.time
            done = min(1.0, max((self._over + part) / all_of_them, gone))
            self._on_progress(Progress(step.count, phase, moved / seconds if seconds > 0 else 0.0, done))

        return told
