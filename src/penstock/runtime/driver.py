"""The driver: real time and real processes around the engine. It is long because who looks for results when, who
sleeps and who wakes whom can only be understood together.

    any thread ── post(event) ──▶ engine.handle ──▶ commands ──▶ executor, housekeeping, futures
    control thread: executor.poll ──▶ events ──▶ the same

The engine is guarded by one lock; whichever thread has something to tell takes it, hands the event over and carries
out the commands, so a call travels to an idle worker without changing threads. A thread that submits many calls also
collects results on the way, so that lanes stay fed while it keeps the interpreter to itself. What may run user code
(callbacks of futures) or wait happens after the lock is released.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.alert_waits import LOOK, until, until_ended
from penstock.data.segments import Segments
from penstock.engine.engine import Engine
from penstock.engine.sharing import Usage
from penstock.engine.state import TaskRecord
from penstock.errors import InternalError, PenstockError, RuntimeStopped
from penstock.executors.node import NodeExecutor
from penstock.model import commands, events
from penstock.model.commands import Launch, Settle
from penstock.model.data import VersionId
from penstock.model.events import OutputReady, WorkerLost
from penstock.model.resources import StorageLayer
from penstock.model.tasks import Failure, FailureKind
from penstock.own_threads import OwnThread
from penstock.runtime.drain_view import DrainView
from penstock.runtime.failures import defect
from penstock.runtime.housekeeping import Housekeeping, not_home
from penstock.runtime.recorder import Recorder
from penstock.runtime.settling import Settling, Waiter
from penstock.runtime.sharing import Sharing
from penstock.runtime.stall_watch import StallWatch
from penstock.runtime.stream_sources import StreamSources

if TYPE_CHECKING:
    from penstock.executors.inline import InlineExecutor

__all__ = ["Driver", "Waiter"]

#: submissions between two looks for results by the submitting thread
_PUMP_EVERY = 32
#: seconds for which the control thread leaves the interpreter to a thread that submits at full speed
_REST = 0.001
#: seconds for which a thread looks for results before it goes to sleep
_LOOK = 200e-6
#: the control thread is not woken for what is due this many seconds after it wakes up anyway
_SOON = 0.05
#: seconds after which a callback that waits looks at deadlines
_TURN = 0.02
#: seconds between two looks at how far files are on their way home
_SHOWN = 0.1
#: events that are prepared for the engine
_PREPARED = frozenset({OutputReady, WorkerLost})


def _let_go_by(event: events.Event) -> Iterable[VersionId]:
    """The versions that the program lets go, by an event."""
    if type(event) is events.Submitted:
        return event.released
    return event.versions if type(event) is events.Released else ()


class Driver(Settling):
    """Runs an engine on this machine."""

    def __init__(
        self,
        engine: Engine,
        executor: NodeExecutor | InlineExecutor,
        segments: Segments,
        layers: Sequence[StorageLayer],
        rooms: Mapping[str, int | None],
        recorder: Recorder,
        on_note: Callable[[events.Note], None],
        stall: float | None,
    ) -> None:
        super().__init__()
        self.engine = engine
        self.executor = executor
        self.recorder = recorder
        self._stalls = StallWatch(engine, recorder, stall, executor.only_starts, executor.unheard)
        #: seconds after which it is told that nothing moves
        self._patience = stall
        self._log = recorder.log
        self._sleepers = 0
        self.streams = StreamSources(self)
        inline = not isinstance(executor, NodeExecutor)
        self.house = Housekeeping(segments, layers, recorder, self._told, inline=inline)
        run = os.path.basename(segments.memory_dir)
        #: layers are shared with other programs, by threads
        self.sharing = Sharing(layers, {} if inline else rooms, run, self, self._told)
        #: told of states of persistent objects that no version refers to any more
        self.drop_state: Callable[[str], None] = lambda state: None
        #: told when versions refer to states of persistent objects, after a time when none did
        self.hold_states: Callable[[], None] = lambda: None
        #: told of what is learned about constraints
        self._on_note = on_note
        self._submissions = 0
        self._last_submission = 0.0
        #: threads that wait for a result
        self._waiting = 0
        self._rest = threading.Event()
        #: a thread that waits is collecting results itself
        self._looking = False
        #: when the control thread will wake up by itself; 0 while it is awake
        self._asleep_until = 0.0
        self._stopping = False
        self._broken: BaseException | None = None
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Listen to workers from now on."""
        if isinstance(self.executor, NodeExecutor):
            self.post(*self.sharing.begin())
            self._thread = OwnThread("control", self._control)
            self._thread.start()

    # --- from any thread ----------------------------------------------------------------------------------------

    def post(self, *happened: events.Event) -> None:
        """Tell the engine, and do what it says."""
        with self.lock:
            for event in happened:
                self.handle(event)
        self.after()

    def handle(self, event: events.Event) -> None:
        """Tell the engine one event and carry out its commands; the caller holds the lock."""
        now = time.monotonic()
        if self.released or self.released_segments:
            self._let_go(now)
        try:
            self._process([event], now)
        except Exception as error:
            self._note_defect(error)
            raise
        if self._asleep_until > now + _SOON and self._may_be_due():
            self._wake_in_time()

    def _may_be_due(self) -> bool:
        """Whether anything is there that only time brings about."""
        state = self.engine.state
        return bool(
            state.deadlines
            or state.backlogged
            or len(state.io_ready)
            or state.pauses
            or self.streams.limited
            or not state.ledger.holders
            or self.executor.only_starts()
        )

    def _process(self, queue: list[events.Event], now: float) -> None:
        """Tell the engine events, carry out its commands, and go on with what these bring about."""
        engine, log = self.engine, self._log
        state = engine.state
        for pending in queue:
            if self.onlookers:
                for version in _let_go_by(pending):
                    self._overtake(version)
            if type(pending) in _PREPARED:
                pending = self._prepared(pending)
            answer = engine.handle(pending, now)
            if log.active:
                self.recorder.event(pending, now)
            if state.reports:
                self.recorder.reports(now)
            if state.notes:
                self._pass_on_notes(now)
            for command in answer:
                further = self._settle(command) if type(command) is Settle else self._carry_out(command, now)
                if further is not None:
                    queue.append(further)
        if self.streams.limited:
            self.streams.regulate(now)

    def _prepared(self, event: events.Event) -> events.Event:
        """What the engine is told of an event about which something has to be done first."""
        if type(event) is OutputReady:
            return self.streams.take(event)
        assert type(event) is WorkerLost
        state, heads = self.engine.state, self._heads(event.lane)
        writers = range(event.worker, event.worker + 1 + event.ranks)
        self.house.put_back(event.worker, [head.task for head in heads])
        self.house.clear_after(writers, heads, set(state.segments), state.early, event.left)
        return event

    def _pass_on_notes(self, now: float) -> None:
        notes = self.engine.state.notes
        self.recorder.notes(now)
        for note in notes:
            self._on_note(note)
        notes.clear()

    def _heads(self, lane: int | None = None) -> list[TaskRecord]:
        """The attempts that run, on one lane or on all."""
        lanes = [found for node in self.engine.state.ledger.nodes.values() for found in node.lanes]
        return [found.queue[0] for found in lanes if found.queue and lane in (None, found.index)]

    def _wake_in_time(self) -> None:
        """The control thread sleeps longer than what has just happened allows."""
        now = time.monotonic()
        dues = (
            *(self.engine.next_look(), self._stalls.next_look(now), self.streams.next_look(now)),
            self.house.left.next_look(self.engine.state.crowded_since),
        )
        due = min((time for time in dues if time is not None), default=None)
        if due is not None and due < self._asleep_until:
            self._asleep_until = 0.0
            self.wake()

    def after(self) -> None:
        """What must not happen under the lock; every holder calls this once it has let go."""
        if type(self.executor) is not NodeExecutor:
            self._run_inline()
        if self._announcements:
            self._announce()

    def submitted(self) -> None:
        """Called under the lock after each submission: now and then, collect results on the way."""
        self._submissions += 1
        if self._submissions % _PUMP_EVERY == 0 and self._thread is not None:
            self._last_submission = time.monotonic()
            self._collect(self.executor.glance())  # type: ignore[union-attr]

    def wait_until(self, reached: Callable[[], bool], timeout: float | None = None) -> bool:
        """Block until the engine's state satisfies a condition; it is looked at after every change."""
        if threading.current_thread() is self._thread:
            return True  # a callback in the control thread must not wait for itself
        if self._thread is None and not self._stopping:
            self._let_time_pass(reached, timeout)
        # Not the condition itself: an interrupt while that is being entered would leave it locked.
        with self.awaiting(), self.lock.raw:
            self._sleepers += 1
            try:
                done = until(self._changed, lambda: self._broken or self._stopping or reached(), timeout)
            finally:
                self._sleepers -= 1
            self._check_broken()
            if self._stopping and not reached():
                raise RuntimeStopped("the runtime was stopped by another thread")
            return done

    def await_names(self) -> None:
        """Wait for files that are just being given their names: who has a result may look at them next.

        Not in our own threads, which bring that about.
        """
        if not self._stopping and type(threading.current_thread()) is not OwnThread:
            self.wait_until(lambda: self._stopping or not self.engine.naming)

    @property
    def is_awaited(self) -> bool:
        """Whether a thread of the program waits for a result."""
        return self._waiting > 0

    def wake(self) -> None:
        """Have the control thread look at what finalisers left."""
        if self._thread is not None and not self._stopping:
            self.executor.wake()  # type: ignore[union-attr]

    def stop(self, view: DrainView) -> None:
        """End the control thread and the workers, and bring files home; unfinished tasks are abandoned.

        ``view`` is told now and then how far that is.
        """
        self._stopping = True
        with self.lock:
            self._changed.notify_all()
        try:
            if self._thread is not None:
                self.executor.wake()  # type: ignore[union-attr]
                if threading.current_thread() is not self._thread:
                    until_ended(self._thread)
        finally:
            self.executor.close()  # Ctrl-C too ends the wait for a callback that does not return
        for head in self._heads():
            assert head.lane is not None
            worker = self.executor.worker_of(head.lane.index)
            self.house.remove_unfinished_files(head, worker, self.engine.state.early)
        self._give_up(Failure(FailureKind.STOPPED, "the runtime was stopped before this task was over"))
        try:
            if self._broken is None:  # else the answers that it waits for may never come; files stay on their layers
                self._drain(view)
        finally:
            versions = self.engine.state.versions.values()
            kept = {version.scratch for version in versions if version.scratch is not None}
            self.house.close(kept | self.engine.state.astray.keys())
            self.sharing.close()

    def _drain(self, view: DrainView) -> None:
        """Bring every permanent file from its layer to its name, and make sure of those that are there."""
        state = self.engine.state
        while state.publishing:
            self.house.finish()  # a name that is given later would point to where the file was
        with self.lock:
            moved = self.house.flushed
            self.handle(events.Draining())
            view.begin(moved)
        self.house.secure(state.at_home)

        def under_way() -> bool:
            return bool(state.moving or state.discarding or state.publishing)

        while under_way():
            self.house.catch_up()
            with self.lock.raw:
                if self._thread is not None and under_way():
                    self._changed.wait(_SHOWN)
            with self.lock:
                view.show(self.house.flushed)
        for version in state.placed.values():
            assert version.placed is not None and version.file is not None and version.scratch is not None
            if not version.placed.error:
                continue  # an older version, which the name still means because the newest could not be moved
            self.unobserved[version.file] = not_home(version.file, version.scratch, version.placed.error)

    # --- the control thread -------------------------------------------------------------------------------------

    def _control(self) -> None:
        executor = self.executor
        assert isinstance(executor, NodeExecutor)
        try:
            while not self._stopping:
                ready = self._poll_eagerly(executor)
                if self._is_attended():
                    self._rest.wait(_REST)
                with self.lock:
                    self._collect(ready)
                    if self.released or self.released_segments or self.streams.limited:
                        self._let_go(time.monotonic())
                    self._tick()
                self.after()
                if self._broken is not None:
                    self._break(self._broken)
                    return
        except BaseException as error:
            self._break(error)
            raise

    def _note_defect(self, error: Exception) -> None:
        """Something was begun and not ended, in whatever thread: the control thread gives everything up."""
        if isinstance(error, InternalError) or not isinstance(error, PenstockError):
            self._broken = self._broken or error
            self._changed.notify_all()
            self.wake()

    def _break(self, error: BaseException) -> None:
        """Our own fault: nobody may wait for ever for what will not come."""
        self._broken = error
        self._give_up(Failure(FailureKind.EXCEPTION, defect(error), path=("penstock",)))

    def _check_broken(self) -> None:
        if self._broken is not None:
            raise PenstockError(defect(self._broken)) from self._broken

    def _poll_eagerly(self, executor: NodeExecutor) -> list[tuple[int, int]]:
        """Look a while before going to sleep if somebody waits: waking up can cost more than a short task."""
        if self._waiting:
            until = time.monotonic() + _LOOK
            while self._waiting and time.monotonic() < until:
                ready = executor.poll(0)
                if ready:
                    return ready
                os.sched_yield()
        now = time.monotonic()
        with self.lock:
            dues = (
                *(self.engine.next_look(), executor.end_idle(now), self.streams.next_look(now)),
                *(self._stalls.next_look(now), executor.kill_overdue(now)),
                self.house.left.next_look(self.engine.state.crowded_since),
            )
            due = min((time for time in dues if time is not None), default=None)
            # Under the lock: what is due earlier and comes right after must find that it has to wake us.
            self._asleep_until = float("inf") if due is None else due
        try:
            return executor.poll(None if due is None else max(0.0, due - now))
        finally:
            self._asleep_until = 0.0

    def look(self, done: Callable[[], bool], timeout: float | None) -> bool:
        """Collect results in this thread as long as there are some: the one it needs may be among them."""
        executor = self.executor
        if not isinstance(executor, NodeExecutor):
            return self._let_time_pass(done, timeout)
        if self._looking:
            return False
        self._looking = True
        began = time.monotonic()
        try:
            latest = float("inf") if timeout is None else began + timeout
            until = began + _LOOK
            while (now := time.monotonic()) < min(until, latest):
                ready = executor.glance()
                if not ready:
                    os.sched_yield()
                    continue
                self._last_submission = now
                with self.lock:
                    self._collect(ready)
                self.after()
                if done():
                    return True
                until = now + _LOOK
        finally:
            self._looking = False
            if self._log.active:
                self.recorder.waited(began, time.monotonic())
        return False

    def _let_time_pass(self, done: Callable[[], bool], timeout: float | None) -> bool:
        """Inline: nobody but the thread that waits can bring about what only time can."""
        latest = float("inf") if timeout is None else time.monotonic() + timeout
        while not done():
            due = self.engine.next_look()
            if due is None or due > latest or self._stopping:
                return False
            time.sleep(min(LOOK, max(0.0, due - time.monotonic())))
            self.post(events.Ticked())
        return True

    def serve_until(self, done: Callable[[], bool], timeout: float | None) -> bool:
        """A callback, in the control thread, waits for a result: go on with what brings it about.

        False in any other thread, and when the time is up.
        """
        executor = self.executor
        if threading.current_thread() is not self._thread or not isinstance(executor, NodeExecutor):
            return False
        until = None if timeout is None else time.monotonic() + timeout
        while not done() and not self._stopping:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return False
            ready = executor.poll(_TURN if left is None else min(left, _TURN))
            with self.lock:
                self._collect(ready)
                self._tick()
        return done()

    def _is_attended(self) -> bool:
        """Whether a thread that submits at full speed collects results on its way, so that we better keep out of it.

        Not when somebody waits for a result, and not when lanes idle while tasks wait for data.
        """
        if self._looking:
            return True
        if self._waiting or time.monotonic() - self._last_submission > _REST:
            return False
        state = self.engine.state
        return not state.ledger.open or len(state.tasks) <= len(state.ready) + len(state.ledger.holders)

    @contextlib.contextmanager
    def awaiting(self) -> Iterator[None]:
        """Around a thread's wait for a result."""
        began = time.monotonic()
        with self.lock:
            self._check_broken()
            self._waiting += 1
            if self._thread is not None and not self._stopping:
                self.executor.flush()  # type: ignore[union-attr]
        self._rest.set()
        try:
            yield
        finally:
            with self.lock:
                self._waiting -= 1
                if not self._waiting:
                    self._rest.clear()
            if self._log.active:
                self.recorder.waited(began, time.monotonic())

    def _tick(self) -> None:
        self.house.left.look(self.engine.state.crowded_since, time.monotonic())
        due = self.engine.next_look()
        if due is not None and due <= time.monotonic():
            self.handle(events.Ticked())

    def _collect(self, ready: list[tuple[int, int]]) -> None:
        for event in self.executor.collect(ready):  # type: ignore[union-attr]
            self.handle(event)
        if self._sleepers:
            self._changed.notify_all()

    def _let_go(self, now: float) -> None:
        """Pass on what finalisers noted."""
        notes: list[events.Event] = []
        if self.released:
            notes.append(events.Released(self.take_released()))
        while self.released_segments:
            notes.append(events.SegmentReleased(self.released_segments.popleft()))
        self._process(notes, now)

    def _told(self, event: events.Reported) -> None:
        """Called by whoever moves files, when one is where it should be, and by whoever shares layers."""
        try:
            with self.lock:
                self.handle(event)
                self._changed.notify_all()
        except BaseException as error:
            self._break(error)  # in a thread of ours, where nobody else would hear of it
            raise
        if self._thread is not None:
            self.after()  # inline, this is inside it already

    def usage(self, layer: str) -> Usage:
        """What the program has of a layer, and wants."""
        with self.lock:
            return self.engine.usage(layer)

    def withdraw(self, layer: str) -> Usage:
        """The same; if nothing uses it, nothing is had of it from now on."""
        with self.lock:
            usage = self.engine.usage(layer)
            if not usage.busy:
                self.handle(events.BudgetChanged(layer, 0.0, closed=True))
            return usage

    def _run_inline(self) -> None:
        """Run what was launched and what follows from it; nobody else would see to further attempts after a pause."""
        self._run_launched()
        while self.engine.state.pauses and not self._stopping:
            due = self.engine.next_look()
            with self.lock.raw:
                left = LOOK if due is None else min(LOOK, due - time.monotonic())
                self._changed.wait(max(0.0, left))
            with self.lock:
                self._tick()
            self._run_launched()

    def _run_launched(self) -> None:
        executor = self.executor
        assert not isinstance(executor, NodeExecutor)
        executor.await_turn(self._patience)
        with executor.turn, self.lock.undisturbed():
            self.house.catch_up()
            while happened := executor.run_next(self.lock.let_through):
                with self.lock:
                    for event in happened:
                        self.handle(event)
                    self._changed.notify_all()
                self.house.catch_up()
                if (interrupted := executor.take_interrupted()) is not None:
                    self.unobserved.pop(interrupted, None)  # the program hears of it here, and deals with it
                    raise KeyboardInterrupt

    # --- commands -----------------------------------------------------------------------------------------------

    def _carry_out(self, command: commands.Command, now: float) -> events.Event | None:
        if type(command) is Launch:
            if self._log.active:
                self.recorder.launched(command, now)
            if command.redirected:
                self.house.reserve(command.layer)
            self.executor.launch(command)
            return None
        return self._carry_out_rare(command, now)

    def _carry_out_rare(self, command: commands.Command, now: float) -> events.Event | None:
        match command:
            case commands.Free():
                self.house.free(command, now)
            case commands.Spill():
                self.house.spills.spill(command)
            case commands.Restore():
                self.house.spills.restore(command)
            case commands.Divert():
                self.house.divert(command)
            case commands.DropState(one):
                self.drop_state(one)
            case commands.HoldStates():
                self.hold_states()
            case commands.Recall(_, lane):
                return self.executor.recall(lane)
            case commands.Kill(_, lane, ask):
                self.executor.kill(lane, ask)
            case commands.Warm(_, executors):
                return self.executor.warm(executors)
            case commands.Claim(layer):
                self.sharing.claim(layer)
            case commands.Sample(_, layer):
                return self.executor.sample(layer)
            case commands.Publish():
                self.house.publish(command)
            case commands.Move():
                self.house.move(command)
            case commands.Discard():
                self.house.discard(command)
        return None
