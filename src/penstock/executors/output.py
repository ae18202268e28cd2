"""Workers' output on its way to the user: pipes in, whole lines out, the last lines kept for error messages.

    worker stdout, stderr ──pipes──▶ relay thread ──▶ sys.stdout, sys.stderr of the main program

The relay reads no faster than it can write, so a flood fills the pipes and holds the workers, not our memory.
"""

from __future__ import annotations

import array
import codecs
import contextlib
import fcntl
import os
import select
import sys
import termios
import threading
import time
from collections import deque
from typing import Literal

from penstock.alert_waits import until_ended
from penstock.executors.task_streams import END_OF_TASK
from penstock.own_threads import OwnThread

CHUNK = 1 << 16
TAIL_LINES = 20
# For error messages a line may be cut; its end says more than its beginning.
TAIL_LINE_LENGTH = 2000
# An unfinished line (a prompt, a progress bar) is shown after this long, or when it has grown past a chunk.
PARTIAL_LINE_SECONDS = 0.2
ENDED_WORKERS_REMEMBERED = 64
CLOSE_PATIENCE = 1.0

Target = Literal["stdout", "stderr"]


class _Tail:
    """Last lines of one worker, of both its streams in order of arrival."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=TAIL_LINES)
        self.open_streams: list[_Stream] = []

    def text(self) -> str:
        unfinished = [stream.unfinished for stream in self.open_streams if stream.unfinished]
        return "\n".join([*self.lines, *unfinished][-TAIL_LINES:])


class _Stream:
    """One pipe: what was read from it and not yet relayed."""

    def __init__(self, descriptor: int, target: Target, tail: _Tail) -> None:
        self.descriptor = descriptor
        self.target = target
        self.tail = tail
        self.unfinished = ""
        self.partial_since = 0.0
        self._outgoing: list[str] = []
        self._partial = ""
        self._held = b""  # may be the beginning of a mark
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def read(self) -> int | None:
        """Take in at most one chunk; how many bytes came, 0 at the end, None if nothing is there now."""
        try:
            chunk = os.read(self.descriptor, CHUNK)
        except BlockingIOError:
            return None
        if self._held or END_OF_TASK[:1] in chunk:
            self._feed_marked(chunk)
        else:
            self._feed(self._decode(chunk, final=not chunk))
        return len(chunk)

    def _feed_marked(self, chunk: bytes) -> None:
        *tasks, rest = (self._held + chunk).split(END_OF_TASK)
        for text in tasks:
            self._feed(self._decode(text))
            if self.unfinished:
                self._feed("\n")
        begun = range(len(END_OF_TASK) - 1 if chunk else 0, 0, -1)
        held = next((length for length in begun if rest.endswith(END_OF_TASK[:length])), 0)
        self._held = rest[len(rest) - held :]
        self._feed(self._decode(rest[: len(rest) - held], final=not chunk))

    def _feed(self, text: str) -> None:
        whole, newline, rest = text.rpartition("\n")
        if newline:
            lines = (self.unfinished + whole).split("\n")[-TAIL_LINES:]
            self.tail.lines.extend(line[-TAIL_LINE_LENGTH:] for line in lines)
            self._outgoing.append(self._partial + whole + newline)
            self._partial, self.unfinished = "", ""
        if rest and not self._partial:
            self.partial_since = time.monotonic()
        self._partial += rest
        self.unfinished = (self.unfinished + rest)[-TAIL_LINE_LENGTH:]
        if len(self._partial) > CHUNK:
            self.release_partial()

    def release_partial(self) -> None:
        if self._partial:
            self._outgoing.append(self._partial)
            self._partial = ""

    def end(self) -> None:
        """The pipe is closed: an unfinished line will never be finished."""
        self.release_partial()
        if self.unfinished:
            self.tail.lines.append(self.unfinished)
            self.unfinished = ""
        os.close(self.descriptor)

    @property
    def has_partial(self) -> bool:
        return bool(self._partial)

    def take_outgoing(self) -> str:
        text = "".join(self._outgoing)
        self._outgoing.clear()
        return text


class OutputRelay:
    """Shows what workers print as if the main program had printed it, wherever its output goes at that moment."""

    def __init__(self) -> None:
        # Guards all below; held for reads that cannot wait, never while writing to the user's stream.
        self._lock = threading.Lock()
        self._streams: dict[int, _Stream] = {}
        self._tails: dict[int, _Tail] = {}
        self._dirty: dict[_Stream, None] = {}
        self._flushes: list[threading.Event] = []
        self._stopping = False
        # The stream whose unfinished line is the last thing shown on a target.
        self._unfinished_on: dict[Target, _Stream] = {}
        # Streams whose unfinished line was ended because another one had something to show.
        self._cut_off: set[_Stream] = set()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll = select.epoll()
        self._epoll.register(self._wake, select.EPOLLIN)
        self._thread = OwnThread("output", self._run)
        self._thread.start()

    def pipes(self, worker_id: int) -> tuple[int, int]:
        """Write ends for a worker's stdout and stderr; the caller closes them once the worker has its copies."""
        stdout_read, stdout_write = os.pipe()
        stderr_read, stderr_write = os.pipe()
        tail = _Tail()
        tail.open_streams = [_Stream(stdout_read, "stdout", tail), _Stream(stderr_read, "stderr", tail)]
        with self._lock:
            self._forget_ended()
            self._tails[worker_id] = tail
            for stream in tail.open_streams:
                os.set_blocking(stream.descriptor, False)
                self._streams[stream.descriptor] = stream
                self._epoll.register(stream.descriptor, select.EPOLLIN)
        return stdout_write, stderr_write

    def tail(self, worker_id: int) -> str:
        """The worker's last lines, what is still in its pipes included; shown to the user a moment later."""
        with self._lock:
            tail = self._tails.get(worker_id)
            if tail is None:
                return ""
            for stream in tail.open_streams:
                self._read_waiting(stream)
            if not self._stopping:
                self._wake_thread()
            return tail.text()

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until all that workers have written so far is shown, unfinished lines too; False if it took too long."""
        shown = threading.Event()
        with self._lock:
            if self._stopping:
                return True
            self._flushes.append(shown)
            self._wake_thread()
        return shown.wait(timeout)

    def close(self) -> None:
        """Show what is left and stop; a user's stream that does not take it within a second loses it."""
        all_shown = self.flush(CLOSE_PATIENCE)
        with self._lock:
            if self._stopping:
                return
            self._stopping = True
            self._wake_thread()
        if all_shown:
            until_ended(self._thread)

    def _run(self) -> None:
        while True:
            ready = self._epoll.poll(self._seconds_to_next_partial())
            with self._lock:
                if self._stopping:
                    break
                flushes, self._flushes = self._flushes, []
                self._read_ready([descriptor for descriptor, _ in ready], everything=bool(flushes))
                outgoing = self._collect_outgoing(partial_lines_too=bool(flushes))
            for stream, text in outgoing:
                self._show(stream, text)
            for shown in flushes:
                shown.set()
        self._release()

    def _read_ready(self, ready: list[int], everything: bool) -> None:
        if self._wake in ready:
            os.eventfd_read(self._wake)
        if everything:
            for stream in self._streams.values():
                self._read_waiting(stream)
        for descriptor in ready:
            stream_or_none = self._streams.get(descriptor)
            if stream_or_none is None:
                continue
            self._dirty[stream_or_none] = None
            if stream_or_none.read() == 0:
                self._drop(stream_or_none)

    def _read_waiting(self, stream: _Stream) -> None:
        """Read what is in the pipe now, and no more: a worker that never stops writing must not hold us."""
        remaining = _bytes_waiting(stream.descriptor)
        while remaining > 0 and (count := stream.read()):
            remaining -= count
        self._dirty[stream] = None

    def _drop(self, stream: _Stream) -> None:
        self._epoll.unregister(stream.descriptor)
        del self._streams[stream.descriptor]
        stream.tail.open_streams.remove(stream)
        self._cut_off.discard(stream)
        stream.end()

    def _collect_outgoing(self, partial_lines_too: bool) -> list[tuple[_Stream, str]]:
        due = time.monotonic() - PARTIAL_LINE_SECONDS
        outgoing = []
        for stream in list(self._dirty):
            if partial_lines_too or stream.partial_since <= due:
                stream.release_partial()
            text = stream.take_outgoing()
            if text:
                outgoing.append((stream, text))
            if not stream.has_partial:
                del self._dirty[stream]
        return outgoing

    def _seconds_to_next_partial(self) -> float | None:
        with self._lock:
            oldest = min((stream.partial_since for stream in self._dirty if stream.has_partial), default=None)
        return None if oldest is None else max(0.0, oldest + PARTIAL_LINE_SECONDS - time.monotonic())

    def _show(self, stream: _Stream, text: str) -> None:
        if stream in self._cut_off:
            self._cut_off.remove(stream)
            text = text.removeprefix("\n")  # the end of its line was shown
            if not text:
                return
        unfinished = self._unfinished_on.pop(stream.target, None)
        if unfinished is not None and unfinished is not stream:
            self._cut_off.add(unfinished)
            text = "\n" + text
        if not text.endswith("\n"):
            self._unfinished_on[stream.target] = stream
        _write(stream.target, text)

    def _forget_ended(self) -> None:
        ended = [worker_id for worker_id, tail in self._tails.items() if not tail.open_streams]
        for worker_id in ended[:-ENDED_WORKERS_REMEMBERED]:
            del self._tails[worker_id]

    def _wake_thread(self) -> None:
        os.eventfd_write(self._wake, 1)

    def _release(self) -> None:
        with self._lock:
            for stream in list(self._streams.values()):
                self._drop(stream)
            self._epoll.close()
            os.close(self._wake)


def _bytes_waiting(descriptor: int) -> int:
    count = array.array("i", [0])
    fcntl.ioctl(descriptor, termios.FIONREAD, count)
    return count[0]


def _write(target: Target, text: str) -> None:
    # Looked up each time: notebooks and test runners replace it. It is the user's, so it may fail in any way,
    # and none of them may end the relay: workers would hang on full pipes.
    stream = getattr(sys, target)
    with contextlib.suppress(Exception):
        try:
            stream.write(text)
        except UnicodeEncodeError:
            stream.write(text.encode(stream.encoding, "backslashreplace").decode(stream.encoding))
        stream.flush()
