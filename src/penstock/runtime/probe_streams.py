"""The processes of a probe: started as they are needed, told to go at one moment, their answers added up.

They work in a private folder inside the measured directory. Leaving the ``with`` block ends them and removes the
folder, whatever happened; if this process is killed, they notice, and the last of them removes it.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any

from msgspec import Struct

from penstock.errors import PenstockError
from penstock.runtime import probe_stream

__all__ = ["Passage", "Streams"]

#: seconds for which a stream that was killed may hang in the kernel before its files are removed all the same
_PATIENCE = 10.0
_SIZE_OF_READ = 1 << 16


class Passage(Struct, frozen=True):
    """What several streams moved together, from the first start to the last end, fsync included."""

    moved: int
    seconds: float

    @property
    def rate(self) -> float:
        """Bytes per second."""
        return self.moved / self.seconds if self.seconds > 0 else 0.0


class Streams:
    """A growing set of processes that write and read ``directory``."""

    def __init__(self, directory: str) -> None:
        self._folder = os.path.join(directory, f".penstock-probe-{os.getpid()}-{os.urandom(4).hex()}")
        self._streams: list[_Stream] = []

    def __enter__(self) -> Streams:
        return self  # the folder is made inside the block, where a signal cannot slip past the end of it

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for stream in self._streams:
            stream.process.kill()
        patience_ends = time.monotonic() + _PATIENCE
        for stream in self._streams:
            stream.close(max(0.0, patience_ends - time.monotonic()))
        shutil.rmtree(self._folder, ignore_errors=True)

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
        if not first:
            os.mkdir(self._folder, 0o700)
        for number in range(first, count):
            self._streams.append(_Stream(os.path.join(self._folder, f"stream-{number}")))
        for _ in _answers(self._streams[first:]):
            pass  # each says that it is there

    def _run(self, order: dict[str, Any], count: int, deadline: float, told: Callable[[int, float], None]) -> Passage:
        streams = self._streams[:count]
        for stream in streams:
            stream.tell(order)
        for _ in _answers(streams):
            pass  # all have their files open: now they can start as one
        for stream in streams:
            stream.tell({"deadline": deadline})
        start = time.monotonic()
        moved = dict.fromkeys(streams, 0)
        reports = []
        for stream, answer in _answers(streams):
            moved[stream] = answer["moved"]
            if "end" in answer:
                reports.append(answer)
            told(sum(moved.values()), time.monotonic() - start)
        seconds = max(report["end"] for report in reports) - min(report["begin"] for report in reports)
        return Passage(sum(moved.values()), seconds)


class _Stream:
    """One process and the two pipes to it."""

    def __init__(self, path: str) -> None:
        self.path = path
        # A process group of its own: Ctrl-C is for the probe, which then ends its streams.
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", probe_stream.__file__, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,
        )
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

    def close(self, patience: float) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(patience)


def _answers(streams: Sequence[_Stream]) -> Iterator[tuple[_Stream, dict[str, Any]]]:
    """Answers as they come, until each stream has given the one that completes its order."""
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            selector.register(stream.answers, selectors.EVENT_READ, stream)
        while selector.get_map():
            for key, _ in selector.select():
                stream = key.data
                for answer in stream.hear():
                    if "ready" in answer or "end" in answer:
                        selector.unregister(stream.answers)
                    yield stream, answer
