"""What a worker says to its node executor, or a rank to its runner, in order and each message as a whole.

An output that comes after a pause leaves at once. In a flood of them a system call each would be most of their cost:
they are written together, at the latest a millisecond after the first, by a thread that starts with the first flood.
The body may then compute for as long as it likes; only code that never lets other threads run keeps them here.

A finaliser or a signal's handler may log in the middle of any line of this, in the very thread that is at it. What it
says goes out behind what is being written.
"""

from __future__ import annotations

import socket
import threading
import time

from msgspec import Struct

from penstock.executors.wire import Early, Logged, frame

__all__ = ["Outbox"]

#: seconds between two writes in a flood
_TOGETHER = 0.001
#: bytes that never wait for company
_ENOUGH = 1 << 16


class Outbox:
    """This process's end of its stream of messages."""

    def __init__(self, messages: socket.socket) -> None:
        self._messages = messages
        self._lock = threading.RLock()
        self._waiting: list[bytes] = []
        self._writing = False
        self._bytes = 0
        #: when something was last written
        self._written = 0.0
        self._flood: threading.Event | None = None

    def say(self, message: Struct) -> None:
        """Send a message now, after all that waits."""
        data = frame(message)
        with self._lock:  # a thread of the task may log
            self._waiting.append(data)
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
        if self._writing:
            return
        self._writing = True
        try:
            while self._waiting:
                rest: list[bytes] = []
                data, self._waiting = self._waiting, rest
                self._bytes = 0
                self._messages.sendall(data[0] if len(data) == 1 else b"".join(data))
        finally:
            self._writing = False
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
