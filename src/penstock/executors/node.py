"""The node executor: one machine's worker processes, carrying out the engine's commands and reporting events.
It is long because whoever sends to a process, hears from it or buries it must agree on what it was sent.

    Launch, Recall, Kill ──▶ NodeExecutor ──▶ worker: claims and messages
    Finished, Failed    ◀── collect()     ◀── worker: messages
    WorkerLost          ◀──               ◀── fork server: notices

The first attempt for an idle worker leaves at once. Those behind it are written together, when there are some or when
the worker has answered: by then it has work to do, and a system call per task is the larger part of a task's cost.

Lanes are numbered: those of the compute pool, whose processes live as long as the run, then those of the I/O pool,
whose processes start with their first task and end when they have been idle for a while. MPI tasks: worlds.py.

Used by one thread at a time: the driver holds its lock around every call but ``poll``.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterator, Sequence

import msgspec

from penstock.data.segments import Segments
from penstock.executors.deaths import Deaths
from penstock.executors.deliveries import completed, counts
from penstock.executors.endings import Endings
from penstock.executors.forkserver import Exited, ForkServer, ServerLost, Spawned
from penstock.executors.logs import LogRelay
from penstock.executors.meter import Meter
from penstock.executors.output import OutputRelay
from penstock.executors.pools import PLAIN, VISIBLE, Outfit, Seat, Worker
from penstock.executors.stream_table import StreamTable
from penstock.executors.thread_limits import thread_limits
from penstock.executors.wire import (
    SETUP,
    Clearing,
    Define,
    Delivering,
    Done,
    Early,
    Error,
    Grant,
    Logged,
    Ready,
    Setup,
    Stop,
    run_of,
    setup_text,
)
from penstock.executors.worlds import KeptWorld, WorldObserver, Worlds
from penstock.model.commands import Launch
from penstock.model.events import Event, Failed, Finished, NodeLost, OutputReady, Recalled, Sampled, Warmed, WorkerLost
from penstock.model.worlds import World

__all__ = ["NodeExecutor"]

#: a lane whose processes die this often in a row before they take tasks is closed
_STILLBORN = 3
#: bytes received at once: for more, the allocator would map memory and give it back each time
_RECEIVE = 1 << 16
#: messages that end an attempt
_ENDS = (Done, Error)
#: attempts behind another that are written together
_TOGETHER = 32
#: seconds after which an idle process of the I/O pool, or an idle MPI world, is ended
_IDLE = 5.0

Observer = Callable[[str, int, int, int], None]


class NodeExecutor:
    """Runs attempts in worker processes of this machine."""

    def __init__(
        self,
        name: str,
        lanes: int,
        io_lanes: int,
        *,
        segments: Segments,
        setup: Setup,
        cpus: Sequence[tuple[int, ...]],
        gpus: Sequence[str] = (),
        cleanup: Sequence[str],
        observe: Observer,
        observe_world: WorldObserver,
    ) -> None:
        self.name = name
        self._segments = segments
        self._cpus = cpus
        #: names of the GPUs that tasks may hold
        self._gpus = gpus
        self._cleanup = cleanup
        #: told of worker processes: "started" or "died", lane, pid, status
        self._observe = observe
        #: code of every function that may be launched
        self.functions: dict[int, Define] = {}
        self._setup = setup_text(setup)
        self._seats = [Seat(lane, io=lane >= lanes) for lane in range(lanes + io_lanes)]
        #: processes of the I/O pool with nothing to do, and since when, oldest first
        self._idle: dict[Worker, float] = {}
        self._worlds = Worlds(setup, self._idle, 2 * lanes, self._retire, observe_world)
        #: processes that are waited for
        self._warming: set[Worker] = set()
        self._workers: dict[int, Worker] = {}
        #: those of them that have not said yet that they take tasks
        self._starting: set[Worker] = set()
        self._by_descriptor: dict[int, Worker] = {}
        self._made = 0
        #: workers with attempts that wait to be written together
        self._unflushed: dict[Worker, None] = {}
        self._epoll = select.epoll()
        self._deaths = Deaths()
        self._endings = Endings()
        #: processes that have ended or are being killed, until the fork server says how
        self._silent: set[Worker] = set()
        self._streams = StreamTable(segments.memory_dir)
        self._meter = Meter(setup.layers, setup.memory_dir)
        #: fork servers lost in a row without a worker that took tasks
        self._servers_lost = 0
        #: the program's at the start: calls name what has changed since
        self._environ = dict(os.environ)
        self._start_forkserver()  # before what would have to be closed if it cannot be started
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wake, select.EPOLLIN)
        self._relay = OutputRelay()
        self._logs = LogRelay()
        for seat in self._seats[:lanes]:
            self._worker_for(seat, PLAIN)

    def _start_forkserver(self) -> None:
        self._forkserver = ForkServer(self._cleanup, environ={**self._environ, **thread_limits(1)})
        self._epoll.register(self._forkserver.fileno(), select.EPOLLIN)

    # --- commands -----------------------------------------------------------------------------------------------

    def launch(self, command: Launch) -> None:
        """Send an attempt to its lane."""
        spec = command.call.spec
        seat = self._seats[command.lane]
        if spec.world is None:
            outfit = (spec.requirements.cpus or 1, command.gpus)
            worker = seat.workers.get(outfit)
            if worker is None:
                worker = self._worker_for(seat, outfit)
        else:
            worker = self._world_for(seat, spec.world, command.hosts)
        seat.active = worker
        if self._idle:
            self._idle.pop(worker, None)
        if command.call.outside is not worker.outside:
            worker.stand(command.call.outside)
        if spec.function not in worker.defined:
            worker.define(self.functions[spec.function])
        run = run_of(command)
        if run.stream is not None and any(output.stream for output in run.outputs):
            run.stream = self._streams.seat(command.task, worker.number)
        worker.layer = command.layer
        waiting = worker.put(run)
        if worker.busy and waiting < _TOGETHER:
            self._unflushed[worker] = None
        else:
            self._flush(worker)
        worker.busy += 1

    def recall(self, lane: int) -> Recalled:
        """Take back what the lane has not started."""
        worker = self._seats[lane].active
        tasks = worker.take_back() if worker is not None else ()
        if worker is not None:
            worker.busy -= len(tasks)
            self._may_rest(worker)
        self._streams.taken_back(tasks)
        return Recalled(self.name, lane, tasks)

    def kill(self, lane: int, ask: int) -> None:
        """End the process behind a lane, after the task ``ask`` has ended by itself, if it soon does; 0: at once."""
        worker = self._seats[lane].active
        if worker is None:
            return
        if not ask:
            self._end(worker)
            self.wake()  # should nobody say that it has ended, somebody has to say that
            return
        self._endings.ask(worker, ask, time.monotonic())
        worker.say(Stop(ask))
        self._flush(worker)
        self.wake()  # whoever sleeps in poll has to look earlier

    def kill_overdue(self, now: float) -> float | None:
        """End processes that were asked to end a task and have not; when to look next."""
        if not self._endings.asked:
            return None
        for worker in self._endings.overdue(now):
            self._end(worker)
        return self._endings.next_look()

    def _end(self, worker: Worker) -> None:
        self._silent.add(worker)
        self._forkserver.kill(worker.number)

    def grant(self, lane: int, task: int, upto: int) -> None:
        """Let the task that a lane runs hand over this many outputs in all."""
        worker = self._seats[lane].active
        if worker is not None:
            worker.say(Grant(task, upto))
            self._flush(worker)

    def warm(self, executors: int) -> Warmed | None:
        """Start processes of the I/O pool before they are needed; told by an event, now or later."""
        for seat in [seat for seat in self._seats if seat.io][:executors]:
            if not seat.workers:
                self._worker_for(seat, PLAIN)
            self._warming.update(worker for worker in seat.workers.values() if not worker.ready)
        return None if self._warming else Warmed(self.name)

    def sample(self, layer: str) -> Sampled:
        """How many bytes attempts have transferred on a layer."""
        workers = [worker for seat in self._seats if seat.io for worker in seat.workers.values()]
        starting = any(worker.layer == layer and worker.busy and not worker.ready for worker in workers)
        return Sampled(self.name, layer, self._meter.delivered(layer, workers), starting)

    def _is_warm(self, worker: Worker) -> Iterator[Event]:
        """A process takes tasks, or never will: perhaps it was the last that was waited for."""
        if worker in self._warming:
            self._warming.discard(worker)
            if not self._warming:
                yield Warmed(self.name)

    def end_idle(self, now: float) -> float | None:
        """End worlds and processes of the I/O pool that have been idle for long; when the next one will have been."""
        while self._idle and not self._warming:  # those that are warm already are wanted together with the others
            worker, since = next(iter(self._idle.items()))
            if since + _IDLE > now:
                return since + _IDLE
            del self._idle[worker]
            self._retire(worker)
        return None

    def _retire(self, worker: Worker) -> None:
        """Let a process end by itself: it finds its channels closed."""
        seat = worker.seat
        seat.workers.pop(worker.outfit, None)
        if seat.active is worker:
            seat.active = None
        worker.retired = True
        self._starting.discard(worker)
        self._unflushed.pop(worker, None)
        self._deafen(worker)
        worker.close()

    def flush(self) -> None:
        """Send everything that waits for company."""
        while self._unflushed:
            self._flush(self._unflushed.popitem()[0])

    def _flush(self, worker: Worker) -> None:
        self._unflushed.pop(worker, None)
        if not worker.flush():
            self._epoll.modify(worker.messages, select.EPOLLIN | select.EPOLLOUT)

    def wake(self) -> None:
        """Make a ``poll`` in another thread return."""
        os.eventfd_write(self._wake, 1)

    # --- events -------------------------------------------------------------------------------------------------

    def poll(self, timeout: float | None) -> list[tuple[int, int]]:
        """Wait for something to collect, or for ``wake``. The only call, with the next, that may run beside others."""
        return self._epoll.poll(-1 if timeout is None else timeout)

    def glance(self) -> list[tuple[int, int]]:
        """What there is to collect. Calls to wake up stay: they are meant for whoever waits in ``poll``."""
        return [one for one in self._epoll.poll(0) if one[0] != self._wake]

    def collect(self, ready: list[tuple[int, int]]) -> Iterator[Event]:
        """The events behind what ``poll`` found; never waits.

        Each event must be handled before the next is asked for: what a dead process had not started is taken back only
        after its last results have had their effect, which may have sent it more.
        """
        for descriptor, mask in ready:
            worker = self._by_descriptor.get(descriptor)
            if worker is not None:
                if mask & select.EPOLLOUT and worker.flush():
                    self._epoll.modify(worker.messages, select.EPOLLIN)
                yield from self._receive(worker)
                # What its results brought about is sent now: if they were its last, it will not speak again.
                if worker in self._unflushed:
                    self._flush(worker)
            elif descriptor == self._wake:
                try:
                    os.eventfd_read(self._wake)
                except BlockingIOError:
                    continue
            else:
                yield from self._hear()

    def _receive(self, worker: Worker) -> Iterator[Event]:
        while True:
            try:
                data = worker.messages.recv(_RECEIVE)
            except BlockingIOError:
                return
            except ConnectionError:
                data = b""
            if not data:
                # Its end is told by the fork server; until then this descriptor would only keep poll() awake.
                self._deafen(worker)
                self._silent.add(worker)
                return
            try:
                yield from self._read(worker, data)
            except msgspec.DecodeError:
                # A task wrote to descriptors that are not its own: nothing this process says can be believed.
                self._deafen(worker)
                self._end(worker)
                return
            if len(data) < _RECEIVE or worker.retired:
                return

    def _read(self, worker: Worker, data: bytes) -> Iterator[Event]:
        for message in worker.frames.feed(data):
            if not isinstance(message, _ENDS):
                if isinstance(message, Ready):
                    worker.ready = True
                    self._starting.discard(worker)
                    self._servers_lost = 0
                    self._may_rest(worker)
                    yield from self._is_warm(worker)
                elif isinstance(message, Early):
                    self._streams.opened(message.task, message.value)
                    yield OutputReady(message.task, message.attempt, message.index, message.value)
                elif isinstance(message, Delivering):
                    worker.delivering = message
                elif isinstance(message, Clearing):
                    self._endings.clearing(worker, time.monotonic())
                elif isinstance(message, Logged):
                    self._logs.put(message)
                else:
                    self._worlds.told(worker, message)
                continue
            yield self._ended(worker, message)
            if self._endings.asked and self._endings.is_over(worker, message.task):
                self._endings.forget(worker)
                self._end(worker)
            if worker.seat.io:
                self._may_rest(worker)

    def _ended(self, worker: Worker, message: Done | Error) -> Event:
        """An attempt is over."""
        worker.busy -= 1
        worker.delivering = None
        if self._streams.writers:
            self._streams.ended(message.task, message.outputs if isinstance(message, Done) else ())
        event = self._event(worker, message)
        if worker.ranks:
            self._worlds.rest(worker)  # first: what the event brings about may want this very world
        return event

    def _may_rest(self, worker: Worker) -> None:
        """Count a process of the I/O pool as idle if it has nothing to do; not before it takes tasks."""
        if worker.seat.io and worker.ready and not worker.busy and not worker.ranks and not worker.retired:
            self._idle[worker] = time.monotonic()

    def _deafen(self, worker: Worker) -> None:
        """Listen to a worker no more."""
        if self._by_descriptor.pop(worker.messages.fileno(), None) is not None:
            self._epoll.unregister(worker.messages)

    def _event(self, worker: Worker, message: Done | Error) -> Event:
        if isinstance(message, Done):
            return Finished(message.task, message.attempt, message.outputs, message.seconds)
        failure = msgspec.structs.replace(message.failure, output=self._relay.tail(worker.number))
        return Failed(message.task, message.attempt, failure, message.seconds)

    def _hear(self) -> Iterator[Event]:
        notices = self._forkserver.notices()
        for notice in notices:
            if isinstance(notice, ServerLost):
                yield from self._replace_forkserver()  # first, so that what is buried below is replaced by the new one
        for notice in notices:
            if isinstance(notice, Spawned):
                worker = self._workers.get(notice.worker_id)
                if worker is not None:
                    worker.pid = notice.pid
                    self._observe("started", worker.seat.lane, notice.pid, 0)
            elif isinstance(notice, Exited):
                worker = self._workers.pop(notice.worker_id, None)
                self._worlds.ended(worker)
                if worker is not None:
                    self._silent.discard(worker)
                if worker is not None and worker.retired:
                    self._observe("ended", worker.seat.lane, worker.pid, notice.status)
                elif worker is not None:
                    yield from self._bury(worker, notice.status, notice.reason)

    def _replace_forkserver(self) -> Iterator[Event]:
        self._epoll.unregister(self._forkserver.fileno())
        self._forkserver.close(remove=False)
        self._servers_lost += 1
        if self._servers_lost > _STILLBORN:
            yield NodeLost(self.name)
        else:
            self._start_forkserver()

    def _bury(self, worker: Worker, status: int, reason: str) -> Iterator[Event]:
        """A process ended: read its last results, take back what it had not started, put another in its place."""
        if worker.messages.fileno() in self._by_descriptor:
            yield from self._receive(worker)
            if worker.retired:  # by what it said last: a world that is spent is let go when its task is over
                self._observe("ended", worker.seat.lane, worker.pid, status)
                return
        left: tuple[str, ...] = ()
        if worker.delivering is not None and counts(worker.delivering):
            done, left = completed(worker.delivering)
            yield self._ended(worker, done)
        seat = worker.seat
        seat.workers.pop(worker.outfit, None)
        self._idle.pop(worker, None)
        self._endings.forget(worker)
        self._starting.discard(worker)
        yield from self._is_warm(worker)
        self._unflushed.pop(worker, None)
        self._streams.worker_gone(worker.number)
        tasks = worker.take_back()
        reason = reason or self._deaths.reason(status)
        self._observe("died", seat.lane, worker.pid, status)
        self._deafen(worker)
        worker.close()
        was_active = seat.active is worker
        if was_active:
            seat.active = None
            yield Recalled(self.name, seat.lane, tasks)
        seat.stillborn = 0 if worker.ready else seat.stillborn + 1
        replaced = seat.stillborn < _STILLBORN and self._servers_lost <= _STILLBORN
        if was_active:
            output = self._relay.tail(worker.number)
            yield WorkerLost(self.name, seat.lane, reason, replaced, output, worker.number, worker.ranks, left)
        if replaced and not seat.workers and not seat.io:
            self._worker_for(seat, worker.outfit)

    # --- workers ------------------------------------------------------------------------------------------------

    def _worker_for(self, seat: Seat, outfit: Outfit) -> Worker:
        existing = seat.workers.get(outfit)
        if existing is not None:
            return existing
        self._made += 1
        worker = seat.workers[outfit] = Worker(self._made, seat, outfit)
        units, gpus = outfit
        cpus = self._cpus[seat.lane] if units == 1 and not seat.io else ()
        environ = {SETUP: self._setup, **thread_limits(units)}
        if gpus:
            environ[VISIBLE] = ",".join(self._gpus[number] for number in gpus)
        self._start(worker, cpus, environ)
        return worker

    def _start(self, worker: Worker, cpus: tuple[int, ...], environ: dict[str, str]) -> None:
        self._workers[worker.number] = worker
        self._starting.add(worker)
        self._by_descriptor[worker.messages.fileno()] = worker
        self._epoll.register(worker.messages, select.EPOLLIN)
        worker.start(self._forkserver, self._relay, cpus, environ)

    def _world_for(self, seat: Seat, wanted: World, hosts: tuple[tuple[str, int], ...]) -> KeptWorld:
        """A world that is idle, or a new one."""
        kept = self._worlds.idle_one(wanted)
        if kept is None:
            kept = KeptWorld(self._made + 1, seat, wanted)
            self._made += 1 + wanted.processes  # the ranks have the numbers that follow
            self._start(kept, (), self._worlds.environment(wanted, hosts or ((self.name, wanted.processes),)))
        kept.seat = seat
        return kept

    # --- end ----------------------------------------------------------------------------------------------------

    def only_starts(self) -> bool:
        """Whether no process has a task except such as have not started yet."""
        return bool(self._starting) and not any(one.ready and one.busy for one in self._workers.values())

    def unheard(self) -> tuple[frozenset[int], int]:
        """Lanes whose process has ended, or should have, without the fork server saying so; and the process of that."""
        lanes = [one.seat.lane for one in self._silent if not one.retired] if self._silent else ()
        return frozenset(lanes), self._forkserver.pid

    def worker_of(self, lane: int) -> int:
        """The number of the process that serves, or last served, a lane."""
        active = self._seats[lane].active
        return active.number if active is not None else 0

    def flush_output(self) -> None:
        """Show what workers have printed so far."""
        self._relay.flush(1.0)
        self._logs.flush(1.0)

    def close(self) -> None:
        """End every process; nothing that they were sent is finished."""
        self._forkserver.close()
        self._streams.close()
        self._meter.close()
        for worker in self._workers.values():
            if not worker.retired:
                worker.close()
        self._workers.clear()
        self._by_descriptor.clear()
        self._relay.close()
        self._logs.close(1.0)
        self._epoll.close()
        os.close(self._wake)
