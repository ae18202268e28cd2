"""What runs inside a rank: report, wait for an attempt, carry out its body together with the others, say how it went.

    keeper ── Welcome, Define, RankRun ──▶ channel thread ──▶ main thread: MPI and the task's body
           ◀── Hello, Early, RankDone, RankError, Unfit, Leaving ──

Started by the runner of an MPI as ``python -m penstock.executors.mpi_worker``. The channel thread notices when the
keeper is gone, and ends the process whatever its main thread is waiting for.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import queue
import resource
import socket
import sys
import threading
from multiprocessing.process import current_process
from typing import Any, NoReturn

from msgspec.structs import replace

from penstock.data.slots import current
from penstock.executors import mpi_world
from penstock.executors.early import following
from penstock.executors.execution import Function, carry_out, define
from penstock.executors.inside import become_worker
from penstock.executors.logs import forward_records
from penstock.executors.mpi_early import RankRelease
from penstock.executors.mpi_errors import with_plain_errors
from penstock.executors.mpi_parts import with_parts
from penstock.executors.mpi_progress import Progress, progress_file, stack_of
from penstock.executors.mpi_runner import SOCKET, short
from penstock.executors.mpi_wire import (
    FromRank,
    Hello,
    Leaving,
    RankDone,
    RankError,
    RankRun,
    Unfit,
    Welcome,
    frames_to_rank,
)
from penstock.executors.outbox import Outbox
from penstock.executors.outside import Before, Stance
from penstock.executors.preparing import prepare
from penstock.executors.task_streams import end_lines, open_streams
from penstock.executors.wire import Define, Done, Run
from penstock.executors.worker import attach, near_device, pace_files
from penstock.persistent.where import connect, work_for

__all__ = ["main"]

_RECEIVE = 1 << 18
#: a descriptor above those that an MPI library opens
_HIGH = 500
#: without telling anybody
_exit = os._exit


def main() -> None:
    """The life of a rank."""
    channel = _Channel(os.environ.pop(SOCKET))
    welcome = channel.welcome()
    _settle_in(welcome)
    become_worker(welcome.setup.memory_dir, welcome.setup.spill_dir)
    folder = welcome.setup.memory_dir
    world = mpi_world.RankWorld(lambda rank: Progress(progress_file(folder, welcome.writer, rank)), channel.leave)
    mpi_world.current = world
    channel.tell_of_exit()
    forward_records(channel.send)
    channel.send(Hello(world.rank, world.size, os.getpid(), world.library))
    try:
        _Rank(world, welcome, channel).serve()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Without MPI's own farewell, which waits for all: whoever keeps this world ends all of it.
        _exit(0)


class _Rank:
    """Carries out attempts."""

    def __init__(self, world: mpi_world.RankWorld, welcome: Welcome, channel: _Channel) -> None:
        setup = welcome.setup
        self._world = world
        self._channel = channel
        self._strict = setup.strict
        writer = welcome.writer + 1 + world.rank
        self._segments = attach(setup, writer)
        connect(setup.store)
        work_for(setup.memory_dir)
        self._layers = {layer.name: layer for layer in setup.layers}
        self._enforcement = pace_files(setup.layers, setup.memory_dir)
        current_process().authkey = setup.authkey
        before = Before.now()
        self._unprepared = prepare(setup.prepare)
        self._defined: dict[int, Define] = {}
        self._functions: dict[int, Function] = {}
        self._stance = Stance(before=before)

    def serve(self) -> None:
        while True:
            message = self._channel.inbox.get()
            if isinstance(message, Define):
                self._defined[message.function] = message
            elif isinstance(message, RankRun):
                self._channel.send(self._carry_out(message))

    def _carry_out(self, message: RankRun) -> FromRank:
        if self._unprepared is not None:
            return RankError(self._unprepared, 0.0)
        run = message.run
        if message.outside is not None:
            self._stance.take(message.outside)
        declared, function = self._defined[run.function], self._function(run.function)
        unfit = self._world.begin()
        if unfit:
            return Unfit(unfit)
        body = with_parts(function, declared, self._world.rank, self._world.size)
        # What it returns is the rank's own value, and what it hands over is not for carry_out to judge.
        own = Function(with_plain_errors(body), function.name, -1, declared.parameters)
        layer = self._layers.get(run.layer)
        release = RankRelease(message, declared, self._world.size, self._segments, self._channel.send)
        following(release, alone=True)
        current.written = message.files
        try:
            with near_device(layer.cpus) if layer is not None and layer.cpus else contextlib.nullcontext():
                return self._outcome(replace(run, outputs=(), writable=(), in_place=(), redirected=()), own)
        finally:
            following(None, alone=True)

    def _function(self, number: int) -> Function:
        """Made for the first call: by then imports find what those of the program do."""
        function = self._functions.get(number)
        if function is None:
            function = self._functions[number] = define(self._defined[number], self._segments)
            self._stance.keep()
        return function

    def _outcome(self, run: Run, function: Function) -> FromRank:
        enforcement = self._enforcement
        if enforcement is not None:
            enforcement.begin(run, self._world.size)
        outcome = carry_out(run, function, self._segments, self._layers, strict=self._strict)
        end_lines()
        if enforcement is not None:
            enforcement.end(outcome)
        if not isinstance(outcome, Done):
            return RankError(outcome.failure, outcome.seconds)
        return RankDone(outcome.outputs, outcome.seconds, self._world.end())


class _Channel:
    """The socket to the keeper, read by a thread of its own."""

    def __init__(self, address: str) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as low, short(address) as path:
            low.connect(path)
            # The kernel closes the high descriptors of a killed process first. So the keeper hears of it before the
            # runner does, which then kills the others: who was the first is not in doubt.
            high = min(_HIGH, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
            self._socket = socket.socket(fileno=fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, high))
        self._frames = frames_to_rank()
        self._outbox = Outbox(self._socket)
        self.inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def welcome(self) -> Welcome:
        """Read the first message, and begin to listen for others."""
        received: list[Any] = []
        while not received:
            data, descriptors, _, _ = socket.recv_fds(self._socket, _RECEIVE, 2)
            if not data:
                _exit(1)
            for descriptor, number in zip(descriptors, (1, 2), strict=False):
                os.dup2(descriptor, number)
                os.close(descriptor)
            received += self._frames.feed(data)
        threading.Thread(target=self._listen, name="penstock-channel", daemon=True).start()
        first, *rest = received
        for message in rest:
            self.inbox.put(message)
        assert isinstance(first, Welcome)
        return first

    def tell_of_exit(self) -> None:
        """From now on, have ``os._exit`` first say that it was called."""
        mine = os.getpid()

        def leave_at_once(status: int) -> NoReturn:
            if os.getpid() == mine:
                self.leave(f"it called os._exit({status})")
            _exit(status)

        os._exit = leave_at_once

    def leave(self, words: str) -> None:
        """Say that the task ends this process, and where."""
        with contextlib.suppress(OSError):
            self.send(Leaving(words, stack_of(sys._getframe(2))))

    def send(self, message: FromRank) -> None:
        self._outbox.say(message)

    def _listen(self) -> None:
        try:
            while data := self._socket.recv(_RECEIVE):
                for message in self._frames.feed(data):
                    self.inbox.put(message)
        finally:
            _exit(1)


def _settle_in(welcome: Welcome) -> None:
    """Stand where a worker process of the program would."""
    # Of the runner it may have a pipe into which nobody ever writes.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.path[:] = [os.fsdecode(entry) for entry in welcome.path]
    sys.argv[:] = welcome.argv
    if welcome.pythonpath is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = welcome.pythonpath
    open_streams()


if __name__ == "__main__":
    # The module that others import, not this second copy of it.
    from penstock.executors.mpi_worker import main as main_of_module

    main_of_module()
