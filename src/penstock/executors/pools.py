"""Worker processes as a node executor sees them: two sockets, a process, and what was sent.

A lane is served by one process per *outfit*: the number of computing units that its tasks ask for, because numerical
libraries read how many threads they may use only once, when they are loaded, and the GPUs that they hold, which CUDA
reads once as well. Nearly always that is one process.
"""

from __future__ import annotations

import contextlib
import os
import socket
from typing import TypeAlias

from penstock.executors.forkserver import ForkServer
from penstock.executors.output import OutputRelay
from penstock.executors.wire import Define, Delivering, Grant, Run, Stop, claimed, claims, frame, frames_up
from penstock.model.outside import Outside

__all__ = ["PLAIN", "VISIBLE", "Outfit", "Seat", "Worker"]

#: what a process of a lane was started for: computing units, and the node's GPUs by their place among them
Outfit: TypeAlias = tuple[int, tuple[int, ...]]

#: of most tasks
PLAIN: Outfit = (1, ())
#: names the GPUs that a process may see
VISIBLE = "CUDA_VISIBLE_DEVICES"

#: bytes of claims read back at once; a multiple of a claim's size
_CLAIMS = 1 << 16


class Worker:
    """One worker process and the channels to it."""

    #: if it keeps an MPI world, how many ranks that has; and whether it has said that it takes no more tasks
    ranks = 0
    spent = False

    def __init__(self, number: int, seat: Seat, outfit: Outfit) -> None:
        self.number = number
        self.seat = seat
        self.outfit = outfit
        self.pid = 0
        #: functions whose code it was sent
        self.defined: set[int] = set()
        #: the state in which it carries out what it is sent
        self.outside: Outside | None = None
        #: it has said that it takes tasks
        self.ready = False
        #: attempts sent or about to be, and not answered
        self.busy = 0
        #: the storage layer of the last of them
        self.layer = ""
        #: it has begun to deliver an attempt, and not said that it is over
        self.delivering: Delivering | None = None
        #: it was told to end
        self.retired = False
        self.frames = frames_up()
        self._frames_out: list[bytes] = []
        self._runs_out: list[Run] = []
        #: attempts sent so far
        self._sendings = 0
        #: bytes that did not fit into the socket yet
        self._unsent = b""
        self._claims, self._unclaimed = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.messages, self._far_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.messages.setblocking(False)

    def start(self, forkserver: ForkServer, relay: OutputRelay, cpus: tuple[int, ...], environ: dict[str, str]) -> None:
        """Have the process forked; it finds in its sockets whatever is sent meanwhile."""
        stdout, stderr = relay.pipes(self.number)
        try:
            forkserver.spawn(
                self.number, self._unclaimed.fileno(), self._far_end.fileno(), stdout, stderr, cpus, environ
            )
        finally:
            os.close(stdout)
            os.close(stderr)
            self._far_end.close()

    def define(self, message: Define) -> None:
        """Send a function's code, ahead of its first call."""
        self.defined.add(message.function)
        self._frames_out.append(frame(message))

    def stand(self, outside: Outside | None) -> None:
        """Have the state sent in which it is to carry out what it is sent from now on."""
        if outside is not None:
            self.outside = outside
            self._frames_out.append(frame(outside))

    def say(self, message: Grant | Stop) -> None:
        """Have a message sent with the next ``flush``."""
        self._frames_out.append(frame(message))

    def put(self, run: Run) -> int:
        """Have an attempt sent with the next ``flush``; says how many wait for it."""
        self._sendings += 1
        run.sending = self._sendings
        self._frames_out.append(frame(run))
        self._runs_out.append(run)
        return len(self._runs_out)

    def flush(self) -> bool:
        """Send what waits; False if the socket has no room for all of it."""
        if self._frames_out:
            self._unsent = b"".join([self._unsent, *self._frames_out])
            self._frames_out.clear()
        if self._unsent:
            try:
                self._unsent = self._unsent[self.messages.send(self._unsent) :]
            except BlockingIOError:
                pass
            except ConnectionError:
                self._unsent = b""  # the process is gone: its tasks are taken back when its end is reported
        if self._runs_out:
            self._claims.sendall(claims(self._runs_out))
            self._runs_out.clear()
        return not self._unsent

    def take_back(self) -> tuple[int, ...]:
        """The tasks that the process has not claimed: the kernel gives each to it or to us, never to both."""
        waiting, self._runs_out = self._runs_out, []
        data = b""
        with contextlib.suppress(BlockingIOError):
            while more := self._unclaimed.recv(_CLAIMS, socket.MSG_DONTWAIT):
                data += more
        return (*(task for task, _ in claimed(data)), *(run.task for run in waiting))

    def close(self) -> None:
        """Let the channels go."""
        for end in (self._claims, self._unclaimed, self.messages):
            end.close()


class Seat:
    """The processes that serve one lane, by outfit."""

    def __init__(self, lane: int, *, io: bool) -> None:
        self.lane = lane
        #: it is of the I/O pool
        self.io = io
        self.workers: dict[Outfit, Worker] = {}
        #: the one that the lane's attempts were last sent to
        self.active: Worker | None = None
        #: processes lost in a row before they took tasks
        self.stillborn = 0
