"""One simulated run: a workload, nodes, and the same engine that drives real runs.

    workload ─ Submitted ─▶ inbox ─▶ Engine.handle(event, now) ─▶ commands ─▶ Executor ─ events ─▶ inbox

The program calls its tasks one after the other. The master handles one event at a time and may need time for each, so
that what scheduling costs shows in the makespan. When all tasks are over, the files go home, as at the end of a run.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from penstock.engine.engine import Engine
from penstock.engine.placement import STALL
from penstock.engine.state import StorageRules
from penstock.errors import ConfigError, InternalError
from penstock.model import events
from penstock.model.resources import Node
from penstock.model.tasks import FailureKind
from penstock.scheduling import ready_queues, registry
from penstock.scheduling.compute import Fifo, Lifo
from penstock.sim.clock import Clock
from penstock.sim.executor import Executor
from penstock.sim.workloads import Workload

__all__ = ["DeviceUse", "Outcome", "Simulation"]

#: what happens at the same time as others: results first, then what the program does
_PROGRAM = 1


class DeviceUse(Struct, frozen=True):
    """What was asked of a storage device."""

    transferred: float
    #: seconds in which there was any stream
    busy: float


class Outcome(Struct, frozen=True):
    """What came of a simulated run; times in seconds from its start."""

    #: when the last task was over
    makespan: float
    #: when all files were home too
    end: float
    done: int
    failed: int
    #: tasks that failed, by reason
    failures: dict[FailureKind, int]
    #: computing units times seconds that attempts held them, by node
    busy: dict[str, float]
    #: by layer, with the node's name before it unless the layer is shared
    devices: dict[str, DeviceUse]
    #: what was learned about constraints, in order
    notes: list[events.Note]
    #: what the engine was told, if that was to be recorded
    log: list[tuple[float, events.Event]]

    @property
    def epochs(self) -> list[events.EpochEnded]:
        return [note for note in self.notes if isinstance(note, events.EpochEnded)]

    @property
    def chosen(self) -> list[events.ConstraintChosen]:
        return [note for note in self.notes if isinstance(note, events.ConstraintChosen)]


class Simulation:
    """To be run once."""

    def __init__(
        self,
        nodes: Iterable[Node],
        workload: Workload,
        *,
        scheduler: str = "fifo",
        rules: StorageRules | None = None,
        seed: int = 0,
        decision_seconds: float = 0.0,
        stream_bandwidth: Mapping[str, float] | None = None,
        record: bool = False,
        watch: Callable[[float, events.Event], None] | None = None,
    ) -> None:
        policy = registry.policy(scheduler)
        self.engine = Engine(
            ready_queues.ready_set(policy), follows_data=not isinstance(policy, Fifo | Lifo), storage=rules
        )
        self._nodes = list(nodes)
        self._workload = workload
        self._calls = deque(workload.submissions())
        #: virtual seconds that the master needs for each event
        self._decision_seconds = decision_seconds
        self._clock: Clock[Callable[[], None]] = Clock()
        self._inbox: deque[events.Event] = deque()
        self.executor = Executor(
            self._nodes, workload, self._clock, self._inbox.append, seed=seed, stream_bandwidth=stream_bandwidth
        )
        self._record = record
        #: called after each event that the engine was told
        self._watch = watch
        self._deciding = False
        #: a Ticked is in the inbox; the last event was one
        self._tick_waits = False
        self._just_ticked = False
        #: no Ticked is due before
        self._no_look_before = 0.0
        self._failures: Counter[FailureKind] = Counter()
        self._notes: list[events.Note] = []
        self._log: list[tuple[float, events.Event]] = []

    def run(self) -> Outcome:
        """Run all tasks, bring all files home, and tell how it went."""
        self._join()
        self._call_next()
        self._run_until(lambda: not self._calls and not self.engine.unfinished and not self._inbox)
        makespan = self._clock.now
        state = self.engine.state
        self._run_until(lambda: not state.publishing)
        self._inbox.append(events.Draining())
        self._run_until(lambda: not self._inbox and not (state.moving or state.discarding or state.publishing))
        devices = self.executor.files.devices.items()
        return Outcome(
            makespan,
            self._clock.now,
            state.done,
            len(self._workload.jobs) - state.done,
            dict(self._failures),
            self.executor.busy,
            {name: DeviceUse(device.served, device.busy) for name, device in devices},
            self._notes,
            self._log,
        )

    def _join(self) -> None:
        if not self._nodes:
            raise ConfigError("a simulation needs at least one node")
        for node in self._nodes:
            self._handle(events.NodeJoined(node))
        for spec in self._workload.specs():
            self.engine.ensure_possible(spec.name, spec.requirements)

    def _call_next(self) -> None:
        """The program calls its next task, or waits until it is time to."""
        if not self._calls:
            return
        at = self._workload.jobs[self._calls[0].call.task - 1].at
        if at > self._clock.now:
            self._clock.at(at, self._call_next, _PROGRAM)
        else:
            self._inbox.append(self._calls.popleft())

    # --- time ---------------------------------------------------------------------------------------------------------

    def _run_until(self, reached: Callable[[], bool]) -> None:
        while True:
            self._attend()
            if reached():
                return
            self._step()

    def _attend(self) -> None:
        """The master takes up what is in the inbox, unless it is busy."""
        inbox = self._inbox
        if not self._decision_seconds:
            while inbox:
                self._handle(inbox.popleft())
        elif inbox and not self._deciding:
            self._deciding = True
            self._clock.at(self._clock.now + self._decision_seconds, self._decided)

    def _decided(self) -> None:
        self._deciding = False
        self._handle(self._inbox.popleft())

    def _step(self) -> None:
        """Go on to the next time at which something happens."""
        self.executor.plan()
        clock = self._clock
        time = clock.next_time()
        look = self._next_look(time)
        if look is not None and (time is None or look < time):
            clock.advance(max(look, clock.now))
            self._tick_waits = True
            self._inbox.append(events.Ticked())
        elif time is not None:
            clock.pop()()
        else:
            waiting = [task.label for task in self.engine.state.tasks.values()][:3]
            raise InternalError(f"the simulation stands still at {clock.now}: {', '.join(waiting)} wait for ever")

    def _next_look(self, before: float | None) -> float | None:
        """When the engine is to look at the time, if that may be before the next thing happens."""
        state = self.engine.state
        lively = state.deadlines or len(state.io_ready) or state.courses
        if self._tick_waits or not (lively or state.backlogged):
            return None
        # Lanes alone are looked at some time after their head began, so what begins now brings no look forward.
        if not lively and before is not None and before < self._no_look_before:
            return None
        look = self.engine.next_look()
        now = self._clock.now
        self._no_look_before = now + STALL if look is None else min(look, now + STALL)
        # Whatever a look just now did not change, another one will not.
        return None if look is not None and look <= now and self._just_ticked else look

    # --- the engine ---------------------------------------------------------------------------------------------------

    def _handle(self, event: events.Event) -> None:
        now = self._clock.now
        state = self.engine.state
        commands = self.engine.handle(event, now)
        if state.reports:
            self._failures.update(report.failure.kind for report in state.reports if report.final)
            state.reports.clear()
        if state.notes:
            self._notes += state.notes
            state.notes.clear()
        if self._record:
            self._log.append((now, event))
        if self._watch is not None:
            self._watch(now, event)
        kind = type(event)
        self._just_ticked = kind is events.Ticked
        if self._just_ticked:
            self._tick_waits = False
        for command in commands:
            self.executor.carry_out(command)
        if kind is events.Submitted:
            self._call_next()
