"""The main program's side of the fork server: starts it, asks for workers, hears of their births and ends.

    node executor ── spawn, kill, close ──▶ ForkServer ══ socket ══ forkserver_main.Guardian ── fork ──▶ workers
                  ◀── notices() ──────────

Nothing here waits for the guardian: requests queue in the socket while it starts (guardian_process.py). Not
thread-safe: one thread, the node executor's, uses it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence

import msgspec

from penstock.errors import RuntimeStopped
from penstock.executors.disposable import remove_directories
from penstock.executors.forkserver_child import Surroundings
from penstock.executors.forkserver_main import (
    LARGEST_MESSAGE,
    Cleared,
    Close,
    Exited,
    Kill,
    Message,
    Request,
    ServerLost,
    Spawn,
    Spawned,
    Start,
    encode,
)
from penstock.executors.guardian_process import MARK, WORKER, guardian_process, import_path

__all__ = ["Exited", "ForkServer", "Notice", "ServerLost", "Spawned"]

Notice = Spawned | Exited | ServerLost

# A guardian that takes no request for this long is treated as lost.
SEND_PATIENCE = 5.0
CLOSE_PATIENCE = 2.0
SWEEPS = 10

_decode_message = msgspec.msgpack.Decoder(Message).decode


class ForkServer:
    """A warm process that forks workers, kills them on request, and cleans up when the main program ends.

    `cleanup` are the directories removed at the end; `preload` are modules imported once the first workers run, so
    that later workers have them; `environ` replaces the environment (libraries that read their number of threads on
    import read it there); `entry` is the function a worker runs, as `module:function`.
    """

    def __init__(
        self,
        cleanup: Sequence[str] = (),
        preload: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
        entry: str = WORKER,
    ) -> None:
        self._owner = os.getpid()
        self._cleanup = [os.fsencode(os.path.abspath(directory)) for directory in cleanup]
        self._live: dict[int, int] = {}
        self._lost = False
        self._closed = False
        self._farewell = ""
        self._process, self._connection, self._mark, _ = guardian_process(
            os.environ if environ is None else environ, entry
        )
        # Before anything else: even if we are killed now, it will know what to remove.
        with contextlib.suppress(ConnectionError):  # the end of file that notices() meets next tells the rest
            self._connection.send(encode(Start(self._owner, self._cleanup, list(preload))))

    @property
    def pid(self) -> int:
        return self._process.pid

    def fileno(self) -> int:
        """Readable when `notices` has something to tell, and for ever once the guardian is lost: close it then."""
        return self._connection.fileno()

    def spawn(
        self,
        worker_id: int,
        tasks_fd: int,
        results_fd: int,
        stdout_fd: int,
        stderr_fd: int,
        cpus: tuple[int, ...] = (),
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """Ask for a worker that owns copies of these descriptors; the caller closes its own ones afterwards."""
        if self._closed:
            raise RuntimeStopped(f"worker {worker_id} was asked of a fork server that is closed; start another one")
        self._live[worker_id] = 0
        path = [os.fsencode(entry) for entry in import_path()]
        surroundings = Surroundings(cpus, dict(environ or {}), path, _working_directory())
        self._send(Spawn(worker_id, surroundings), [tasks_fd, results_fd, stdout_fd, stderr_fd])

    def kill(self, worker_id: int) -> None:
        """SIGKILL the worker and all it started; `Exited` follows. Nothing happens if it is already gone."""
        if worker_id in self._live and not self._closed:
            self._send(Kill(worker_id))

    def notices(self) -> list[Notice]:
        """What happened since the last call, in order; empty if nothing did. Never waits."""
        heard: list[Notice] = []
        while not self._lost and not self._closed:
            try:
                message = self._receive()
            except BlockingIOError:
                return heard
            heard += self._report_loss() if message is None else self._note(message)
        # A worker asked for after the loss has ended before it began.
        return heard + self._end_live()

    def close(self, remove: bool = True) -> None:
        """End every process, remove the directories if `remove`, and return when it is done, within about 2 s.

        Only the removal of a very large directory may last longer: the guardian then completes it in the background.
        """
        if self._closed:
            return
        self._closed = True
        if os.getpid() != self._owner:
            # A fork of the main program holds a copy of us; the workers are not its own to end.
            self._connection.close()
            return
        if self._lost or not self._send(Close(remove)) or not self._await_end():
            self._end_by_force()
            if remove:
                remove_directories(self._cleanup)
        self._connection.close()
        self._live.clear()

    def _send(self, request: Request, descriptors: Sequence[int] = ()) -> bool:
        self._connection.settimeout(SEND_PATIENCE)
        try:
            socket.send_fds(self._connection, [encode(request)], descriptors)
        except TimeoutError:
            self._process.kill()
            return False
        except ConnectionError:
            # The end of file that notices() meets next tells the rest.
            return False
        finally:
            self._connection.setblocking(False)
        return True

    def _receive(self) -> Message | None:
        """Next message of the guardian, or None when it is gone."""
        while True:
            try:
                payload = self._connection.recv(LARGEST_MESSAGE)
            except ConnectionResetError:
                # Said once, when it ended with requests unread; what it sent before is still to come.
                continue
            return _decode_message(payload) if payload else None

    def _note(self, message: Message) -> list[Notice]:
        if isinstance(message, Spawned):
            self._live[message.worker_id] = message.pid
        elif isinstance(message, Exited):
            self._live.pop(message.worker_id, None)
        elif isinstance(message, ServerLost):
            self._farewell = message.reason
            return []
        else:
            return []
        return [message]

    def _report_loss(self) -> list[Notice]:
        self._lost = True
        self._end_by_force()
        status = self._process.returncode
        reason = self._farewell or f"the fork server (pid {self._process.pid}) ended with status {status}"
        return [*self._end_live(), ServerLost(reason)]

    def _end_live(self) -> list[Notice]:
        if not self._lost:
            return []
        ended: list[Notice] = [Exited(worker_id, pid, -signal.SIGKILL) for worker_id, pid in self._live.items()]
        self._live.clear()
        return ended

    def _await_end(self) -> bool:
        """Wait for the guardian's last word; False if it did not get rid of its processes in time."""
        deadline = time.monotonic() + CLOSE_PATIENCE
        cleared = False
        while (remaining := deadline - time.monotonic()) > 0:
            self._connection.settimeout(remaining)
            try:
                message = self._receive()
            except TimeoutError:
                break
            if message is None:
                self._process.wait()
                return cleared
            cleared = cleared or isinstance(message, Cleared)
        return cleared

    def _end_by_force(self) -> None:
        """The guardian is gone or stuck: kill it and whatever still carries its mark."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            # Normally it has just ended: its own status is worth more than that of our signal.
            self._process.wait(timeout=0.05)
        self._process.kill()
        self._process.wait()
        for _ in range(SWEEPS):
            if not _kill_marked(f"{MARK}={self._mark}".encode()):
                return


def _kill_marked(mark: bytes) -> int:
    """SIGKILL every process whose first environment holds `mark`; how many there were."""
    found = 0
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as environment:
            if mark in environment.read().split(b"\0"):
                os.kill(int(name), signal.SIGKILL)
                found += 1
    return found


def _working_directory() -> bytes:
    try:
        return os.getcwdb()
    except FileNotFoundError:
        # It was removed under us; the worker then stays where the guardian stands.
        return b"."
