"""The driver of a simulated run: virtual time around the engine, with no thread and no process of its own.

    program ── handle(event) ──▶ World.tell ──▶ engine ──▶ simulated executor
    program waits ──▶ World.run_until ──▶ … ──▶ Settle ──▶ futures

Time stands still while the program computes and passes while it waits, with all its threads. What may run user code
(callbacks of futures) happens after the lock is released, between two steps of time.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from typing import Any

from penstock.engine.engine import Engine
from penstock.errors import PenstockError, RuntimeStopped
from penstock.model import commands, events
from penstock.model.commands import Launch
from penstock.model.tasks import Failure, FailureKind
from penstock.own_threads import OwnThread
from penstock.runtime.settling import Settling
from penstock.runtime.simulated_threads import ProgramThreads
from penstock.sim.executor import Executor
from penstock.sim.work import Work
from penstock.sim.world import World

__all__ = ["NoHouse", "SimulatedDriver"]

#: real seconds after which a thread looks again whether others have called something that it can wait for
_TURN = 0.05
#: real seconds without computing after which a program is taken to wait
_ASLEEP = 0.1
#: works at which those of tasks that are over are dropped
_SWEEP = 10_000


class NoHouse:
    """In the place of the housekeeping of a real run: there is nothing on any disk."""

    def __init__(self) -> None:
        #: files that could not be given their name
        self.unnamed: dict[str, Failure] = {}
        #: files that are being deleted
        self.deleting: set[str] = set()

    def finish(self) -> None:
        """Nothing is under way."""


class SimulatedDriver(Settling):
    """Lets virtual time pass."""

    def __init__(self, engine: Engine, options: Mapping[str, Any], *, main_time: bool) -> None:
        super().__init__()
        self.engine = engine
        self.world = World(engine, self._work, settled=self._version_settled, **options)
        self.house = NoHouse()
        #: called when the program has waited, with when it began to
        self.on_wait: Callable[[float, float], None] | None = None
        #: what the calls of a function do if each does the same, by its number; else by task, and by function in there
        self.fixed_works: dict[int, Work] = {}
        self._works: dict[int, dict[int, Work]] = {}
        self._sweep_at = _SWEEP
        #: tasks whose work is planned, and which another thread may just be about to submit
        self._to_be_called: set[int] = set()
        #: when the program got control, if its own time counts
        self._program_since: float | None = time.perf_counter() if main_time else None
        self._threads = ProgramThreads(lambda: self.world.master.events)
        self._stopping = False
        self._watch: threading.Thread | None = None

    @property
    def executor(self) -> Executor:
        """All nodes of the run."""
        return self.world.executor

    @property
    def now(self) -> float:
        """Virtual seconds since the start."""
        return self.world.now

    # --- what attempts do ---------------------------------------------------------------------------------------------

    def plan(self, task: int, works: dict[int, Work]) -> None:
        """Note what the attempts of a task will do, by the number of the function that is chosen for it."""
        with self.lock:
            if len(self._works) >= self._sweep_at:
                needed = self.engine.state.tasks.keys() | self._to_be_called
                self._works = {number: kept for number, kept in self._works.items() if number in needed}
                self._sweep_at = max(_SWEEP, 2 * len(self._works))
            self._works[task] = works
            self._to_be_called.add(task)

    def called(self, task: int) -> None:
        """A task was submitted: its work is needed as long as the engine knows it."""
        self._to_be_called.discard(task)

    def _work(self, launch: Launch) -> Work:
        planned = self._works.get(launch.task)
        function = launch.call.spec.function
        return self.fixed_works[function] if planned is None else planned[function]

    # --- events -------------------------------------------------------------------------------------------------------

    def post(self, *happened: events.Event) -> None:
        """Tell the engine, and do what it says."""
        with self.lock:
            for event in happened:
                self.handle(event)
        self.after()

    def handle(self, event: events.Event) -> None:
        """Tell the engine one event, which may take virtual time; the caller holds the lock."""
        if self.released:
            self._let_go()
        self.world.tell(event)

    def _let_go(self) -> None:
        """Pass on what finalisers noted."""
        while self.released:
            self.world.post(events.Released(self.take_released()))

    def _version_settled(self, command: commands.Settle) -> None:
        answer = self._settle(command)
        if answer is not None:
            self.world.post(answer)

    def after(self) -> None:
        """What must not happen under the lock; every holder calls this once it has let go."""
        if self._announcements:
            self._announce()

    def submitted(self) -> None:
        """Nothing is collected on the way: time does not pass while the program calls."""

    def wake(self) -> None:
        """Nobody sleeps."""

    def awaiting(self) -> contextlib.AbstractContextManager[None]:
        """Around a wait of the standard library, whose events come to ``wait_until``."""
        return contextlib.nullcontext()

    # --- time ---------------------------------------------------------------------------------------------------------

    def wait_until(self, reached: Callable[[], bool], timeout: float | None = None) -> bool:
        """Let time pass until a condition holds, but no more than ``timeout`` virtual seconds."""
        with self.program_waits():
            late: list[bool] = []
            if timeout is not None and isfinite(timeout):
                with self.lock:
                    self.world.at(self.now + timeout, lambda: late.append(True))
            # A callback that waits cannot have others called meanwhile: they come after it.
            calls_back = threading.get_ident() not in self._announcing
            go_on = self._threads.anyone_may_go_on
            with self._threads.waiting(lambda: reached() or bool(late)):
                while not reached():
                    if late:
                        return False
                    if self._stopping:
                        raise RuntimeStopped("the runtime was stopped by another thread")
                    if not self._run(lambda: go_on() or (calls_back and bool(self._announcements))):
                        self._stand_still(reached)
            return True

    def let_pass(self) -> bool:
        """Go on to whatever happens next; False if nothing will."""
        once = iter((False,))
        with self.program_waits():
            return self._run(lambda: next(once, True))

    def _run(self, until: Callable[[], bool]) -> bool:
        """Let time pass once all threads wait. False if nothing will happen any more."""
        seen = self._threads.settle_down()
        with self.lock:
            self._let_go()
            if self._threads.sight() != seen:
                return True  # somebody was quicker
            happened = self.world.run_until(until)
            self._changed.notify_all()
        self.after()
        return happened

    def _stand_still(self, reached: Callable[[], bool]) -> None:
        """Nothing will happen by itself: wait for another thread, if there is one that could call something."""
        here = threading.current_thread()
        if not any(one is not here and type(one) is not OwnThread for one in threading.enumerate()):
            waiting = ", ".join(task.label for task in list(self.engine.state.tasks.values())[:3])
            raise PenstockError(
                f"the program waits for what can never happen: virtual time stands still at {self.now:g} s"
                + (f" and {waiting} cannot go on" if waiting else "")
            )
        with self.lock:
            if not reached():
                self._changed.wait(_TURN)

    @contextlib.contextmanager
    def program_waits(self) -> Iterator[None]:
        """Around what the program asks of us: the time that it took for itself passes first, if that counts."""
        self.count_program()
        began = self.now
        try:
            yield
        finally:
            if self.on_wait is not None and self.now > began:
                self.on_wait(began, self.now)
            if self._program_since is not None:
                self._program_since = time.perf_counter()

    def count_program(self) -> None:
        """Let the real time pass, in virtual time, that the program took since it got control; if that counts."""
        if self._program_since is not None:
            real = time.perf_counter()
            seconds, self._program_since = real - self._program_since, real
            with self.lock:
                self._let_go()
                self.world.run_to(self.now + seconds)
            self.after()

    def program_goes_on(self) -> None:
        """The program has control again."""
        if self._program_since is not None:
            self._program_since = time.perf_counter()

    def await_names(self) -> None:
        """Wait for files that are just being given their names."""
        if not self._stopping:
            self.wait_until(lambda: not self.engine.naming)

    # --- a program that sleeps --------------------------------------------------------------------------------------

    def watch_sleepers(self) -> None:
        """From now on, notice when the program waits for something that only a callback can bring about."""
        if self._watch is None:
            self._watch = OwnThread("time", self._wake_sleepers)
            self._watch.start()

    def _wake_sleepers(self) -> None:
        """Let time pass whenever the program has neither computed nor called anything for a while."""
        while not self._stopping:
            before = time.process_time(), self.world.master.events
            time.sleep(_ASLEEP)
            computed = time.process_time() - before[0]
            idle = computed < _ASLEEP / 10 and self.world.master.events == before[1]
            if idle and self.engine.unfinished and not self._stopping:
                self._run(lambda: bool(self._announcements))

    def stop(self, *, drain: bool) -> None:
        """Unfinished tasks are abandoned, and files go home."""
        self._stopping = True
        self._give_up(Failure(FailureKind.STOPPED, "the runtime was stopped before this task was over"))
        if drain:
            with self.lock:
                self._let_go()
                self.world.drain()
