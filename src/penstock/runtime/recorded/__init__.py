"""Recorded runs as something to simulate: the tasks of an event log, on the nodes and under the rules of that run.

log ─▶ RecordedRun ─▶ Recorded(workload, nodes, rules, costs) ─▶ Simulation
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from itertools import takewhile
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.engine.state import StorageRules
from penstock.errors import ConfigError
from penstock.model.data import TaskId, VersionId
from penstock.model.resources import Node, Requirements
from penstock.model.tasks import FailureKind
from penstock.observe.log import read_log
from penstock.observe.records import Record, Submitted
from penstock.runtime.recorded.costs import costs_of
from penstock.runtime.recorded.program import Steps, steps_of
from penstock.runtime.recorded.run import Attempt, Call, Function, RecordedRun
from penstock.runtime.recorded.transfers import Transfers
from penstock.sim.simulation import Simulation
from penstock.sim.work import Costs
from penstock.sim.workloads import Job, Part, Workload
from penstock.tuning.spec import is_auto, parse
from penstock.units import parse_rate

__all__ = ["Recorded", "nodes_of", "workload_of"]


class Recorded(Struct, frozen=True):
    """A run that can be simulated again, as it was or otherwise."""

    workload: Workload
    nodes: list[Node]
    rules: StorageRules
    scheduler: str
    #: of lanes that compute, and of those that serve I/O tasks
    costs: Costs
    io_costs: Costs
    #: seconds from the start of the run until its last task was over
    makespan: float
    #: nodes that came while it ran, and that were lost, with the time
    joins: list[tuple[float, Node]] = []
    lost: list[tuple[float, str]] = []
    #: tasks that were cancelled, or had not ended when the log did: nobody knows what they would have done
    left_out: int = 0

    def simulation(self, **settings: Any) -> Simulation:
        """The same run once more; ``settings`` are those of ``Simulation`` that are to be different."""
        usual = {"scheduler": self.scheduler, "rules": self.rules, "costs": self.costs, "io_costs": self.io_costs}
        if "nodes" not in settings:
            usual |= {"nodes": self.nodes, "joins": self.joins, "lost": self.lost}
        return Simulation(workload=self.workload, **{**usual, **settings})


def workload_of(path: str, *, constraints: Mapping[str, str | float] | None = None) -> Recorded:
    """What the event log of a run tells, given the log or the directory of the run.

    ``constraints`` gives I/O tasks another bandwidth constraint, by the name of their function and as in a program.
    """
    run = _read(path)
    started = run.started
    _constrain(run, constraints or {})
    transfers = Transfers(run)
    costs, io_costs = costs_of(run)
    rules = StorageRules(
        started.io_scheduler or "fcfs",
        started.io_ageing,
        started.data_movement,
        started.tuning_ceiling,
        tuner=started.tuner,
        tie=started.tuning_tolerance,
        counted_per=started.tuning_counts,
    )
    workload = _Rebuilding(run, transfers).workload
    left_out = len(run.calls) - len(workload.jobs)
    about = (rules, started.scheduler, costs, io_costs, run.makespan, run.joined, run.lost, left_out)
    return Recorded(workload, transfers.nodes(), *about)


def nodes_of(path: str) -> list[Node]:
    """The nodes of a recorded run when its program began, given its log or its directory."""
    return list(_read(path, lambda log: takewhile(lambda one: not isinstance(one, Submitted), log)).nodes.values())


def _read(path: str, part: Callable[[Iterator[Record]], Iterator[Record]] = iter) -> RecordedRun:
    if os.path.isdir(path):
        path = os.path.join(path, "events.jsonl")
    if not os.path.isfile(path):
        raise ConfigError(f"{path}: there is no event log; give a log, or the directory of a run that kept one")
    try:
        return RecordedRun(part(read_log(path)), path)
    except KeyError as error:
        raise ConfigError(
            f"{path} is no whole event log: it tells of {error.args[0]!r}, but not how that began; are its first lines "
            f"missing?"
        ) from None
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{path} is no whole event log: {error}") from error


def _constrain(run: RecordedRun, constraints: Mapping[str, str | float]) -> None:
    """Have functions ask for another bandwidth than they did."""
    for name, value in constraints.items():
        changed = [number for number, found in run.functions.items() if found.name == name and found.requirements.io]
        if not changed:
            known = sorted({found.name for found in run.functions.values() if found.requirements.io})
            raise ConfigError(f"no I/O task {name!r} was called in this run; there are: {', '.join(known) or 'none'}")
        run.remembered.pop(name, None)
        auto = parse(str(value)) if is_auto(value) else None
        bandwidth = 0.0 if auto is not None else parse_rate(value)
        for number in changed:
            function = run.functions[number]
            need = replace(function.requirements, bandwidth=bandwidth, auto=auto)
            run.functions[number] = replace(function, requirements=need)


class _Rebuilding:
    """Puts the calls of a run into a workload, one after the other."""

    def __init__(self, run: RecordedRun, transfers: Transfers) -> None:
        self.workload = Workload()
        self._run = run
        self._transfers = transfers
        self._jobs: dict[TaskId, Job] = {}
        self._makers: dict[VersionId, Job | Part] = {}
        steps = steps_of(run)
        skipped: Steps = []
        for call in run.calls.values():
            before = [*skipped, *steps[call.task]]
            if call.cancelled or call.over < 0:
                skipped = before  # nobody knows what it would have done
                continue
            skipped = []
            self._add(call, before)

    def _add(self, call: Call, steps: Steps) -> None:
        function, seconds = self._function(call), self._seconds(call)
        ready = _ready(call, seconds)
        made = [version for version in call.reads if version in self._makers]
        files = {version: self._transfers.file(version) for version in made}
        job = self.workload.add(
            function.name,
            function.requirements,
            seconds=seconds,
            ready=ready,
            after=list({id(job): job for job in (self._makers[one] for one in made if files[one] is None)}.values()),
            reads=[path for path in files.values() if path is not None],
            writes=call.files,
            temp=call.temp,
            makes=max(0, call.bytes - sum(call.sizes)),
            fails=1.0 if call.failure and call.failure != FailureKind.DEPENDENCY.value else 0.0,
            fails_first=0 if call.failure else sum(not attempt.ok for attempt in call.attempts),
            steps=[self._jobs[step] if isinstance(step, int) else step for step in steps if self._counts(step)],
            **function.options,
        )
        self._jobs[call.task] = job
        self._makers.update(dict.fromkeys(call.writes, job))
        if ready:
            self._makers.update((version, Part(job, index)) for index, version in enumerate(call.returned))

    def _counts(self, step: float | TaskId) -> bool:
        return not isinstance(step, int) or step in self._jobs

    def _function(self, call: Call) -> Function:
        declared = self._run.functions.get(call.function)
        if declared is None:  # a log of a version that did not declare functions
            return Function(call.name, Requirements(call.cpus, io=call.io), {})
        constraint = self._run.remembered.get(call.name)
        if declared.requirements.auto is not None and constraint is not None:
            return replace(declared, requirements=replace(declared.requirements, auto=None, bandwidth=constraint))
        return declared

    def _seconds(self, call: Call) -> float:
        """How long each attempt computes."""
        attempts: list[Attempt] = call.attempts
        if not attempts:
            return 0.0
        return max(0.0, attempts[-1].seconds - self._transfers.seconds.get(call.task, 0.0))


def _ready(call: Call, seconds: float) -> list[float]:
    """When a task hands over each of its return values, since it began; empty if it hands none over early."""
    early = {version: at - attempt.begun for version, (at, attempt, _) in call.early.items()}
    returned = call.returned
    if early.keys().isdisjoint(returned):
        return []
    return [min(seconds, max(0.0, early.get(version, seconds))) for version in returned]
