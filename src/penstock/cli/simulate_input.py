"""What ``penstock simulate`` is given: a program, a recorded run or a workflow; and running it on virtual time.

INPUT ─ kind_of ─▶ program, recorded, workflow ─▶ base machine ─ settings ─▶ simulation ─▶ event log ─▶ History
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from penstock.cli.simulate_settings import Machine, Settings, machine
from penstock.engine.state import StorageRules
from penstock.errors import ConfigError
from penstock.observe.history import History
from penstock.observe.history_reader import HistoryReader
from penstock.observe.log import EventLog
from penstock.observe.records import Record
from penstock.runtime.config import load_config
from penstock.runtime.readers import nearest
from penstock.runtime.simulated_log import SimulatedLog
from penstock.units import parse_duration

if TYPE_CHECKING:
    from penstock.observe.progress import ProgressView
    from penstock.sim.simulation import Outcome
    from penstock.sim.workloads import Seconds, Workload

__all__ = ["ProgramFailed", "Request", "SimulatedRun", "kind_of", "simulate_once"]

Kind = Literal["program", "recorded", "workflow"]
#: a disk that cannot keep up makes a simulation wait; nothing is dropped
_BACKLOG = 1 << 50


class Request(Struct, frozen=True, kw_only=True):
    """One simulation that was asked for."""

    input: str
    args: list[str] = []
    as_module: bool = False
    settings: Settings = Settings()
    durations: dict[str, Any] = {}
    #: NODE@TIME
    lose: list[str] = []
    #: where the files of a workflow lie; empty: on no device
    files_under: str = ""
    log: str | None = None
    progress: bool = True


class ProgramFailed(Exception):
    """The program ended by an exception of its own; with the traceback as it was there."""

    def __init__(self, error: Exception, traceback: TracebackType | None) -> None:
        self.error = error.with_traceback(traceback)


class SimulatedRun(Struct, frozen=True):
    """What came of it."""

    history: History
    machine: Machine
    #: of the program
    status: int = 0


def kind_of(path: str, *, as_module: bool) -> Kind:
    """What sort of input it is, by its name or its first bytes."""
    if as_module:
        return "program"
    if os.path.isdir(path):
        if os.path.isfile(os.path.join(path, "events.jsonl")):
            return "recorded"
        raise ConfigError(f"{path} is a directory without events.jsonl; give a run directory, a log, or a program")
    try:
        with open(path, "rb") as file:
            start = file.read(64).lstrip()
    except OSError as error:
        raise ConfigError(f"cannot open {path}: {error.strerror}") from None
    if path.endswith(".py"):
        return "program"
    if start.startswith(b'{"event"'):
        return "recorded"
    if start.startswith(b"{") or path.endswith(".json"):
        return "workflow"
    return "program"


def simulate_once(request: Request) -> SimulatedRun:
    """Run it to its end."""
    kind = kind_of(request.input, as_module=request.as_module)
    if kind == "program":
        return _simulate_program(request)
    if kind == "recorded":
        return _simulate_recorded(request)
    return _simulate_workflow(request)


# --- the three kinds --------------------------------------------------------------------------------------------------


def _simulate_recorded(request: Request) -> SimulatedRun:
    from penstock.runtime.recorded import workload_of

    run = workload_of(request.input)
    wanted = machine(Machine(run.nodes, run.scheduler, run.rules), request.settings)
    # Nodes that came and went do so again, unless others take their place.
    same = request.settings.nodes is None
    return _simulate_workload(
        request,
        wanted,
        run.workload,
        lost=run.lost if same else (),
        joins=run.joins if same else (),
        costs=run.costs,
        io_costs=run.io_costs,
    )


def _simulate_workflow(request: Request) -> SimulatedRun:
    from penstock.sim.wfformat import read_machines, read_wfformat

    workload = read_wfformat(request.input, seconds=request.durations or None, files_under=request.files_under)
    base = _described()
    # The machines of the workflow, with the storage of ours, unless ours are described.
    machines = [] if base.described else read_machines(request.input)
    if machines:
        storage = base.nodes[0].storage
        nodes = [msgspec.structs.replace(node, storage=storage) for node in machines]
        base = msgspec.structs.replace(base, nodes=nodes)
    return _simulate_workload(request, machine(base, request.settings), workload)


def _simulate_workload(
    request: Request,
    wanted: Machine,
    workload: Workload,
    *,
    lost: Sequence[tuple[float, str]] = (),
    **options: Any,
) -> SimulatedRun:
    from penstock.sim.simulation import Simulation

    _set_durations(workload, request.durations)
    with _Recording(request, wanted) as recording:
        simulation = Simulation(
            wanted.nodes,
            workload,
            scheduler=wanted.scheduler,
            rules=wanted.rules,
            seed=request.settings.seed,
            decision_seconds=request.settings.decision_cost,
            network=request.settings.network,
            lost=[*lost, *_losses(request.lose, wanted)],
            observer=recording.observer,
            **options,
        )
        recording.observer.attach(simulation.engine)
        outcome = simulation.run()
        return SimulatedRun(recording.close(outcome), wanted)


def _simulate_program(request: Request) -> SimulatedRun:
    from penstock.cli.program import ProgramNotFound, load_program, run_program
    from penstock.runtime.simulated import run_simulated

    # Whatever is wrong with the settings is said before anything of the program is touched.
    wanted = machine(_described(), request.settings)
    lost = _losses(request.lose, wanted)
    status = 0

    def program() -> None:
        nonlocal status
        try:
            status = run_program(load_program(request.input, request.args, as_module=request.as_module))
        except ProgramNotFound as error:
            raise ConfigError(str(error)) from None
        except Exception as error:
            raise ProgramFailed(error, error.__traceback__) from None

    with _Recording(request, wanted) as recording:
        outcome = run_simulated(
            program,
            nodes=wanted.nodes,
            scheduler=wanted.scheduler,
            rules=wanted.rules,
            durations=request.durations,
            seed=request.settings.seed,
            decision_seconds=request.settings.decision_cost,
            network=request.settings.network,
            lost=lost,
            observer=recording.observer,
        )
        return SimulatedRun(recording.close(outcome), wanted, status)


def _described() -> Machine:
    """The nodes and rules of the settings: described ones, or this machine."""
    from penstock.runtime.simulated import simulated_nodes

    config = load_config({}).config
    rules = StorageRules(config.io_scheduler, config.io_ageing, config.data_movement, config.tuning_ceiling)
    return Machine(list(simulated_nodes(config)), config.scheduler, rules, described=bool(config.node))


def _set_durations(workload: Workload, durations: Mapping[str, Seconds]) -> None:
    """Let the calls of some functions take another time."""
    names = {job.call.spec.name for job in workload.jobs}
    for name in durations:
        if name not in names:
            raise ConfigError(f"--duration {name}=…: no task is called {name!r}{nearest(name, sorted(names))}")
    if durations:
        workload.jobs[:] = [
            msgspec.structs.replace(job, seconds=durations.get(job.call.spec.name, job.seconds))
            for job in workload.jobs
        ]


def _losses(lose: list[str], wanted: Machine) -> list[tuple[float, str]]:
    names = [node.name for node in wanted.nodes]
    losses = []
    for text in lose:
        name, at, when = text.rpartition("@")
        if not at:
            raise ConfigError(f"--lose {text}: expected a node and when it is lost, such as {names[-1]}@90s")
        if name not in names:
            raise ConfigError(f"--lose {text}: there is no node {name!r}{nearest(name, names[:20])}")
        losses.append((parse_duration(when), name))
    return losses


class _Recording:
    """The event log of a simulation, read as it is written and kept if that was asked for."""

    def __init__(self, request: Request, wanted: Machine) -> None:
        if request.log is not None:
            _make_anew(request.log)
        self._log = EventLog(request.log, backlog=_BACKLOG)
        self._reader = HistoryReader()
        self._problem: Exception | None = None
        self._log.subscribe(self._read)
        self._view = _progress(self._log) if request.progress else None
        argv = [request.input, *request.args]
        self.observer = SimulatedLog(self._log, wanted.nodes, wanted.scheduler, argv)

    def __enter__(self) -> _Recording:
        return self

    def __exit__(self, *exception: object) -> None:
        self._log.close()
        if self._view is not None:
            self._view.close()

    def close(self, outcome: Outcome) -> History:
        """The run is over; its history."""
        self.observer.close(outcome.end, outcome.done, outcome.failed)
        if self._problem is not None:
            raise self._problem
        return self._reader.close()

    def _read(self, batch: list[Record]) -> None:
        try:
            self._reader.add(batch)
        except Exception as error:  # a log goes on without a reader that fails; a history must not have holes
            self._problem = error
            raise


def _make_anew(path: str) -> None:
    try:
        with open(path, "wb"):
            pass
    except OSError as error:
        raise ConfigError(f"--log {path}: cannot write it: {error.strerror}") from None


def _progress(log: EventLog) -> ProgressView | None:
    """The view of ``penstock run``, on virtual time; None where it cannot be drawn."""
    from penstock.observe.progress import ProgressView, can_draw

    if not can_draw(sys.stderr):
        return None
    latest = 0.0

    def keep(batch: list[Record]) -> None:
        nonlocal latest
        latest = batch[-1].t

    log.subscribe(keep)
    view = ProgressView(sys.stderr, live=True, clock=lambda: latest)
    log.subscribe(view.on_batch)
    return view
