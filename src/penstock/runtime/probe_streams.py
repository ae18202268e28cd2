"""The processes of a probe: started as they are needed, told to go at one moment, their answers added up.

They work in a private folder inside the measured directory. Leaving the ``with`` block ends them and removes the
folder, whatever happened; if this process is killed, they notice, and the last of them removes it. Nothing in here
touches the measured file system, which may hang: whoever waits for a stream waits until a given time at most.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any

from msgspec import Struct

from penstock.errors import PenstockError
from penstock.runtime import probe_stream

__all__ = ["Passage", "Streams", "Unanswered"]

#: seconds that streams may take to remove their files: when the time is up, and otherwise
_LITTLE_PATIENCE, _PATIENCE = 1.0, 10.0
_SIZE_OF_READ = 1 << 16


class Unanswered(Exception):
    """The time is up, and streams have not answered: the storage hangs, or is very slow."""


class Passage(Struct, frozen=True):
    """What several streams moved together, from the first start to the last end, fsync included."""

    moved: int
    seconds: float
    #: seconds of CPU time that they used
    cpu: float = 0.0

    @property
    def rate(self) -> float:
        """Bytes per second."""
        return self.moved / self.seconds if self.seconds > 0 else 0.0


class Streams:
    """A growing set of processes that write and read ``directory``, up to the time ``end`` at the latest."""

    def __init__(self, directory: str, end: float) -> None:
        self._directory = directory
        self._end = end
        name = f"{probe_stream.FOLDER}{os.getpid()}-{os.urandom(4).hex()}"
        self._folder = os.path.join(directory, name)
        self._streams: list[_Stream] = []
        self._patience = _PATIENCE

    def __enter__(self) -> Streams:
        _wait(_start("clean", self._directory, pipe=subprocess.DEVNULL), self._end - time.monotonic())
        return self  # the folder is made inside the block, where a signal cannot slip past the end of it

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for stream in self._streams:
            stream.dismiss()
        # Each removes its own file, and the last one the folder. One that the kernel holds cannot be ended; its file is
        # taken from it, or it removes that itself when it is let go. What else does not end is killed.
        self._wait_for_all()
        for stream in self._streams:
            if stream.process.poll() is None and not _is_held(stream.process.pid):
                stream.process.kill()
        if any(stream.process.poll() is None for stream in self._streams):
            self._patience = _LITTLE_PATIENCE
            self._wait_for_all()
        if self._streams:
            _wait(_start("clean", self._directory, self._folder, pipe=subprocess.DEVNULL), self._patience)

    def _wait_for_all(self) -> None:
        patience_ends = time.monotonic() + self._patience
        for stream in self._streams:
            _wait(stream.process, patience_ends - time.monotonic())

    def write(
        self, count: int, size: int, deadline: float, told: Callable[[int, float], None] = lambda moved, seconds: None
    ) -> Passage:
        """Let ``count`` streams write ``size`` bytes each, and fsync; at ``deadline`` they write no further."""
        self._grow(count)
        return self._run({"do": "write", "size": size}, count, deadline, told)

    def read(
        self, count: int, deadline: float, told: Callable[[int, float], None] = lambda moved, seconds: None
    ) -> Passage:
        """Let ``count`` streams read what they have written, from the device if its file system lets us."""
        return self._run({"do": "read"}, count, deadline, told)

    def _grow(self, count: int) -> None:
        first = len(self._streams)
        for number in range(first, count):
            self._streams.append(_Stream(os.path.join(self._folder, f"stream-{number}")))
        for _ in self._answers(self._streams[first:]):
            pass  # each says that it is there

    def _run(self, order: dict[str, Any], count: int, deadline: float, told: Callable[[int, float], None]) -> Passage:
        streams = self._streams[:count]
        for stream in streams:
            stream.tell(order)
        for _ in self._answers(streams):
            pass  # all have their files open: now they can start as one
        for stream in streams:
            stream.tell({"deadline": deadline})
        start = time.monotonic()
        moved = dict.fromkeys(streams, 0)
        reports = []
        for stream, answer in self._answers(streams):
            moved[stream] = answer["moved"]
            if "end" in answer:
                reports.append(answer)
            told(sum(moved.values()), time.monotonic() - start)
        seconds = max(report["end"] for report in reports) - min(report["begin"] for report in reports)
        return Passage(sum(moved.values()), seconds, sum(report["cpu"] for report in reports))

    def _answers(self, streams: Sequence[_Stream]) -> Iterator[tuple[_Stream, dict[str, Any]]]:
        """Answers as they come, until each stream has given the one that completes its order."""
        with selectors.DefaultSelector() as selector:
            for stream in streams:
                selector.register(stream.answers, selectors.EVENT_READ, stream)
            while selector.get_map():
                ready = selector.select(max(0.0, self._end - time.monotonic()))
                if not ready:
                    self._patience = _LITTLE_PATIENCE
                    raise Unanswered
                for key, _ in ready:
                    stream = key.data
                    for answer in stream.hear():
                        if "ready" in answer or "end" in answer:
                            selector.unregister(stream.answers)
                        yield stream, answer


class _Stream:
    """One process and the two pipes to it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.process = _start(path)
        assert self.process.stdin is not None and self.process.stdout is not None
        self._orders = self.process.stdin.fileno()
        self.answers = self.process.stdout.fileno()
        self._unread = b""

    def tell(self, order: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):  # the end of its answers will tell
            os.write(self._orders, json.dumps(order).encode() + b"\n")

    def hear(self) -> Iterator[dict[str, Any]]:
        """The answers that have come; waits if there are none."""
        chunk = os.read(self.answers, _SIZE_OF_READ)
        if not chunk:
            status = self.process.wait()
            raise PenstockError(f"a stream of the probe ended by itself, with status {status}, at {self.path}")
        *lines, self._unread = (self._unread + chunk).split(b"\n")
        for line in lines:
            answer = json.loads(line)
            if "error" in answer:
                raise OSError(answer["errno"], answer["error"], self.path)
            yield answer

    def dismiss(self) -> None:
        """Nobody listens any more: it notices, removes its file and ends."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()


def _start(*arguments: str, pipe: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
    """A process in a group of its own: Ctrl-C is for the probe, which then ends its streams."""
    command = [sys.executable, "-I", "-S", probe_stream.__file__, *arguments]
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, process_group=0)


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait for the end of a process, but not longer: it may hang with the file system."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(max(0.0, seconds))


def _is_held(process: int) -> bool:
    """Whether a process waits in the kernel for what cannot be interrupted: a disk, most likely."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[:1] == [b"D"]
    except OSError:
        return False
