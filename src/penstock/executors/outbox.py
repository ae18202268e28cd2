"""What a worker says to its node executor, in order: how attempts ended, and outputs handed over before the end.

An output that comes after a pause leaves at once. In a flood of them a system call each would be most of their cost:
they are written together, at the latest a millisecond after the first, by a thread that starts with the first flood.
The body may then compute for as long as it likes; only code that never lets other threads run keeps them here.
"""

from __future__ import annotations

import socket
import threading
import time

from penstock.executors.wire import Clearing, Delivering, Done, Early, Error, Logged, Ready, frame

__all__ = ["Outbox"]

#: seconds between two writes in a flood
_TOGETHER = 0.001
#: bytes that never wait for company
_ENOUGH = 1 << 16


class Outbox:
    """The worker's end of its stream of messages."""

    def __init__(self, messages: socket.socket) -> None:
        self._messages = messages
        self._lock = threading.Lock()
        self._waiting: list[bytes] = []
        self._bytes = 0
        #: when something was last written
        self._written = 0.0
        self._flood: threading.Event | None = None

    def say(self, message: Ready | Done | Error | Delivering | Clearing) -> None:
        """Send a message now, after all that waits."""
        if not self._written:
            with self._lock:  # a thread of the task may log
                self._messages.sendall(frame(message))  # nothing was ever handed over early
            return
        with self._lock:
            self._waiting.append(frame(message))
            self._write()

    def hand_over(self, message: Early | Logged) -> None:
        """Send an early output or a log record, now or very soon."""
        data = frame(message)
        with self._lock:
            self._waiting.append(data)
            self._bytes += len(data)
            if time.monotonic() - self._written >= _TOGETHER or self._bytes >= _ENOUGH:
                self._write()
            elif len(self._waiting) == 1:
                self._write_soon()

    def flush(self) -> None:
        """Send what waits: its sender is about to wait for an answer."""
        with self._lock:
            self._write()

    def _write(self) -> None:
        if self._waiting:
            data = b"".join(self._waiting)
            self._waiting.clear()
            self._bytes = 0
            self._messages.sendall(data)
        self._written = time.monotonic()

    def _write_soon(self) -> None:
        if self._flood is None:
            self._flood = threading.Event()
            threading.Thread(target=self._write_later, args=(self._flood,), name="penstock-outbox", daemon=True).start()
        self._flood.set()

    def _write_later(self, flood: threading.Event) -> None:
        while True:
            flood.wait()
            time.sleep(_TOGETHER)
            with self._lock:
                flood.clear()
                try:
                    self._write()
                except OSError:
                    return  # the other side is gone, and this process will find out
