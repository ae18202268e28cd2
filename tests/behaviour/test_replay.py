"""Recorded runs, simulated again: the same makespan from the same settings, the right one from others."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.behaviour.replay_programs import early_outputs, length, save, sleep, streamed, thinking

import penstock
from penstock import wait_on
from penstock.engine.state import StorageRules
from penstock.errors import ConfigError
from penstock.model.events import OutputReady
from penstock.model.resources import Node, StorageLayer
from penstock.model.tasks import OnFailure
from penstock.observe import records
from penstock.observe.log import EventLog
from penstock.runtime.recorded import Recorded, workload_of
from penstock.runtime.recorder import Recorder
from penstock.sim.simulation import Outcome, Simulation
from penstock.sim.workloads import Job, Part, Workload

MB = 1_000_000
CURVE = ((1, 60.0 * MB), (2, 100.0 * MB), (8, 40.0 * MB))
DISK = StorageLayer("disk", "/disk", 100.0 * MB, 10_000 * MB, curve=CURVE)


def node(cpus: int = 2, *layers: StorageLayer) -> Node:
    return Node("here", cpus, 10**9, (), layers, 8)


# --- logs written by hand -------------------------------------------------------------------------------------------


class Log:
    """A log that is written line by line, of tasks on two lanes."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "events.jsonl")
        self._log = EventLog(self.path)
        self.add(records.RunStarted(0.0, 0.0, "1", ["app.py"], 2, 10**9, "here", "fifo"))

    def add(self, *wrote: records.Record) -> None:
        for record in wrote:
            self._log.append(record)

    def call(self, at: float, number: int, *reads: int) -> None:
        self.add(records.Submitted(at, number, "f", 1, list(reads), [number]))

    def run(self, number: int, begin: float, end: float, lane: int = 0) -> None:
        self.add(records.Launched(begin, number, 1, "here", lane))
        self.add(records.Finished(end, number, 1, "here", lane, end - begin, 0))

    def read(self) -> Recorded:
        self._log.close()
        return workload_of(self.path)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def steps(recorded: Recorded) -> list[tuple[float, ...]]:
    return [job.steps for job in recorded.workload.jobs]


def test_time_between_calls_is_the_programs_own_unless_it_waited(log: Log) -> None:
    log.call(0.5, 1)
    log.run(1, 0.5, 2.0)
    log.call(3.0, 2)
    log.run(2, 3.0, 4.0)
    recorded = log.read()
    assert steps(recorded) == [(0.5,), (2.5,)]
    assert recorded.makespan == 4.0
    assert recorded.simulation().run().makespan == 4.0


def test_what_the_program_waited_for_becomes_a_dependency(log: Log) -> None:
    log.call(0.0, 1)
    log.run(1, 0.0, 2.0)
    log.add(records.Waited(2.0, 1.5))
    log.call(2.25, 2)
    log.run(2, 2.25, 3.0)
    recorded = log.read()
    assert steps(recorded) == [(), (0.5, 1, 0.25)]
    assert recorded.simulation().run().makespan == 3.0


def test_a_barrier_waits_for_all_and_any_other_wait_for_what_ended_last(log: Log) -> None:
    log.call(0.0, 1)
    log.call(0.0, 2)
    log.run(1, 0.0, 1.0, lane=0)
    log.add(records.Waited(1.0, 1.0))
    log.call(1.0, 3)
    log.run(2, 0.0, 2.0, lane=1)
    log.run(3, 1.0, 4.0, lane=0)
    log.add(records.Waited(4.0, 3.0))
    log.call(4.0, 4)
    log.run(4, 4.0, 5.0)
    recorded = log.read()
    assert steps(recorded) == [(), (), (1,), (1, 2, 3)]
    assert recorded.simulation().run().makespan == 5.0
    # On one computing unit: 1, 2 and 3 one after the other, then the last.
    assert recorded.simulation(nodes=[node(1)]).run().makespan == 1 + 2 + 3 + 1


def test_a_wait_in_which_nothing_ended_takes_its_time(log: Log) -> None:
    log.call(0.0, 1)
    log.add(records.Launched(0.0, 1, 1, "here", 0))
    log.add(records.Waited(1.0, 1.0))  # it gave up
    log.call(1.0, 2)
    log.add(records.Finished(3.0, 1, 1, "here", 0, 3.0, 0))
    log.run(2, 1.0, 2.0, lane=1)
    assert steps(log.read()) == [(), (1.0,)]


def test_a_call_by_a_callback_comes_after_the_task_that_it_was_called_for(log: Log) -> None:
    log.call(0.0, 1)
    log.run(1, 0.0, 1.0)
    log.call(1.0, 2)
    log.run(2, 1.0, 2.0)
    log.add(records.Waited(2.0, 2.0))
    assert steps(log.read()) == [(), (1,)]


def test_costs_of_executors_are_those_of_the_log(log: Log) -> None:
    for number in (1, 2, 3):
        log.call(0.0, number)
    log.add(records.Launched(0.0, 1, 1, "here", 0), records.WorkerStarted(0.25, "here", 0, 7))
    log.add(records.Launched(0.0, 2, 1, "here", 0))
    log.add(records.Finished(1.5, 1, 1, "here", 0, 1.0, 0))  # its process was ready at 0.5
    log.add(records.Finished(2.75, 2, 1, "here", 0, 1.0, 0))  # a quarter after the one before it
    log.add(records.Launched(3.0, 3, 1, "here", 0), records.Finished(4.125, 3, 1, "here", 0, 1.0, 0))
    recorded = log.read()
    assert (recorded.costs.start, recorded.costs.first, recorded.costs.next) == (0.5, 0.125, 0.25)


def test_costs_leave_out_attempts_of_unknown_length_and_processes_that_come_later(log: Log) -> None:
    for number in (1, 2, 3):
        log.call(0.0, number)
    log.add(records.Launched(0.0, 1, 1, "here", 0), records.WorkerStarted(0.25, "here", 0, 7))
    log.add(records.Finished(1.5, 1, 1, "here", 0, 1.0, 0))
    log.add(records.Launched(2.0, 2, 1, "here", 0))
    log.add(records.Failed(9.0, 2, 1, "here", 0, "died", "killed", final=False))
    log.add(records.Launched(9.0, 2, 2, "here", 0), records.Finished(10.25, 2, 2, "here", 0, 1.0, 0))
    log.add(records.Launched(11.0, 3, 1, "here", 0), records.WorkerStarted(11.5, "here", 0, 8))
    log.add(records.Finished(12.75, 3, 1, "here", 0, 1.0, 0))
    recorded = log.read()
    assert (recorded.costs.start, recorded.costs.each, recorded.costs.first) == (0.5, 0.0, (0.25 + 0.75) / 2)


def test_processes_that_start_together_start_one_after_the_other(log: Log) -> None:
    for number in (1, 2, 3):
        log.add(records.Submitted(0.0, number, "f", 1, [], [number], cpus=0, io=True))
        log.add(records.Launched(1.0, number, 1, "here", 1 + number))
        log.add(records.WorkerStarted(1.25, "here", 1 + number, 7))
        end = 1.5 + number / 8 + 1.0
        log.add(records.Finished(end, number, 1, "here", 1 + number, 1.0, 0))
    costs = log.read().io_costs
    assert (costs.start, costs.each) == (0.625, 0.125)


def test_tasks_that_the_log_does_not_end_or_that_were_cancelled_are_left_out(log: Log) -> None:
    for number in (1, 2, 3):
        log.call(0.0, number)
    log.run(1, 0.0, 1.0)
    log.add(records.Cancelled(1.0, 2))
    log.add(records.Launched(1.0, 3, 1, "here", 0))
    recorded = log.read()
    assert len(recorded.workload.jobs) == 1
    assert recorded.simulation().run().done == 1


def test_a_device_without_a_curve_is_as_fast_as_the_run_has_seen_it(log: Log) -> None:
    disk = records.Layer("disk", "/disk", 100.0 * MB)
    log.add(records.NodeJoined(0.0, "here", 2, 10**9, 8, [disk]))
    for number, seconds in ((1, 0.5), (2, 2.0)):  # 200 MB/s, and slower than that
        log.add(records.Submitted(0.0, number, "f", 1, [], [number], paths=[f"/disk/{number}"]))
        log.add(records.Launched(0.0, number, 1, "here", number - 1))
        done = records.Finished(seconds, number, 1, "here", number - 1, seconds, 100 * MB, sizes=[100 * MB])
        log.add(done)
    recorded = log.read()
    assert recorded.simulation().run().makespan == pytest.approx(2.0, rel=0.01)


@pytest.mark.parametrize("enforced", [False, True])
def test_a_task_that_was_held_back_did_not_compute_meanwhile(log: Log, enforced: bool) -> None:
    disk = records.Layer("disk", "/disk", 100.0 * MB, curve=[(1, 100.0 * MB), (2, 100.0 * MB)], enforced=enforced)
    log.add(records.NodeJoined(0.0, "here", 2, 10**9, 8, [disk]))
    log.add(records.Declared(0.0, 1, "f", io=True, bandwidth=10.0 * MB))
    log.add(records.Submitted(0.0, 1, "f", 1, [], [1], io=True, function=1, paths=["/disk/1"]))
    log.add(records.Launched(0.0, 1, 1, "here", 0, layer="disk", bandwidth=10.0 * MB))
    log.add(records.Finished(11.0, 1, 1, "here", 0, 11.0, 100 * MB, sizes=[100 * MB]))
    recorded = log.read()
    assert recorded.simulation().run().makespan == pytest.approx(11.0, rel=0.01)
    assert recorded.workload.jobs[0].seconds == pytest.approx(1.0 if enforced else 10.0, rel=0.01)


def test_consumers_start_at_the_recorded_outputs(log: Log) -> None:
    """One unit makes two outputs, the second of which only the run has shown; the other unit uses them."""
    log.add(records.Submitted(0.0, 1, "produce", 1, [], [1]))
    log.add(records.Submitted(0.0, 2, "use", 1, [1], [2]))
    log.add(records.Launched(0.0, 1, 1, "here", 0))
    log.add(records.Output(1.0, 1, 1, 1, 10), records.Output(2.0, 1, 1, 31, 20))
    log.add(records.Submitted(2.0, 3, "use", 1, [31], [3]))
    log.add(records.Launched(1.0, 2, 1, "here", 1), records.Finished(4.0, 2, 1, "here", 1, 3.0, 0))
    log.add(records.Launched(4.0, 3, 1, "here", 1), records.Finished(7.0, 3, 1, "here", 1, 3.0, 0))
    log.add(records.Finished(8.0, 1, 1, "here", 0, 8.0, 0))
    recorded = log.read()
    produce, *uses = recorded.workload.jobs
    assert (produce.ready, produce.makes) == ((1.0, 2.0), 30)
    assert [job.call.reads for job in uses] == [(version,) for version in produce.results]
    begun: list[float] = []
    watch = recorded.simulation(watch=lambda now, event: begun.append(now) if type(event) is OutputReady else None)
    assert watch.run().makespan == 8.0
    assert begun == [1.0, 2.0]
    four = recorded.simulation(nodes=[node(1)]).run().makespan
    assert four == 14.0, "one unit makes first, then uses"


def test_a_file_that_was_handed_over_keeps_its_size(log: Log) -> None:
    log.add(records.Submitted(0.0, 1, "f", 1, [], [1, 2, 3], paths=["/x/early", "/x/late"]))
    log.add(records.Launched(0.0, 1, 1, "here", 0), records.Output(1.0, 1, 1, 2, 500))
    log.add(records.Finished(2.0, 1, 1, "here", 0, 2.0, 77, sizes=[70]))
    [job] = log.read().workload.jobs
    assert (job.sizes, job.makes, job.ready) == ((500, 70), 7, ())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "it has no record `run_started`"),
        ("{broken\n{}\n", "not a record"),
        ('{"event":"launched","t":0,"task":5,"attempt":1,"node":"n","lane":0}\n', "no whole event log: .*5"),
    ],
)
def test_what_is_no_log_is_said(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "events.jsonl").write_text(content)
    with pytest.raises(ConfigError, match=message):
        workload_of(str(tmp_path))


def test_a_log_with_gaps_is_refused_and_one_that_is_not_there_too(log: Log, tmp_path: Path) -> None:
    log.add(records.Dropped(1.0, 17))
    with pytest.raises(ConfigError, match="lacks 17 records"):
        log.read()
    with pytest.raises(ConfigError, match="there is no event log"):
        workload_of(str(tmp_path / "elsewhere"))


# --- logs of simulated runs -----------------------------------------------------------------------------------------


def recorded_simulation(workload: Workload, folder: Path, *nodes: Node, **options: Any) -> tuple[Outcome, Recorded]:
    """Simulate with a log, and read that."""
    path = str(folder / "events.jsonl")
    log = EventLog(path)
    simulation = Simulation(nodes, workload, **options)
    recorder = Recorder(log, simulation.engine, nodes[0].name, 0.0)
    recorder.started("1", [], options.get("scheduler", "fifo"), nodes, 0.0)
    simulation.observer = recorder
    outcome = simulation.run()
    log.close()
    return outcome, workload_of(path)


@settings(max_examples=40)
@given(data=st.data())
def test_a_replayed_simulation_takes_as_long(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    workload, jobs = Workload(), list[Job | Part]()
    draw = data.draw
    for number in range(draw(st.integers(1, 14))):
        after = draw(st.lists(st.sampled_from(jobs), max_size=2, unique_by=id)) if jobs else []
        # Steps are not drawn: who drives a simulation does not log its waits.
        # No two times are equal: what ends first must not depend on rounding.
        seconds = draw(st.sampled_from([0.37, 1.13, 3.31])) + number / 1000
        details: dict[str, Any] = {"seconds": seconds, "after": after}
        if draw(st.booleans()):
            details["writes"] = [(f"/disk/{number}", draw(st.integers(1, 4)) * 7 * MB + number)]
        if draw(st.booleans()):
            constraint = draw(st.sampled_from([None, 20.0, 50.0]))
            jobs.append(workload.io_task(f"io{constraint}", constraint=constraint, **details))
        else:
            # Nor are two outputs there at once.
            shares = draw(st.lists(st.sampled_from([0.21, 0.43, 0.77]), max_size=3, unique=True))
            ready = [share * seconds for share in shares]
            cpus, priority = draw(st.integers(1, 2)), draw(st.integers(0, 1))
            job = workload.task("f", cpus=cpus, priority=priority, ready=ready, **details)
            jobs += [job, *(job[index] for index in range(len(ready)))]
    folder = tmp_path_factory.mktemp("replayed")
    nodes = [node(2, DISK), Node("there", 3, 10**9, (), (DISK,), 4)][: draw(st.integers(1, 2))]
    outcome, recorded = recorded_simulation(workload, folder, *nodes)
    assert recorded.nodes == nodes
    assert recorded.makespan == outcome.makespan
    again = recorded.simulation().run()
    assert again.makespan == pytest.approx(outcome.makespan, rel=1e-3)
    assert again.done == outcome.done


@pytest.mark.parametrize("tuner", ["adaptive", "published"])
def test_rules_functions_and_failures_are_those_of_the_run(tmp_path: Path, tuner: str) -> None:
    workload = Workload()
    bad = workload.task("bad", seconds=1.0, fails=1.0, retries=2, on_failure=OnFailure.RETRY)
    workload.task("after", after=[bad])
    workload.task("shaky", seconds=1.0, fails_first=1, retries=1, memory=5, timeout=60.0)
    workload.io_task("save", constraint="auto(20,80,2)", capacity=MB, writes=[("/disk/x", MB)], temp=True)
    rules = StorageRules("backfilling", 5.0, True, 90.0 * MB, tuner=tuner)
    outcome, recorded = recorded_simulation(workload, tmp_path, node(1, DISK), rules=rules, scheduler="lifo")
    assert recorded.rules == rules
    assert recorded.scheduler == "lifo"
    old, new = ([job.call.spec for job in one.jobs] for one in (workload, recorded.workload))
    assert old == new
    assert recorded.workload.jobs[3].call.outputs[0].temp
    again = recorded.simulation().run()
    assert (again.done, again.failed, again.makespan) == (outcome.done, outcome.failed, outcome.makespan)


def test_a_node_that_was_lost_is_lost_again_and_no_task_is_to_blame(tmp_path: Path) -> None:
    workload = Workload()
    for _ in range(12):
        workload.task("f", seconds=1.0)
    nodes = [node(2), Node("there", 2, 10**9)]
    late = Node("late", 2, 10**9)
    outcome, recorded = recorded_simulation(workload, tmp_path, *nodes, lost=[(1.5, "there")], joins=[(2.5, late)])
    assert outcome.done == 12
    assert recorded.lost == [(1.5, "there")]
    assert recorded.joins == [(2.5, late)]
    assert all(job.fails == job.fails_first == 0 for job in recorded.workload.jobs)
    again = recorded.simulation().run()
    assert (again.done, again.makespan) == (12, outcome.makespan)
    assert recorded.simulation(nodes=nodes).run().makespan == 3.0


def test_the_implementation_that_ran_runs_again(log: Log) -> None:
    for number, name, cpus in ((1, "f", 1), (2, "wide", 2)):
        log.add(records.Declared(0.0, number, name, cpus=cpus))
    log.add(records.Submitted(0.0, 1, "f", 1, [], [1], function=1))
    log.add(records.Launched(0.0, 1, 1, "here", 0, implementation="wide"))
    log.add(records.Finished(1.0, 1, 1, "here", 0, 1.0, 0))
    [job] = log.read().workload.jobs
    assert job.call.spec.name == "wide"
    assert job.call.spec.requirements.cpus == 2


def test_another_constraint_than_the_recorded_one(tmp_path: Path) -> None:
    workload = Workload()
    for number in range(8):
        workload.io_task("save", writes=[(f"/disk/{number}", 10 * MB)])
    outcome, _ = recorded_simulation(workload, tmp_path, node(1, DISK), rules=StorageRules(tuner="published"))
    assert outcome.makespan == pytest.approx(80 / 40)  # all at once congest the device
    path = str(tmp_path)
    changed = workload_of(path, constraints={"save": 50})
    assert changed.simulation().run().makespan == pytest.approx(80 / 100)
    assert workload_of(path, constraints={"save": "auto(50,100,2)"}).simulation().run().epochs
    with pytest.raises(ConfigError, match="no I/O task 'load' was called in this run; there are: save"):
        workload_of(path, constraints={"load": 5})


# --- logs of real runs ----------------------------------------------------------------------------------------------


def run(program: Callable[[], object], folder: Path, cpus: int = 2, **options: Any) -> Recorded:
    """Run a program for real and read its log."""
    run_dir = str(folder / f"run{cpus}")
    with penstock.Runtime(cpus=cpus, run_dir=run_dir, keep_run_dir="always", log=True, tuning="off", **options):
        program()
        penstock.barrier()
    return workload_of(run_dir)


def lasting(recorded: Recorded, seconds: float = 1000.0) -> Recorded:
    """The same run of tasks that take far longer than any moment at which the machine stood still."""
    for index, job in enumerate(recorded.workload.jobs):
        stretch = seconds / float(job.seconds)  # type: ignore[arg-type]
        longer = replace(job, seconds=seconds, ready=tuple(at * stretch for at in job.ready))
        recorded.workload.jobs[index] = longer
    return recorded


def on(recorded: Recorded, cpus: int) -> float:
    return recorded.simulation(nodes=[replace(node, cpus=cpus) for node in recorded.nodes]).run().makespan


def test_a_program_on_two_units_tells_how_long_it_takes_on_others(tmp_path: Path) -> None:
    """Two stages of four tasks: the second is called when the first is over, after a while."""
    recorded = run(thinking, tmp_path)
    assert [float(job.seconds) >= 0.02 for job in recorded.workload.jobs] == [True] * 8  # type: ignore[arg-type]
    first = recorded.workload.jobs[4].steps
    assert {step for step in first if isinstance(step, int)} <= {1, 2, 3, 4} and first != ()
    assert sum(step for step in first if isinstance(step, float)) >= 0.02
    assert recorded.simulation().run().makespan >= 4 * 0.02 + 0.02
    lasting(recorded)
    # Without the wait in between, three would do with three rounds.
    for cpus, rounds in ((1, 8), (2, 4), (3, 4), (4, 2), (8, 2)):
        assert on(recorded, cpus) == pytest.approx(rounds * 1000, abs=300)


@pytest.mark.parametrize("program", [early_outputs, streamed])
def test_a_program_with_early_outputs(tmp_path: Path, program: Callable[[], object]) -> None:
    """Six tasks, each of which uses what another one makes, one after the other."""
    recorded = lasting(run(program, tmp_path))
    producer, *uses = recorded.workload.jobs
    assert len(uses) == 6
    ready = sorted(producer.ready)[:6]
    # Each took its time; had they been recorded at the end of the task, they would all be there at once.
    assert len(ready) == 6 and all(earlier < later for earlier, later in pairwise(ready)) and ready[0] < 1000
    seen: list[float] = []
    watch = recorded.simulation(
        nodes=[replace(node, cpus=8) for node in recorded.nodes],
        watch=lambda now, event: seen.append(now) if type(event) is OutputReady else None,
    )
    assert watch.run().makespan >= 1000
    assert [at - seen[0] for at in seen[:6]] == pytest.approx([at - ready[0] for at in ready])


def test_files_on_an_emulated_device(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    # One stream gets as much as two, so that it does not matter how soon the second worker has started.
    curve = [[1, "10MB/s"], [2, "10MB/s"], [8, "5MB/s"]]
    disk = {"name": "disk", "mount": str(tmp_path / "disk"), "bandwidth": "40MB/s", "curve": curve}

    def program() -> None:
        paths = [str(tmp_path / "disk" / str(number)) for number in range(8)]
        for path in paths:
            save(path, MB)
        wait_on([length(path) for path in paths[:2]])

    recorded = run(program, tmp_path, storage=[disk], io_executors=2)
    [layer] = recorded.nodes[0].storage
    assert layer.curve == ((1, 10.0 * MB), (2, 10.0 * MB), (8, 5.0 * MB))
    outcome = recorded.simulation().run()
    assert outcome.makespan >= 1.0  # ten megabytes
    [use] = outcome.devices.values()
    assert use.transferred == 10 * MB


def test_calls_of_a_map_are_replayed_too(tmp_path: Path) -> None:
    recorded = run(lambda: sleep.map([0.02] * 8).results(), tmp_path)
    jobs = recorded.workload.jobs
    assert sum(float(job.seconds) for job in jobs) >= 8 * 0.02  # type: ignore[arg-type]
    assert on(lasting(recorded), 1) == pytest.approx(len(jobs) * 1000, abs=300)
