"""One simulated run: a workload, nodes, and the same engine that drives real runs.

    workload ─ Submitted ─▶ World ─▶ Outcome

The program calls its tasks one after the other, and goes on when the master has dealt with each. When all tasks are
over, the files go home, as at the end of a run.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from math import isfinite

from msgspec import Struct
from msgspec.structs import replace

from penstock.engine.engine import Engine
from penstock.engine.state import StorageRules
from penstock.errors import ConfigError, InternalError
from penstock.model import events
from penstock.model.resources import Node
from penstock.scheduling import ready_queues, registry
from penstock.scheduling.compute import Fifo, Lifo
from penstock.scheduling.view import ReadySet
from penstock.sim.executor import Executor
from penstock.sim.files import MakeDevice, make_device
from penstock.sim.network import Network
from penstock.sim.observer import Observer
from penstock.sim.outcomes import DeviceUse, Outcome, outcome_of
from penstock.sim.work import NO_COSTS, Costs
from penstock.sim.workloads import Job, Workload
from penstock.sim.world import DecisionSeconds, World

__all__ = ["Condition", "DeviceUse", "Outcome", "Simulation", "make_engine", "outcome_of"]


@contextmanager
def _no_collector() -> Iterator[None]:
    """Leave cyclic garbage alone: a simulation makes none, and looking for it in millions of records takes long."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def make_engine(scheduler: str | ReadySet, rules: StorageRules | None = None, *, elastic: bool = False) -> Engine:
    """An engine with a policy, given by name, or with a ready set of one's own.

    ``elastic``: nodes may still join, so tasks that no node can host wait for one.
    """
    if not isinstance(scheduler, str):
        return Engine(scheduler, follows_data=True, storage=rules, elastic=elastic)
    policy = registry.policy(scheduler)
    follows_data = not isinstance(policy, Fifo | Lifo)
    return Engine(ready_queues.ready_set(policy), follows_data=follows_data, storage=rules, elastic=elastic)


class Condition(Struct, frozen=True):
    """How a device is from some time on."""

    time: float
    #: by the name that outcomes show
    device: str
    #: times as fast as described
    speed: float = 1.0
    #: streams of others, who are not part of the simulation
    strangers: int = 0

    def __post_init__(self) -> None:
        if not (self.time >= 0 and self.speed > 0 and isfinite(self.speed) and self.strangers >= 0):
            raise ConfigError(f"{self}: a time from zero on, a speed above zero, and no fewer than no strangers")


class Simulation:
    """To be run once."""

    def __init__(
        self,
        nodes: Iterable[Node],
        workload: Workload,
        *,
        scheduler: str | ReadySet = "fifo",
        rules: StorageRules | None = None,
        seed: int = 0,
        decision_seconds: DecisionSeconds = 0.0,
        network: Network | None = None,
        costs: Costs = NO_COSTS,
        io_costs: Costs = NO_COSTS,
        stream_bandwidth: Mapping[str, float] | None = None,
        room: Mapping[str, int] | None = None,
        device: MakeDevice = make_device,
        observer: Observer | None = None,
        lost: Iterable[tuple[float, str]] = (),
        joins: Iterable[tuple[float, Node]] = (),
        conditions: Iterable[Condition] = (),
        record: bool = False,
        watch: Callable[[float, events.Event], None] | None = None,
    ) -> None:
        """``stream_bandwidth``: bytes per second that one stream gets of a layer at most, by its name. ``room``: bytes
        that a layer really holds, where that is less than what is described. ``device`` makes a storage device.
        ``lost`` and ``joins``: when nodes go and come. ``conditions``: when devices become slower or faster, and others
        use them. ``watch`` is called after each event that the engine was told.
        """
        self._nodes = list(nodes)
        self._joins = list(joins)
        self.engine = make_engine(scheduler, rules, elastic=bool(self._joins))
        self.observer = observer
        self._lost = list(lost)
        self._conditions = list(conditions)
        self._workload = workload
        self.world = World(
            self.engine,
            workload.work(seed),
            decision_seconds=decision_seconds,
            network=network,
            costs=costs,
            io_costs=io_costs,
            stream_bandwidth=stream_bandwidth,
            room=room,
            device=device,
        )
        self._record = record
        self._watch = watch
        self._log: list[tuple[float, events.Event]] = []
        self._begun = False
        self._check()
        self._check_layers({"stream_bandwidth": stream_bandwidth or {}, "room": room or {}})

    @property
    def executor(self) -> Executor:
        return self.world.executor

    def run(self) -> Outcome:
        """Run all tasks, bring all files home, and tell how it went."""
        if self._begun:
            raise ConfigError("this simulation was run already; make another one to run it again")
        self._begun = True
        with _no_collector():
            makespan = self._run()
        return outcome_of(self.world, makespan, len(self._workload.jobs), self._log)

    def _run(self) -> float:
        world = self.world
        world.observer = self.observer
        if self._record or self._watch is not None:
            world.watch = self._note
        self._set_up()
        self._call_all()
        tasks = self.engine.state.tasks
        self._expect(world.run_until(lambda: not tasks and world.idle))
        makespan = world.now
        self._expect(world.drain())
        return makespan

    def _check(self) -> None:
        if not self._nodes:
            raise ConfigError("a simulation needs at least one node")
        twice = [name for name, often in Counter(node.name for node in self._nodes).items() if often > 1]
        if twice:
            raise ConfigError(f"two nodes are called {twice[0]!r}; give each a name of its own")
        for what, pairs, kind in (("lost", self._lost, str), ("joins", self._joins, Node)):
            times: Iterable[tuple[object, object]] = pairs
            for time, node in times:
                if not isinstance(time, int | float) or not isinstance(node, kind):
                    raise ConfigError(f"{what}: ({time!r}, {node!r:.60}); expected a time in seconds, then a node")
        here: set[str] = set()
        comings = [(-1.0, 1, node.name) for node in self._nodes] + [(time, 1, node.name) for time, node in self._joins]
        # At the same time, one goes before another comes in its place.
        for time, comes, name in sorted(comings + [(time, 0, name) for time, name in self._lost]):
            if not (time >= 0 or time == -1.0):
                raise ConfigError(f"node {name!r} comes or goes at {time} s; that must be zero or above")
            if comes and name in here:
                raise ConfigError(f"node {name!r} is to join at {time:g} s, but there is one of that name already")
            if not comes and name not in here:
                raise ConfigError(f"node {name!r} is to be lost at {time:g} s, but there is no node of that name then")
            (here.add if comes else here.remove)(name)

    def _check_layers(self, given: Mapping[str, Mapping[str, object]]) -> None:
        nodes = (*self._nodes, *(node for _, node in self._joins))
        known = dict.fromkeys(layer.name for node in nodes for layer in node.storage)
        for what, layers in given.items():
            for name in layers:
                if name not in known:
                    there = ", ".join(known) or "none"
                    raise ConfigError(f"{what}: no node has a layer {name!r}; there are: {there}")

    def _set_up(self) -> None:
        """Nodes join before anything else; those that come and go later are put down."""
        world = self.world
        for node in self._nodes:
            world.join(node)
        for time, name in self._lost:
            world.at(time, partial(world.lose, name))
        for time, node in self._joins:
            world.at(time, partial(world.post, events.NodeJoined(node)))
        for one in self._conditions:
            if one.device not in self.executor.files.devices:
                there = ", ".join(self.executor.files.devices) or "none"
                raise ConfigError(f"conditions: there is no device {one.device!r}; there are: {there}")
            world.at(one.time, partial(world.vary, one.device, one.speed, one.strangers))
        self._refuse_the_impossible()

    def _refuse_the_impossible(self) -> None:
        """What no node could ever host is a mistake; one that joins later counts."""
        engine = self.engine
        if self._joins:
            engine = make_engine("fifo")
            names: Counter[str] = Counter()
            for node in (*self._nodes, *(node for _, node in self._joins)):
                names[node.name] += 1
                often = names[node.name]
                unique = node if often == 1 else replace(node, name=f"{node.name} ({often})")
                engine.handle(events.NodeJoined(unique), 0.0)
        for spec in self._workload.specs():
            engine.ensure_possible(spec.name, spec.requirements)

    def _call_all(self) -> None:
        """The program calls its tasks."""
        world, jobs = self.world, self._workload.jobs
        for job, submitted in zip(jobs, self._workload.submissions(), strict=True):
            if job.steps:
                self._take_steps(job)
            if job.at:
                world.run_to(job.at)
            world.tell(submitted)

    def _take_steps(self, job: Job) -> None:
        """What the program does between two calls: think, and wait."""
        world, tasks = self.world, self.engine.state.tasks
        for step in job.steps:
            if isinstance(step, float):
                world.run_to(world.now + step)
            elif step in tasks:
                self._expect(world.run_until(lambda task=step: world.idle and task not in tasks))  # type: ignore[misc]

    def _expect(self, reached: bool) -> None:
        if not reached:
            now, tasks = self.world.now, self.engine.state.tasks.values()
            blocked = self.engine.blocked()
            if blocked:
                waiting = ", ".join(blocked[:3])
                raise ConfigError(
                    f"{len(tasks)} tasks still wait at {now:g} s for a node that can host them: {waiting}"
                )
            waiting = "; ".join(wait.words for wait in self.engine.waits())
            raise InternalError(f"the simulation stands still at {now}, for ever: {waiting}")

    def _note(self, now: float, event: events.Event) -> None:
        if self._record:
            self._log.append((now, event))
        if self._watch is not None:
            self._watch(now, event)
