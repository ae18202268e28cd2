"""Worker processes as a node executor sees them: two sockets, a process, and what was sent.

A lane is served by one process per number of computing units that its tasks ask for, because numerical libraries
read how many threads they may use only once, when they are loaded. Nearly always that is one process.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections import deque

from penstock.executors.forkserver import ForkServer
from penstock.executors.output import OutputRelay
from penstock.executors.wire import Frames
from penstock.executors.worker import PACKET

__all__ = ["Seat", "Worker", "thread_limits"]

_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "RAYON_NUM_THREADS",
)

#: room for the packets sent ahead to a lane; the kernel grants what its own limit allows
_BUFFER = 1 << 20


def thread_limits(units: int) -> dict[str, str]:
    """Environment that holds numerical libraries to a task's computing units."""
    return dict.fromkeys(_THREAD_VARIABLES, str(units))


class Worker:
    """One worker process and the channels to it."""

    def __init__(self, number: int, seat: Seat, units: int) -> None:
        self.number = number
        self.seat = seat
        self.units = units
        self.pid = 0
        #: functions whose code it was sent
        self.defined: set[int] = set()
        #: packets that did not fit into the socket yet
        self.waiting: deque[bytes] = deque()
        self.frames = Frames()
        #: results it delivered in its life
        self.delivered = 0
        self.tasks, self._unread = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.results, self._results_far = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.tasks.setblocking(False)
        self.results.setblocking(False)
        self.tasks.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)

    def start(self, forkserver: ForkServer, relay: OutputRelay, cpus: tuple[int, ...], environ: dict[str, str]) -> None:
        """Have the process forked; it finds in its socket whatever is sent meanwhile."""
        stdout, stderr = relay.pipes(self.number)
        try:
            forkserver.spawn(
                self.number, self._unread.fileno(), self._results_far.fileno(), stdout, stderr, cpus, environ
            )
        finally:
            for descriptor in (stdout, stderr):
                with contextlib.suppress(OSError):
                    os.close(descriptor)
            self._results_far.close()

    def send(self, packet: bytes) -> bool:
        """Send a packet; False if it has to wait until the socket has room."""
        if not self.waiting:
            try:
                self.tasks.send(packet)
                return True
            except BlockingIOError:
                pass
            except ConnectionError:
                pass  # the process is gone: what waits is taken back when its end is reported
        self.waiting.append(packet)
        return False

    def send_waiting(self) -> bool:
        """Send what had to wait; True when nothing waits any more."""
        while self.waiting:
            try:
                self.tasks.send(self.waiting[0])
            except (BlockingIOError, ConnectionError):
                return False
            self.waiting.popleft()
        return True

    def take_back(self) -> list[bytes]:
        """All packets that the process has not read: the kernel gives each to it or to us, never to both."""
        packets = []
        with contextlib.suppress(BlockingIOError):
            while packet := self._unread.recv(PACKET, socket.MSG_DONTWAIT):
                packets.append(packet)
        packets += self.waiting
        self.waiting.clear()
        return packets

    def close(self) -> None:
        """Let the channels go."""
        for end in (self.tasks, self._unread, self.results):
            end.close()


class Seat:
    """The processes that serve one lane, by computing units."""

    def __init__(self, lane: int) -> None:
        self.lane = lane
        self.workers: dict[int, Worker] = {}
        #: the one that the lane's attempts were last sent to
        self.active: Worker | None = None
        #: processes lost in a row without a single result
        self.stillborn = 0
