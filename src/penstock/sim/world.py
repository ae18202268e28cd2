"""An engine on virtual time: its master, its clock and its executor. Whoever runs a program or a workload drives it.

    tell(event) ─▶ inbox ─▶ Engine.handle(event, now) ─▶ commands ─▶ Executor ─ events ─▶ inbox

Time stands still until somebody lets it pass: ``run_until``, ``run_to``. The master takes up one event at a time. While
it decides, events queue, and what it decided is carried out when it is done: what scheduling costs shows in the end.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from functools import partial
from math import isfinite
from time import perf_counter
from typing import Literal

from msgspec import Struct

from penstock.engine.engine import Engine
from penstock.engine.placement import STALL
from penstock.errors import ConfigError
from penstock.model import events
from penstock.model.commands import Command, Launch, Move, Settle
from penstock.model.resources import Node
from penstock.model.tasks import FailureKind
from penstock.sim.clock import Clock
from penstock.sim.executor import Executor
from penstock.sim.files import MakeDevice, make_device
from penstock.sim.network import Network
from penstock.sim.observer import Observer
from penstock.sim.work import NO_COSTS, Costs, WorkOf

__all__ = ["DecisionSeconds", "Master", "Waiting", "World"]

#: seconds that the master needs for each event; told by a function that looks at the engine after it has handled one;
#: or what handling it takes in truth, which differs from run to run
DecisionSeconds = float | Callable[[Engine], float] | Literal["measured"]

#: what happens at the same time as others: results first, then what the program does
_PROGRAM = 1


class Master(Struct):
    """What the master did."""

    events: int = 0
    #: seconds that it decided
    busy: float = 0.0
    #: events at a time that waited for it to take them up
    longest_queue: int = 0


class Waiting(Struct):
    """Seconds that ready tasks waited for a place, all tasks together."""

    compute: float = 0.0
    io: float = 0.0


class World:
    """Virtual time, and everything that happens in it."""

    def __init__(
        self,
        engine: Engine,
        work: WorkOf,
        *,
        decision_seconds: DecisionSeconds = 0.0,
        network: Network | None = None,
        costs: Costs = NO_COSTS,
        io_costs: Costs = NO_COSTS,
        stream_bandwidth: Mapping[str, float] | None = None,
        room: Mapping[str, int] | None = None,
        device: MakeDevice = make_device,
        settled: Callable[[Settle], None] | None = None,
    ) -> None:
        if isinstance(decision_seconds, int | float) and not (decision_seconds >= 0 and isfinite(decision_seconds)):
            raise ConfigError(f"decision_seconds={decision_seconds}; it must be a finite number, zero or above")
        if isinstance(decision_seconds, str) and decision_seconds != "measured":
            raise ConfigError(f"decision_seconds={decision_seconds!r}; the only word for it is 'measured'")
        self.engine = engine
        self.clock: Clock[Callable[[], None]] = Clock()
        self.observer: Observer | None = None
        #: called after each event that the engine was told, with the time
        self.watch: Callable[[float, events.Event], None] | None = None
        self.master = Master()
        self.waiting = Waiting()
        #: tasks that failed for good, by reason
        self.failures: Counter[FailureKind] = Counter()
        #: what was learned about constraints, in order
        self.notes: list[events.Note] = []
        self._inbox: deque[events.Event] = deque()
        self.executor = Executor(
            work,
            self.clock,
            self._inbox.append,
            network=network,
            costs=costs,
            io_costs=io_costs,
            stream_bandwidth=stream_bandwidth,
            room=room,
            device=device,
            fetched=self._show_fetched,
        )
        self._decision_seconds = decision_seconds
        #: seconds that the engine really took for the last event, if that is measured
        self._taken = 0.0
        #: told of versions that come to exist, or never will
        self._settled = settled
        self._deciding = False
        #: moves under way, and since when
        self._moves: dict[int, tuple[Move, float]] = {}
        #: a Ticked is in the inbox; the last event was one
        self._tick_waits = False
        self._just_ticked = False
        #: no Ticked is due before
        self._no_look_before = 0.0

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return self.clock.now

    @property
    def idle(self) -> bool:
        """Whether the master has nothing to do."""
        return not self._inbox and not self._deciding

    # --- what others tell ---------------------------------------------------------------------------------------------

    def join(self, node: Node) -> None:
        """A node is there, and the master knows at once."""
        event = events.NodeJoined(node)
        self._carry_out(self._handle(event))

    def lose(self, name: str) -> None:
        """A node is gone; the master will hear of it."""
        if self.executor.has(name):
            self.executor.lose(name)

    def vary(self, device: str, speed: float, strangers: int) -> None:
        """A device, by the name that outcomes show, becomes slower or faster, or others use it."""
        self.executor.transfers.vary(self.executor.files.devices[device], speed, strangers)

    def post(self, event: events.Event) -> None:
        """Something happened; the master takes it up when time is let pass, after what happened before."""
        self._inbox.append(event)

    def tell(self, event: events.Event) -> None:
        """The program says something and waits until the master has dealt with it, which may take time."""
        if not self._decision_seconds:
            self._inbox.append(event)
            self._attend()
            return
        self._inbox.append(event)
        number = self.master.events + self._deciding + len(self._inbox)
        self.run_until(lambda: self.master.events >= number)

    def at(self, time: float, happens: Callable[[], None]) -> None:
        """Have something happen at a time, or now if that has passed; after all else that happens at that time."""
        self.clock.at(max(time, self.clock.now), happens, _PROGRAM)

    # --- time ---------------------------------------------------------------------------------------------------------

    def run_until(self, reached: Callable[[], bool]) -> bool:
        """Let time pass until a condition holds; it is looked at after everything that happens.

        False if it does not hold and nothing will ever happen any more.
        """
        while True:
            self._attend()
            if reached():
                return True
            if not self._step():
                return False

    def run_to(self, time: float) -> None:
        """Let time pass up to a time; everything that happens then has happened."""
        if time > self.clock.now:
            here: list[float] = []
            self.at(time, lambda: here.append(time))
            self.run_until(lambda: bool(here))

    def drain(self) -> bool:
        """The program is over: bring all files home. False if that cannot be."""
        state = self.engine.state
        if not self.run_until(lambda: self.idle and not state.publishing):
            return False
        if self.observer is not None:
            self.observer.draining(self.clock.now)
        self.tell(events.Draining())
        return self.run_until(lambda: self.idle and not (state.moving or state.discarding or state.publishing))

    def _attend(self) -> None:
        """The master takes up what is in the inbox, unless it is busy."""
        inbox = self._inbox
        if not self._decision_seconds:
            while inbox:
                event = inbox.popleft()
                self._carry_out(self._handle(event))
        elif inbox and not self._deciding:
            self.master.longest_queue = max(self.master.longest_queue, len(inbox))
            self._decide(inbox.popleft())

    def _decide(self, event: events.Event) -> None:
        seconds = self._decision_seconds
        commands = self._handle(event)
        if callable(seconds):
            cost = seconds(self.engine)
        else:
            cost = self._taken if seconds == "measured" else float(seconds)
        self._deciding = True
        self.master.busy += cost
        self.clock.at(self.clock.now + cost, partial(self._decided, commands))

    def _decided(self, commands: list[Command]) -> None:
        self._deciding = False
        self._carry_out(commands)

    def _step(self) -> bool:
        """Go on to the next time at which something happens; False if nothing will."""
        clock = self.clock
        self.executor.transfers.plan()
        time = clock.next_time()
        look = self._next_look(time)
        if look is not None and (time is None or look < time):
            self._pass(look)
            clock.advance(max(look, clock.now))
            self._tick_waits = True
            self._inbox.append(events.Ticked())
        elif time is not None:
            if time > clock.now:
                self._pass(time)
            clock.pop()()
        else:
            return False
        return True

    def _pass(self, until: float) -> None:
        """Count what waits while time passes."""
        state = self.engine.state
        seconds = max(0.0, until - self.clock.now)
        self.waiting.compute += (len(state.ready) + len(state.gangs)) * seconds
        self.waiting.io += len(state.io_ready) * seconds

    def _next_look(self, before: float | None) -> float | None:
        """When the engine is to look at the time, if that may be before the next thing happens."""
        state = self.engine.state
        lively = state.deadlines or state.pauses or len(state.io_ready) or state.courses or state.steered
        if self._tick_waits or not (lively or state.backlogged):
            return None
        # Lanes alone are looked at some time after their head began, so what begins now brings no look forward.
        if not lively and before is not None and before < self._no_look_before:
            return None
        look = self.engine.next_look()
        now = self.clock.now
        self._no_look_before = now + STALL if look is None else min(look, now + STALL)
        # Whatever a look just now did not change, another one will not.
        return None if look is not None and look <= now and self._just_ticked else look

    # --- the engine ---------------------------------------------------------------------------------------------------

    def _handle(self, event: events.Event) -> list[Command]:
        """Tell the engine."""
        state = self.engine.state
        if self._decision_seconds == "measured":
            began = perf_counter()
            commands = self.engine.handle(event, self.clock.now)
            self._taken = perf_counter() - began
        else:
            commands = self.engine.handle(event, self.clock.now)
        if state.reports or state.notes or self.observer is not None or self.watch is not None:
            self._show(event)
        kind = type(event)
        self._just_ticked = kind is events.Ticked
        if self._just_ticked:
            self._tick_waits = False
        elif kind is events.NodeJoined:
            self.executor.join(event.node)  # type: ignore[union-attr, arg-type]
        return commands

    def _show(self, event: events.Event) -> None:
        """Pass on what the engine was told and says about it."""
        now, state, observer = self.clock.now, self.engine.state, self.observer
        if observer is not None:
            observer.event(event, now)
            if type(event) is events.Moved:
                move, since = self._moves.pop(event.version)
                stored = self.executor.files.stored(event.path)
                observer.moved(move, 0 if stored is None else stored.size, now - since, event.error, now)
            elif type(event) is events.Published:
                observer.published(event.version, event.path, now)
        if state.reports:
            reports = [report for report in state.reports if type(report) is events.Report]
            self.failures.update(report.failure.kind for report in reports if report.final)
            if observer is not None:
                observer.reports(now)
            state.reports.clear()
        if state.notes:
            self.notes += state.notes
            if observer is not None:
                observer.notes(now)
            state.notes.clear()
        if self.watch is not None:
            self.watch(now, event)

    def _show_fetched(self, launch: Launch, seconds: float, size: int) -> None:
        if self.observer is not None:
            self.observer.fetched(launch.task, launch.attempt, seconds, size, self.clock.now)

    def _carry_out(self, commands: list[Command]) -> None:
        self.master.events += 1
        for command in commands:
            if type(command) is Launch:
                if self.observer is not None:
                    self.observer.launched(command, self.clock.now)
                self.executor.launch(command)
                continue
            if type(command) is Settle and self._settled is not None:
                self._settled(command)
            elif type(command) is Move:
                self._moves[command.version] = (command, self.clock.now)
            self.executor.carry_out(command)
