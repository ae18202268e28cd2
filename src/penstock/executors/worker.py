"""What runs inside a worker process: claim a task, carry it out, say how it went, claim the next.

Forked from the fork server with everything imported, so its first task starts at once.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from multiprocessing.process import current_process
from typing import TYPE_CHECKING

from penstock.data.segments import Segments
from penstock.executors.execution import Function, carry_out, define
from penstock.executors.inside import become_worker
from penstock.executors.logs import forward_records
from penstock.executors.outbox import Outbox
from penstock.executors.outside import Before, Stance
from penstock.executors.preparing import prepare
from penstock.executors.read_cache import ReadCache
from penstock.executors.synced import install as note_syncs
from penstock.executors.task_streams import end_lines
from penstock.executors.wire import (
    CLAIM,
    SETUP,
    Clearing,
    Define,
    Delivering,
    Down,
    Error,
    Frames,
    Grant,
    Ready,
    Run,
    Setup,
    Stop,
    frames_down,
    sending_claimed,
    setup_of,
)
from penstock.model.outside import Outside
from penstock.persistent.where import connect, settings, work_for

if TYPE_CHECKING:
    from penstock.executors.enforcement import Enforcement
    from penstock.model.resources import StorageLayer

__all__ = ["attach", "serve"]

#: how often a worker looks for the next task before it goes to sleep: waking up costs more than these looks. As long
#: as looking succeeds, it looks longer.
_LOOKS = 60
_MOST_LOOKS = 500
#: messages that are looked at when their turn comes; not a union, which would be made anew for each message
_IN_ORDER = (Run, Outside)
#: bytes received at once: for more, the allocator would map memory and give it back each time
_RECEIVE = 1 << 16


def attach(setup: Setup, writer: int) -> Segments:
    """The store as a process of the run sees it."""
    segments = Segments(setup.memory_dir, setup.spill_dir, writer, layer_dirs=setup.layer_dirs)
    segments.admit(setup.serialization_memory)
    return segments


def serve(worker_id: int, tasks: socket.socket, messages: socket.socket) -> None:
    """Carry out tasks until the other side closes."""
    setup = setup_of(os.environ.pop(SETUP))
    segments = attach(setup, worker_id)
    connect(setup.store)
    work_for(setup.memory_dir)
    become_worker(setup.memory_dir, setup.spill_dir)
    current_process().authkey = setup.authkey
    note_syncs()  # before any module of the user's takes os.fsync as it is
    if setup.world is not None:
        from penstock.executors.mpi import keep_world

        keep_world(setup, setup.world, segments, tasks, messages)
        return
    layers = {layer.name: layer for layer in setup.layers}
    enforcement = pace_files(setup.layers, setup.memory_dir)
    inbox = _Inbox(messages, segments)
    outbox = Outbox(messages)
    forward_records(outbox.hand_over)
    before = Before.now()
    unprepared = prepare(setup.prepare)
    outbox.say(Ready())
    channel = _Upstream(outbox, inbox)
    claims = _Claims(tasks)
    cache = ReadCache(setup.read_cache) if setup.read_cache else None
    stance = Stance(before=before)
    folder = setup.memory_dir
    attempt = partial(
        carry_out,
        segments=segments,
        layers=layers,
        strict=setup.strict,
        channel=channel,
        alone=True,
        cache=cache,
        stance=stance,
    )
    # Asking for the number of this process after every task would be felt.
    forked: list[bool] = []
    os.register_at_fork(after_in_child=lambda: forked.append(True))
    for _ in itertools.repeat(None, setup.tasks) if setup.tasks else itertools.repeat(None):
        sending = claims.next()
        run = inbox.run(sending) if sending else None
        if run is None:
            return
        if unprepared is not None:
            outbox.say(Error(run.task, run.attempt, unprepared, 0.0))
            continue
        if inbox.outside is not None:
            stance.take(inbox.outside)
        function = inbox.functions.get(run.function)
        if function is None:
            function = inbox.define(run.function)
            stance.keep()
        settings.attempt = folder, run.task
        if enforcement is not None:
            enforcement.begin(run)
        if run.layer and (cpus := layers[run.layer].cpus):
            with near_device(cpus):
                outcome = attempt(run, function)
        else:
            outcome = attempt(run, function)
        if cache is not None and type(outcome) is Error:
            cache.clear()
        end_lines()
        if enforcement is not None:
            enforcement.end(outcome)
        if forked:
            os._exit(0)  # the task forked, and its child came back here too
        outbox.say(outcome)


@contextlib.contextmanager
def near_device(cpus: tuple[int, ...]) -> Iterator[None]:
    """Stay on the CPUs to which a storage device is bound, while serving it."""
    usual = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, cpus)
    except OSError:
        yield  # none of them is ours to use: a slower way to the device is better than none
        return
    try:
        yield
    finally:
        os.sched_setaffinity(0, usual)


def pace_files(layers: Sequence[StorageLayer], state_dir: str) -> Enforcement | None:
    """From now on files on emulated devices take the time that these need, and on enforced layers what is granted."""
    if not any(layer.curve or layer.enforced for layer in layers):
        return None
    from penstock.executors.emulation import from_layers
    from penstock.executors.enforcement import Enforcement
    from penstock.executors.paced_files import install

    enforcement = Enforcement(layers)
    install(enforcement.over(from_layers(layers, state_dir)))
    return enforcement


class _Claims:
    """Which attempts to start."""

    def __init__(self, tasks: socket.socket) -> None:
        self._tasks = tasks
        self._looks = _LOOKS

    def next(self) -> int:
        """The sending to start with; 0 at the end."""
        data = self._look()
        if data is None:
            self._looks = max(_LOOKS, self._looks // 2)
            data = self._tasks.recv(CLAIM)
        return sending_claimed(data) if data else 0

    def _look(self) -> bytes | None:
        for look in range(self._looks):
            try:
                data = self._tasks.recv(CLAIM, socket.MSG_DONTWAIT)
            except BlockingIOError:
                os.sched_yield()  # whoever has work to give us may need this very CPU
                continue
            if look:
                self._looks = min(_MOST_LOOKS, self._looks * 2)
            return data
        return None


class _Inbox:
    """Functions and attempts received; attempts that were taken back are never claimed, and skipped."""

    def __init__(self, messages: socket.socket, segments: Segments) -> None:
        self._messages = messages
        self._segments = segments
        self._frames: Frames[Down] = frames_down()
        self._runs: deque[Run | Outside] = deque()
        self._defined: dict[int, Define] = {}
        #: functions that were asked for before
        self.functions: dict[int, Function] = {}
        #: the latest
        self._grant = Grant(0, 0)
        #: a task that is to end
        self._stopped = 0
        #: where the attempt that was claimed last is to be carried out
        self.outside: Outside | None = None

    def define(self, number: int) -> Function:
        """Make a function for its first call. Not when its code comes: only now imports find what the program does."""
        function = self.functions[number] = define(self._defined.pop(number), self._segments)
        return function

    def run(self, sending: int) -> Run | None:
        """The attempt that was claimed; None if the other side is gone."""
        runs = self._runs
        while True:
            while runs:
                run = runs.popleft()
                if isinstance(run, Outside):
                    self.outside = run
                elif run.sending == sending:
                    return run
            if not self._receive():
                return None

    def grant(self, task: int, above: int) -> int:
        """How many outputs a task may hand over; waits until they are more than ``above``, or it is to end."""
        while self._stopped != task and (self._grant.task != task or self._grant.upto <= above):
            if not self._receive():
                os._exit(1)  # the run is over
        return self._grant.upto

    def is_to_end(self, task: int) -> bool:
        """Whether a task that is being carried out was told to end; never waits."""
        with contextlib.suppress(BlockingIOError):
            while self._stopped != task and self._receive(socket.MSG_DONTWAIT):
                pass
        return self._stopped == task

    def _receive(self, flags: int = 0) -> bool:
        """Take in what comes next; False if the other side is gone."""
        data = self._messages.recv(_RECEIVE, flags)
        for message in self._frames.feed(data):
            if isinstance(message, _IN_ORDER):
                self._runs.append(message)
            elif isinstance(message, Grant):
                self._grant = message
            elif isinstance(message, Stop):
                self._stopped = message.task
            else:
                self._defined[message.function] = message
        return bool(data)


class _Upstream:
    """Where outputs go that a body hands over before its end."""

    def __init__(self, outbox: Outbox, inbox: _Inbox) -> None:
        self.hand_over = outbox.hand_over
        self._outbox = outbox
        self._inbox = inbox
        #: the task of which it was said that it is ending
        self._told = 0

    def await_grant(self, task: int, above: int) -> int:
        """Wait until more than this many outputs may be handed over, or the task is to end; gives how many."""
        self._outbox.flush()
        return self._inbox.grant(task, above)

    def is_to_end(self, task: int) -> bool:
        """Whether no more outputs are wanted; whoever asks will end then."""
        to_end = self._inbox.is_to_end(task)
        if to_end and self._told != task:
            self._told = task
            self._outbox.say(Clearing())
        return to_end

    def announce(self, message: Delivering) -> None:
        """Say, before this returns, that an attempt has begun to deliver."""
        self._outbox.say(message)
