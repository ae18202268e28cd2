"""A simulated run: a call finds what it depends on as in a real run, and goes to the same engine on virtual time.

    call ─▶ SimulatedArguments.pack ─▶ Submitted ─▶ SimulatedDriver ─▶ engine, virtual nodes ─▶ Settle ─▶ placeholder

Nothing on any disk changes, but for an event log that was asked for.
"""

from __future__ import annotations

import os
import sys
import time
import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count, islice
from typing import Any, ClassVar, Protocol

from msgspec import Struct
from msgspec.structs import replace

from penstock.data.segments import Segments
from penstock.engine.engine import Engine
from penstock.engine.state import StorageRules
from penstock.errors import RuntimeStopped, SimulatedValueError
from penstock.executors.saying import say
from penstock.executors.tracebacks import describe
from penstock.graph.identity import Datum, Identity
from penstock.model.data import Value, VersionId
from penstock.model.events import NodeJoined, Provided
from penstock.model.resources import Node
from penstock.model.tasks import Failure, FailureKind, OnFailure, TaskCall, TaskSpec
from penstock.observe.log import EventLog
from penstock.observe.records import RunEnded
from penstock.persistent.where import save_unsaved, unsaved
from penstock.runtime import session
from penstock.runtime.arguments import packed
from penstock.runtime.declaration import Declaration
from penstock.runtime.engine_lock import CallingLock
from penstock.runtime.futures import Future
from penstock.runtime.machine import this_machine
from penstock.runtime.memories import Memories, Token
from penstock.runtime.own_results import OwnResults
from penstock.runtime.persistent_data import KnownObject, PersistentData
from penstock.runtime.policies import ready_set
from penstock.runtime.profiles import Profiles
from penstock.runtime.recorder import Recorder
from penstock.runtime.runtime import Runtime
from penstock.runtime.simple_arguments import EMPTY, is_immutable
from penstock.runtime.simulated_arguments import SimulatedArguments, work_of
from penstock.runtime.simulated_driver import SimulatedDriver
from penstock.runtime.simulated_durations import Durations, Timing
from penstock.runtime.simulated_files import SimulatedFiles
from penstock.runtime.simulated_functions import SimulatedFunctions
from penstock.runtime.simulated_nodes import simulated_nodes
from penstock.runtime.simulated_values import NeverThere, SimulatedFuture, program_line, stand_in
from penstock.runtime.tuning import Tuning
from penstock.sim.network import Network
from penstock.sim.observer import Observer
from penstock.sim.outcomes import Outcome, outcome_of
from penstock.sim.work import Work
from penstock.sim.workloads import Seconds
from penstock.sim.world import DecisionSeconds
from penstock.version import __version__

__all__ = ["Plan", "ProgramObserver", "SimulatedRuntime"]

_SHARED = Value(b"")


class ProgramObserver(Observer, Protocol):
    """Looks on while a program is simulated."""

    def attach(self, engine: Engine) -> None:
        """Called before anything happens."""

    def waited(self, since: float, now: float) -> None:
        """The program waited for tasks."""


class Plan(Struct, forbid_unknown_fields=True):
    """How the runs of a program are simulated."""

    #: None: as settings describe them
    nodes: list[Node] | None = None
    scheduler: str | None = None
    rules: StorageRules | None = None
    durations: Mapping[str, Seconds] | None = None
    default_duration: Seconds | None = None
    seed: int = 0
    observer: ProgramObserver | None = None
    network: Network | None = None
    decision_seconds: DecisionSeconds = 0.0
    main_time: bool = False
    lost: Sequence[tuple[float, str]] = ()
    joins: Sequence[tuple[float, Node]] = ()
    #: of the runs that are over
    outcomes: list[Outcome] = []


class SimulatedRuntime(Runtime):
    """Simulates tasks instead of running them; made by ``Runtime(...)`` in simulated mode."""

    simulated = True
    driver: SimulatedDriver  # type: ignore[assignment]
    functions: SimulatedFunctions
    files: SimulatedFiles
    _future: ClassVar[type[Future[Any]]] = SimulatedFuture

    def __init__(self, **settings: Any) -> None:
        self._plan = plan = session.simulation or Plan()
        self.config = config = self.loaded.config
        self.machine = this_machine()
        self.nodes = simulated_nodes(config) if plan.nodes is None else plan.nodes
        self.cpus = sum(node.cpus for node in self.nodes)
        self.layers = self.nodes[0].storage
        self._pid = os.getpid()
        self.segments = Segments("", "", writer=0, alone=True)  # nothing is ever put there
        self.tuning = Tuning(config.tuning)
        self.profiles = Profiles(config.profiles)
        ready, follows_data = ready_set(plan.scheduler or config.scheduler)
        rules = plan.rules or self.tuning.rules(self.config)
        engine = Engine(ready, follows_data=follows_data, storage=rules, elastic=bool(plan.joins))
        options = {"decision_seconds": plan.decision_seconds, "network": plan.network}
        self.driver = SimulatedDriver(engine, options, main_time=plan.main_time)
        self.durations = Durations(plan.durations or {}, plan.default_duration, plan.seed)
        self.functions = SimulatedFunctions(
            engine,
            self.segments,
            self.tuning,
            self.profiles,
            config.constraints,
            config.retry_delay,
            self.durations,
        )
        self.objects = PersistentData(self, "memory:", None)
        self.identity = Identity(self._version_gone)
        self.memories = Memories(self)  # which stays empty: nothing is ever changed
        self.own_results = OwnResults(self)
        self.files = SimulatedFiles(self.driver.executor.files, session.outside_files)
        self.given_up = set()
        self.claims = None  # no file is written
        self.stopped = False
        self.calling = CallingLock(self.driver.lock)
        self._task_numbers = count(1)
        self._version_numbers = count(1)
        self.new_version = self._version_numbers.__next__
        self._window = config.window
        self.stored: weakref.WeakSet[Any] = weakref.WeakSet()
        self.copied: weakref.WeakSet[Any] = weakref.WeakSet()
        self._be_observed()
        self._join_nodes()

    def _be_observed(self) -> None:
        """Have an event log written, or whoever looks on told of everything."""
        config, plan, driver = self.config, self._plan, self.driver
        self.run_dir = config.run_dir or ""
        path = None
        if config.writes_log and self.run_dir and plan.observer is None:
            os.makedirs(self.run_dir, exist_ok=True)
            path = os.path.join(self.run_dir, "events.jsonl")
        self.log = EventLog(path)
        if plan.observer is not None:
            plan.observer.attach(driver.engine)
            driver.world.observer, driver.on_wait = plan.observer, plan.observer.waited
            return
        for callback in session.on_start:
            callback(self)
        if self.log.active:
            recorder = Recorder(self.log, driver.engine, self.nodes[0].name, 0.0)
            driver.world.observer, driver.on_wait = recorder, recorder.waited
            scheduler = plan.scheduler or config.scheduler
            recorder.started(__version__, list(sys.argv), scheduler, self.nodes, time.time())

    def _join_nodes(self) -> None:
        world, plan = self.driver.world, self._plan
        for node in self.nodes:
            world.join(node)
        for when, node in plan.joins:
            world.at(when, lambda node=node: world.post(NodeJoined(node)))  # type: ignore[misc]
        for when, name in plan.lost:
            world.at(when, lambda name=name: world.lose(name))  # type: ignore[misc]

    @property
    def now(self) -> float:
        """Virtual seconds since the start."""
        return self.driver.now

    # --- calls --------------------------------------------------------------------------------------------------

    def call(  # type: ignore[override]  # all futures are alike here
        self, declaration: Declaration, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Submit a call; gives its future, or a list of them."""
        if self.stopped:
            raise RuntimeStopped(f"task {declaration.name} was called after stop(); start another runtime first")
        if declaration.streams:
            raise SimulatedValueError(
                f"{program_line()}: task {declaration.name} has any number of outputs (returns=...), and only its body "
                f"knows how many; a simulated run does not execute it. Declare returns=N."
            )
        if unsaved:
            save_unsaved(every=False)
        driver = self.driver
        driver.count_program()
        spec = self.functions.spec(declaration)
        declaration.check(args, kwargs)
        with self.calling:
            task = next(self._task_numbers)
            returned = tuple(islice(self._version_numbers, declaration.outputs))
            arguments = None
            reads = None if declaration.directions or kwargs else self._plain_reads(args)
            if reads is not None:
                call = TaskCall(task, spec, EMPTY, reads, reads=reads, writes=returned, returns=len(returned))
            else:
                sizes = declaration.size if not callable(declaration.size) else None
                make = partial(SimulatedArguments, self, declaration, task, sizes)
                arguments, value = packed(make, args, kwargs)
                call = arguments.wiring.call(task, spec, value, returned)
            if declaration.label is not None:
                call = replace(call, label=declaration.label_of(args, kwargs))
            values = self._plan_work(declaration, call, args, kwargs)
            futures: list[Any] = self._submit(call, returned, arguments)
        driver.called(task)
        for index, future in enumerate(futures):
            doomed = values is None
            future.describe(() if values is None else values[index : index + 1], doomed=doomed)
        driver.after()
        if driver.engine.unfinished >= self._window:
            driver.wait_until(lambda: driver.engine.unfinished < self._window * 0.9)
        driver.program_goes_on()
        return futures[0] if declaration.returns <= 1 else futures

    def _plain_reads(self, args: tuple[Any, ...]) -> tuple[VersionId, ...] | None:
        """What a call reads whose arguments are futures and what cannot hold any; None if there are others."""
        reads: dict[VersionId, None] = {}
        for value in args:
            if type(value) is SimulatedFuture and value._runtime is self:
                reads[value._version] = None
            elif not is_immutable(value):
                return None
        return tuple(reads)

    def _plan_work(
        self, declaration: Declaration, call: TaskCall, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, ...] | None:
        """Note what the call's attempts will do; gives what it will return, as far as that is declared.

        None if it is declared to fail, or needs a value of one that is.
        """
        spec = call.spec
        timing = self.functions.timings[spec.function]
        if declaration.simulated is None and not timing.asks and not spec.implementations:
            self._plan_plain_work(declaration, call, timing)
            return ()
        try:
            args, kwargs = tuple(map(stand_in, args)), {name: stand_in(value) for name, value in kwargs.items()}
        except NeverThere:
            self.driver.plan(call.task, {doing.function: Work() for _, doing in _implementations(declaration, spec)})
            return None
        values, failure = _simulated_values(declaration, args, kwargs)
        works = {}
        for one, doing in _implementations(declaration, spec):
            timing = self.functions.timings[doing.function]
            work = work_of(call, one, timing, timing.seconds(args, kwargs), timing.sizes(args, kwargs))
            works[doing.function] = work if failure is None else _failing(work, failure)
        self.driver.plan(call.task, works)
        if failure is None:
            return values
        return (None,) * declaration.outputs if declaration.on_failure is OnFailure.IGNORE else None

    def _plan_plain_work(self, declaration: Declaration, call: TaskCall, timing: Timing) -> None:
        """What the call does does not depend on its arguments."""
        fixed_works, function = self.driver.fixed_works, call.spec.function
        if not timing.fixed or call.outputs:
            work = work_of(call, declaration, timing, timing.seconds((), {}), timing.sizes((), {}))
            self.driver.plan(call.task, {function: work})
        elif function not in fixed_works:
            fixed_works[function] = work_of(call, declaration, timing, timing.seconds((), {}), timing.sizes((), {}))

    # --- data ---------------------------------------------------------------------------------------------------

    def share(self, obj: Any) -> None:
        """Nothing is stored; calls depend on the object as on any other datum."""
        if self.identity.find(obj) is None:
            version = self.new_version()
            with self.driver.lock:
                self.driver.handle(Provided(version, _SHARED))
                self.identity.track(obj, version, shared=True)
            self.driver.after()

    def value_of(self, datum: Datum | KnownObject | Token) -> Any:
        """Wait for the tasks that update an object; it stays as the program left it."""
        super().value_of(datum)
        return None if isinstance(datum, Token) else datum.object()

    # --- waiting and ending -------------------------------------------------------------------------------------

    def barrier(self) -> None:
        """Let time pass until every task is over; raise the first failure that nobody has looked at."""
        engine = self.driver.engine
        self.driver.wait_until(lambda: not engine.unfinished and not engine.naming)
        self.raise_unobserved()

    def stop(self, *, abort: bool = False, gives_back: bool = True) -> None:
        """End the run: after all tasks, or at once with ``abort``."""
        if self.stopped or os.getpid() != self._pid:
            return
        driver, engine = self.driver, self.driver.engine
        try:
            if not abort:
                driver.wait_until(lambda: not engine.unfinished and not engine.naming)
        except BaseException:
            abort = True
            raise
        finally:
            self.stopped = True
            makespan = driver.now
            driver.stop(drain=not abort)
            self.objects.close()
            state = engine.state
            called = state.done + state.failed + state.cancelled + len(state.tasks)
            self._plan.outcomes.append(outcome_of(driver.world, makespan, called, []))
            ok = not abort and not state.failed
            self.log.append(RunEnded(driver.now, ok, state.done, state.failed, state.cancelled))
            self.log.close()
            self._tell_of_unused()
            self.functions.point_out_misspelt(self.loaded.origins["constraints"])

    def _tell_of_unused(self) -> None:
        for name in self.durations.unused():
            called = ", ".join(self.durations.called()) or "none"
            say(f"penstock: a duration was given for {name}, but no such task was called; were: {called}\n")


def _simulated_values(
    declaration: Declaration, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], Failure | None]:
    """What a call returns as its task declares it; an exception is how it fails."""
    if declaration.simulated is None:
        return (), None
    try:
        value = declaration.simulated(*args, **kwargs)
    except SimulatedValueError:
        raise  # it needs the value of a task that declares none
    except Exception as error:
        error.add_note(f"in simulated=… of task {declaration.name}, evaluated for this call by the simulated run")
        own = error.__traceback__ and error.__traceback__.tb_next  # without this frame
        return (), describe(error.with_traceback(own), declaration.name)
    if declaration.returns <= 1:
        return (value,), None
    if not isinstance(value, tuple | list) or len(value) != declaration.returns:
        message = f"task {declaration.name} declares returns={declaration.returns}, but simulated=… gave {value!r:.60}"
        return (), Failure(FailureKind.RETURNS, message)
    return tuple(value), None


def _failing(work: Work, failure: Failure) -> Work:
    return Work(work.seconds, work.sizes, work.makes, work.traffic, failure)


def _implementations(declaration: Declaration, spec: TaskSpec) -> list[tuple[Declaration, TaskSpec]]:
    """The functions that may be chosen for a call, with what the engine knows of each."""
    declarations = (declaration, *declaration.implementations)
    return list(zip(declarations, spec.implementations or (spec,), strict=True))
