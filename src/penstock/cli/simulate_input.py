"""What ``penstock simulate`` is given: a program, a recorded run or a workflow; and running it on virtual time.

INPUT ─ kind_of ─▶ program, recorded, workflow ─▶ base machine ─ settings ─▶ simulation ─▶ event log ─▶ History
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from penstock.cli.simulate_settings import Machine, Settings, machine, read_settings
from penstock.engine.state import StorageRules
from penstock.errors import ConfigError
from penstock.observe.history import History
from penstock.observe.history_reader import HistoryReader
from penstock.observe.log import EventLog
from penstock.observe.records import Record
from penstock.runtime.config import load_config
from penstock.runtime.readers import nearest
from penstock.runtime.simulated_log import SimulatedLog
from penstock.storage.redirect import home_of
from penstock.units import parse_duration

if TYPE_CHECKING:
    from penstock.observe.progress import ProgressView
    from penstock.sim.simulation import Outcome
    from penstock.sim.workloads import Seconds, Workload

__all__ = ["Kind", "Request", "SimulatedRun", "check_layers", "kind_of", "simulate_once", "split_loss"]

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
    #: of tasks of which nothing is known
    default_duration: Any = None
    #: the real time that the program takes for itself counts
    main_time: bool = False
    #: NODE@TIME
    lose: list[str] = []
    #: where the files of a workflow lie; empty: on no device
    files_under: str = ""
    log: str | None = None
    progress: bool = True


class SimulatedRun(Struct, frozen=True):
    """What came of it."""

    history: History
    machine: Machine
    #: of the program
    status: int = 0
    #: by which it ended
    error: Exception | None = None


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
    if start.startswith(b'{"event"') or path.endswith(".jsonl"):
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
    if run.left_out and request.progress:
        said = f"{run.left_out} of {run.left_out + len(run.workload.jobs)} tasks were cancelled or had not ended"
        print(f"penstock: {request.input}: {said} when the log did; they are left out", file=sys.stderr)
    if request.settings.nodes is not None and (run.lost or run.joins) and request.progress:
        said = "nodes joined or were lost; with --nodes, all stay from beginning to end"
        print(f"penstock: {request.input}: {said}", file=sys.stderr)
    wanted = machine(Machine(run.nodes, run.scheduler, run.rules), request.settings)
    # Nodes that came and went do so again, unless others take their place.
    same = request.settings.nodes is None
    given = {text.rpartition("@")[0] for text in request.lose}
    return _simulate_workload(
        request,
        wanted,
        run.workload,
        lost=[(when, name) for when, name in run.lost if name not in given] if same else (),
        joins=run.joins if same else (),
        costs=run.costs,
        io_costs=run.io_costs,
    )


def _simulate_workflow(request: Request) -> SimulatedRun:
    from penstock.sim.wfformat import read_machines, read_wfformat

    workload = read_wfformat(
        request.input,
        seconds=request.durations or None,
        default=request.default_duration,
        files_under=request.files_under,
    )
    base = _described()
    # The machines of the workflow, with the storage of ours, unless ours are described.
    machines = [] if base.described else read_machines(request.input)
    if machines:
        storage = base.nodes[0].storage
        nodes = [msgspec.structs.replace(node, storage=storage) for node in machines]
        base = msgspec.structs.replace(base, nodes=nodes)
    wanted = machine(base, request.settings)
    if request.files_under:
        _check_place(request.files_under, wanted)
    return _simulate_workload(request, wanted, workload)


def _check_place(folder: str, wanted: Machine) -> None:
    """Files that lie on no device would take no time, which nobody can mean."""
    layers = {layer.name: layer for node in wanted.nodes for layer in node.storage}
    if home_of(os.path.join(folder, "file"), layers.values()) is None:
        there = ", ".join(f"{layer.name} at {layer.mount}" for layer in layers.values()) or "none is described"
        raise ConfigError(f"--files-under {folder}: no storage layer is there; layers: {there}")


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
    from penstock.runtime import session
    from penstock.runtime.simulated import run_simulated

    # Whatever is wrong with the settings is said before anything of the program is touched.
    wanted = machine(_described(), request.settings)
    lost = _losses(request.lose, wanted)
    status, fell_over = 0, None

    def program() -> None:
        nonlocal status, fell_over
        try:
            status = run_program(load_program(request.input, request.args, as_module=request.as_module))
        except ProgramNotFound as error:
            raise ConfigError(str(error)) from None
        except Exception as error:
            fell_over = error
            session.stop(abort=True)  # what was done until then can be looked at

    with _Recording(request, wanted) as recording:
        outcome = run_simulated(
            program,
            nodes=wanted.nodes,
            scheduler=wanted.scheduler,
            rules=wanted.rules,
            durations=request.durations,
            default_duration=request.default_duration,
            main_time=request.main_time,
            seed=request.settings.seed,
            decision_seconds=request.settings.decision_cost,
            network=request.settings.network,
            lost=lost,
            observer=recording.observer,
        )
        return SimulatedRun(recording.close(outcome), wanted, status, fell_over)


def _described() -> Machine:
    """The nodes and rules of the settings: described ones, or this machine."""
    from penstock.runtime.simulated import simulated_nodes

    config = load_config({}).config
    rules = StorageRules(
        config.io_scheduler,
        config.io_ageing,
        config.data_movement,
        config.tuning_ceiling,
        tuner=config.tuner,
        tie=config.tuning_tolerance,
        counted_per=config.tuning_counts,
    )
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


def check_layers(request: Request, settings: Mapping[str, str]) -> None:
    """Refuse settings of layers that the input is not simulated with, before anything runs."""
    if kind_of(request.input, as_module=request.as_module) == "recorded":
        from penstock.runtime.recorded import nodes_of

        base = Machine(nodes_of(request.input), "fifo", StorageRules())
    else:
        base = _described()
    machine(base, read_settings({name: value for name, value in settings.items() if name.startswith("layer.")}))


def _losses(lose: list[str], wanted: Machine) -> list[tuple[float, str]]:
    names = [node.name for node in wanted.nodes]
    losses = []
    for text in lose:
        when, name = split_loss(text, names[-1])
        if name not in names:
            raise ConfigError(f"--lose {text}: there is no node {name!r}{nearest(name, names[:20])}")
        losses.append((when, name))
    return losses


def split_loss(text: str, example: str) -> tuple[float, str]:
    """``NODE@TIME`` as a time and a name."""
    name, at, when = text.rpartition("@")
    if not at:
        raise ConfigError(f"--lose {text}: expected a node and when it is lost, such as {example}@90s")
    try:
        return parse_duration(when), name
    except ConfigError as error:
        raise ConfigError(f"--lose {text}: {error}") from None


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
