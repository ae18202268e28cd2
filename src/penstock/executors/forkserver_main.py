"""The guardian process: forks warm workers, and outlives the main program just long enough to leave nothing behind.

Started by `forkserver.ForkServer`, it hears requests on one socket (descriptors travel beside them) and answers with
notices. It is the reaper of every process a task starts: workers adopt what their tasks abandon, and the guardian
adopts what a dead worker leaves and kills it. When the main program goes away, in whatever manner, the guardian kills
all workers and their descendants, removes the run's directories and ends.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import os
import select
import signal
import socket
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from typing import NoReturn

import msgspec

from penstock.data.limits import behind
from penstock.executors.disposable import places_of, remove_directories, sweep
from penstock.executors.forkserver_child import Serve, Surroundings, adopt_orphans, live_as_worker
from penstock.executors.mpi_files import family, remove_files, shared_files_of

LARGEST_MESSAGE = 1 << 18
DESCRIPTORS_PER_SPAWN = 4
# Preloading and sweeping must not compete with the first tasks for a CPU: they wait until requests pause this long.
CHORES_AFTER_MS = 250
# Seconds after which a guardian that was told nothing yet looks whether the main program still lives.
ALONE_AFTER = 1.0
# A process in uninterruptible sleep survives SIGKILL for a while; the directories are removed without waiting for it.
KILL_PATIENCE = 1.5
# The guardian ends with the main program, not before it: what is sent to a whole job must not take it first.
SURVIVED_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Start(msgspec.Struct, frozen=True, tag=True):
    """First message. Paths are bytes: they need not be valid text."""

    main_pid: int
    cleanup: list[bytes]
    preload: list[str]


class Spawn(msgspec.Struct, frozen=True, tag=True):
    """Fork a worker; tasks, results, stdout and stderr descriptors travel beside the message, in this order."""

    worker_id: int
    surroundings: Surroundings


class Kill(msgspec.Struct, frozen=True, tag=True):
    worker_id: int


class Close(msgspec.Struct, frozen=True, tag=True):
    remove: bool


class Spawned(msgspec.Struct, frozen=True, tag=True):
    """The worker exists."""

    worker_id: int
    pid: int


class Exited(msgspec.Struct, frozen=True, tag=True):
    """The worker is gone and all it left behind was sent SIGKILL; a negative status is a signal.

    A worker that could not be started has pid 0 and a reason.
    """

    worker_id: int
    pid: int
    status: int
    reason: str = ""


class ServerLost(msgspec.Struct, frozen=True, tag=True):
    """The guardian itself is gone: no worker of it is left, and it can start no other."""

    reason: str


class Cleared(msgspec.Struct, frozen=True, tag=True):
    """Answer to `Close`: no process is left; only the directories remain to be removed."""


Request = Start | Spawn | Kill | Close
Message = Spawned | Exited | ServerLost | Cleared

encode = msgspec.msgpack.Encoder().encode
decode_request = msgspec.msgpack.Decoder(Request).decode


def main(descriptor: int, entry: str, used: Sequence[str]) -> NoReturn:
    """Life of the guardian process, from its first message to the removal of the run's directories.

    ``used`` are modules that every worker would import, and has from here instead.
    """
    for number in SURVIVED_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    connection = socket.socket(fileno=descriptor)
    with contextlib.suppress(Exception):  # what is wrong with it is told when it is wanted
        _load(entry)
        for module in used:
            importlib.import_module(module)
    start = _first_message(connection)
    adopt_orphans()
    guardian = None
    failed = False
    try:
        guardian = Guardian(connection, entry, start)
        remove = guardian.run()
    except Exception:
        failed = True
        # The main program still lives and may start another guardian: its directories are not ours to remove.
        remove = False
        connection.setblocking(False)
        with contextlib.suppress(OSError):
            connection.send(encode(ServerLost(traceback.format_exc())))
    if guardian is not None:
        guardian.end_processes()
    if remove:
        remove_directories(start.cleanup)
    if guardian is not None:
        guardian.sweep()
    # Exit handlers belong to preloaded modules, which this process never used.
    os._exit(int(failed))


def _first_message(connection: socket.socket) -> Start:
    """What there is to guard; without it, this process is not wanted, and ends."""
    parent = os.getppid()
    connection.settimeout(ALONE_AFTER)
    while True:
        try:
            payload = connection.recv(LARGEST_MESSAGE)
        except TimeoutError:
            if os.getppid() == parent:
                continue
            payload = b""  # a process that the program forked keeps its socket open beyond its death
        if not payload:
            os._exit(0)
        start = decode_request(payload)
        assert isinstance(start, Start)
        return start


class Guardian:
    """One thread, one poll loop: requests in, children watched, notices out. It never blocks on the main program."""

    def __init__(self, connection: socket.socket, entry: str, start: Start) -> None:
        self._connection = connection
        self._serve = _load(entry)
        self._main_pid = start.main_pid
        self._places = places_of(os.fsdecode(directory) for directory in start.cleanup)
        #: what is done when nothing else is to be done
        self._chores = deque[Callable[[], object]]([self.sweep])
        self._chores += [functools.partial(importlib.import_module, module) for module in start.preload]
        self._ids: dict[int, int] = {}
        self._pids: dict[int, int] = {}
        self._outbox: deque[bytes] = deque()
        self._wake, wake_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # With a handler of its own, SIGCHLD puts a byte into the pipe and so ends the poll.
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        connection.setblocking(False)
        gc.disable()

    def run(self) -> bool:
        """Serve until told to close or left alone; says whether the directories are to be removed."""
        main_process = self._watch_main()
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        if main_process is not None:
            poll.register(main_process, select.POLLIN)
        while os.getppid() == self._main_pid:
            poll.register(self._connection, select.POLLIN | (select.POLLOUT if self._outbox else 0))
            if not poll.poll(CHORES_AFTER_MS if self._chores and self._ids else None):
                with contextlib.suppress(Exception, SystemExit):
                    self._chores.popleft()()
                continue
            self._reap()
            ending = self._carry_out_requests()
            if ending is not None:
                return ending.remove
            self._send_waiting()
        return True

    def sweep(self) -> None:
        """Remove what earlier runs left, of which nobody was there to take care; once, at the end at the latest."""
        places, self._places = self._places, []
        sweep(places)

    def _watch_main(self) -> int | None:
        # A process forked by the main program keeps its socket open beyond its death, so end of file is not enough.
        try:
            return os.pidfd_open(self._main_pid)
        except OSError:
            return None

    def _carry_out_requests(self) -> Close | None:
        """Do all that has been asked so far; end of file is the last request of a main program that died."""
        while True:
            try:
                payload, descriptors, _, _ = socket.recv_fds(
                    self._connection, LARGEST_MESSAGE, DESCRIPTORS_PER_SPAWN, socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                return None
            except ConnectionError:
                return Close(remove=True)
            if not payload:
                return Close(remove=True)
            request = decode_request(payload)
            if isinstance(request, Spawn):
                self._spawn(request, descriptors)
            elif isinstance(request, Kill):
                self._kill(request.worker_id)
            elif isinstance(request, Close):
                return request

    def _spawn(self, request: Spawn, descriptors: list[int]) -> None:
        try:
            pid = self._fork(request, descriptors)
        except OSError as error:
            notice: Message = Exited(
                request.worker_id, 0, os.EX_OSERR, f"could not start a worker: {behind(error, starting=True) or error}"
            )
        else:
            self._ids[pid] = request.worker_id
            self._pids[request.worker_id] = pid
            notice = Spawned(request.worker_id, pid)
        # Ours are closed before the news is out: from then on, the worker alone holds its ends.
        for descriptor in descriptors:
            os.close(descriptor)
        self._post(notice)

    def _fork(self, request: Spawn, descriptors: list[int]) -> int:
        if len(descriptors) != DESCRIPTORS_PER_SPAWN:
            raise OSError("its descriptors did not arrive; is the limit of open files reached?")
        guardian_pid = os.getpid()
        gc.freeze()
        pid = os.fork()
        if pid == 0:
            # The frames below stay alive until the end, so no object of the guardian closes a descriptor late.
            live_as_worker(request.worker_id, descriptors, request.surroundings, guardian_pid, self._serve)
        # Both sides do it: whichever comes first, the group exists before anybody can ask to kill it.
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        return pid

    def _kill(self, worker_id: int) -> None:
        pid = self._pids.get(worker_id)
        if pid is not None:
            _kill_worker(pid)

    def _reap(self) -> bool:
        """Collect every ended child, and kill what ended workers left; says whether any child may be left."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wake, 512):
                pass
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return False
            if ended is None:
                return True
            pid = ended.si_pid
            worker_id = self._ids.pop(pid, None)
            if worker_id is not None:
                # Not collected yet, so its number still names its own group and no other.
                _kill_group(pid)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            self._kill_strays()
            if worker_id is not None:
                del self._pids[worker_id]
                self._post(Exited(worker_id, pid, status))

    def _kill_strays(self) -> None:
        # A living worker adopts what its own tasks abandon; a child of ours that is no worker was left by a dead one.
        for pid in children_of_this_process():
            if pid not in self._ids:
                remove_files(shared_files_of(family(pid)))
                _kill(pid)

    def end_processes(self) -> None:
        """Kill every worker and every descendant, generation by generation, until none is left; then say so."""
        deadline = time.monotonic() + KILL_PATIENCE
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        for pid in self._ids:
            _kill_worker(pid)
        while self._reap():
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                break
            poll.poll(remaining * 1000)
        self._post(Cleared())

    def _post(self, message: Message) -> None:
        self._outbox.append(encode(message))
        self._send_waiting()

    def _send_waiting(self) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            while self._outbox:
                self._connection.send(self._outbox[0])
                self._outbox.popleft()


def _load(entry: str) -> Serve:
    module, _, name = entry.partition(":")
    serve: Serve = getattr(importlib.import_module(module), name)
    return serve


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _kill_worker(pid: int) -> None:
    """Kill a worker, and the world that it keeps, if it does."""
    world = family(pid)[1:]
    if world:
        remove_files(shared_files_of(world))
    _kill_group(pid)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def children_of_this_process() -> list[int]:
    """Direct children, zombies included."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as listing:
            return [int(pid) for pid in listing.read().split()]
    except FileNotFoundError:
        return _children_by_search()


def _children_by_search() -> list[int]:
    """The slow way, for kernels built without that list: ask every process for its parent."""
    children = []
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit() and _parent_of(name) == os.getpid():
                children.append(int(name))
    return children


def _parent_of(name: str) -> int:
    with open(f"/proc/{name}/stat", "rb") as stat:
        # The command in parentheses may itself hold spaces and parentheses; state and parent follow the last one.
        return int(stat.read().rpartition(b")")[2].split()[1])
