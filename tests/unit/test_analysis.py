"""What is found out about a run from its records: small runs by hand, and any run that can be simulated."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from penstock.engine.state import StorageRules
from penstock.model.resources import Node, StorageLayer
from penstock.observe import records
from penstock.observe.analysis import Analysis, analyse, ideal_speedup
from penstock.observe.analysis_view import analysis_view
from penstock.observe.critical_path import Segment
from penstock.observe.history_reader import read_history
from penstock.observe.log import EventLog, read_log
from penstock.observe.records import Layer, Record
from penstock.observe.summary import summary_lines
from penstock.observe.tally import Tally
from penstock.observe.waiting import waiting_times
from penstock.runtime.simulated_log import SimulatedLog
from penstock.sim import Network, Outcome, Simulation, Workload

MB = 1_000_000
SSD = Layer("ssd", "/ssd", 100.0 * MB, 1000 * MB)


def started(cpus: int = 1, *, storage: Iterable[Layer] = (), executors: int = 0, memory: int = 1000) -> list[Record]:
    return [records.RunStarted(0.0, 0.0, "1", ["app.py"], cpus, memory, "a", "fifo", executors, "fcfs", list(storage))]


def declared(function: int, *, memory: int = 0, capacity: int = 0) -> Record:
    return records.Declared(0.0, function, f"f{function}", memory=memory, capacity=capacity)


def called(
    task: int,
    t: float = 0.0,
    *,
    name: str = "f",
    reads: Iterable[int] = (),
    cpus: int = 1,
    io: bool = False,
    learned: bool = False,
    function: int = 0,
    count: int = 1,
) -> Record:
    """A call that makes the version of its own number."""
    about = (t, task, name, count, list(reads), [task], 0 if io else cpus, io, learned, function)
    return records.Submitted(*about)


def sent(task: int, t: float, *, lane: int = 0, node: str = "a", layer: str = "", bandwidth: float = 0.0) -> Record:
    return records.Launched(t, task, 1, node, lane, layer, bandwidth)


def done(
    task: int, t: float, seconds: float, *, lane: int = 0, node: str = "a", layer: str = "", size: int = 0
) -> Record:
    return records.Finished(t, task, 1, node, lane, seconds, size, layer)


def text_of(analysis: Analysis) -> str:
    console = Console(width=100)
    with console.capture() as capture:
        console.print(analysis_view(analysis, console, "title"))
    return capture.get()


def shown(path: Iterable[Segment]) -> list[tuple[str, float, float, int]]:
    return [(segment.kind, segment.start, segment.end, segment.task) for segment in path]


# --- the critical path ------------------------------------------------------------------------------------------------


def test_a_chain_of_tasks_is_the_critical_path() -> None:
    run = [called(1), called(2, reads=[1]), called(3)]
    run += [
        sent(1, 0.0),
        sent(3, 0.0, lane=1),
        done(3, 1.0, 1.0, lane=1),
        done(1, 2.0, 2.0),
        sent(2, 2.0),
        done(2, 5.0, 3.0),
    ]
    analysis = analyse(started(2) + run)
    assert shown(analysis.critical_path.segments) == [("running", 0.0, 2.0, 1), ("running", 2.0, 5.0, 2)]
    assert analysis.makespan == 5.0 and analysis.utilisation == pytest.approx(0.6)
    assert analysis.waiting == {"data of other tasks": 2.0}
    assert analysis.critical_path.seconds == {"running": 5.0}


def test_a_task_that_waits_for_a_core_has_that_on_the_path() -> None:
    run = [called(1), called(2, name="g"), sent(1, 0.0), done(1, 4.0, 4.0), sent(2, 4.0), done(2, 5.0, 1.0)]
    analysis = analyse(started() + run)
    assert shown(analysis.critical_path.segments) == [("waiting", 0.0, 4.0, 2), ("running", 4.0, 5.0, 2)]
    assert analysis.critical_path.reasons == {"computing units": 4.0}
    assert analysis.critical_path.functions == {"g": 1.0}


def test_a_task_sent_ahead_waits_for_the_one_before_it_on_its_lane() -> None:
    run = [called(1), called(2), sent(1, 0.0), sent(2, 0.0), done(1, 4.0, 4.0), done(2, 5.0, 1.0)]
    analysis = analyse(started() + run)
    assert analysis.waiting == {"computing units": 4.0}
    assert analysis.gaps.count == 1 and analysis.gaps.most == 0.0


def test_the_time_until_a_worker_begins_counts_on_its_own() -> None:
    analysis = analyse([*started(), called(1), sent(1, 0.0), done(1, 3.0, 2.0)])
    assert analysis.waiting == {"the worker to begin": 1.0}
    assert [segment.kind for segment in analysis.critical_path.segments] == ["waiting", "running"]
    assert analysis.utilisation == pytest.approx(2 / 3)


def test_the_program_waited_for_a_task_before_it_called_the_next() -> None:
    run = [
        called(1),
        sent(1, 0.0),
        done(1, 2.0, 2.0),
        records.Waited(2.0, 1.9),
        called(2, 2.5),
        sent(2, 2.5),
        done(2, 4.0, 1.5),
    ]
    analysis = analyse(started() + run)
    assert shown(analysis.critical_path.segments) == [
        ("running", 0.0, 2.0, 1),
        ("program", 2.0, 2.5, 0),
        ("running", 2.5, 4.0, 2),
    ]


def test_a_log_that_knows_nothing_of_waits_shows_pauses() -> None:
    run = [called(1), sent(1, 0.0), done(1, 2.0, 2.0), called(2, 2.5), sent(2, 2.5), done(2, 4.0, 1.5)]
    assert [segment.kind for segment in analyse(started() + run).critical_path.segments] == [
        "running",
        "program",
        "running",
    ]


def test_a_program_that_computes_before_its_first_call() -> None:
    run = [called(1, 3.0), sent(1, 3.0), done(1, 4.0, 1.0)]
    path = analyse(started() + run).critical_path
    assert shown(path.segments) == [("program", 0.0, 3.0, 0), ("running", 3.0, 4.0, 1)]
    assert path.seconds == {"program": 3.0, "running": 1.0}


def test_an_attempt_that_failed_is_on_the_path_of_the_next() -> None:
    failed = records.Failed(2.0, 1, 1, "a", 0, "died", "gone", False)
    analysis = analyse([*started(), called(1), sent(1, 0.0), failed, sent(1, 2.0), done(1, 5.0, 3.0)])
    assert shown(analysis.critical_path.segments) == [("running", 0.0, 2.0, 1), ("running", 2.0, 5.0, 1)]
    assert (analysis.retried, analysis.done, analysis.failed) == (1, 1, 0)
    assert analysis.utilisation == 1.0
    (use,) = analysis.functions
    assert (use.tasks, use.attempts, use.seconds, use.mean) == (1, 2, 5.0, 3.0)


def test_failures_are_kept_with_their_reason_and_more_of_them_are_counted() -> None:
    run = started(8)
    for task in range(1, 9):
        run += [called(task), sent(task, 0.0, lane=task)]
        run.append(records.Failed(2.0, task, 1, "a", task, "exception", f"no\n{task}", True))
    analysis = analyse(run)
    assert [(one.task, one.name, one.message) for one in analysis.failures[:2]] == [
        (1, "f", "no\n1"),
        (2, "f", "no\n2"),
    ]
    shown = text_of(analysis)
    assert "failed: f (task 1): no 1\n" in shown and "and 3 more failed" in shown


def test_functions_nodes_and_devices_beyond_the_first_are_summed_up() -> None:
    run = started(8, storage=[SSD])
    for task in range(1, 9):
        run += [called(task, name=f"f{task}"), sent(task, 0.0, lane=task), done(task, 2.0, 2.0, lane=task)]
    run.append(records.Moved(3.0, 9, "/ssd/x", "/home/x", "ssd", 10 * MB, 1.0))
    shown = text_of(analyse(run))
    assert "  1 other " in shown and "attempts" not in shown
    assert "0 B/s" not in shown


def test_data_that_were_fetched_from_another_node_are_on_the_path() -> None:
    run = [called(1), sent(1, 0.0), records.Fetched(1.5, 1, 1, 1.5, 100), done(1, 4.0, 4.0)]
    analysis = analyse(started() + run)
    assert shown(analysis.critical_path.segments) == [("fetching data", 0.0, 1.5, 1), ("running", 1.5, 4.0, 1)]


def handed_over(task: int, t: float, version: int, attempt: int = 1) -> Record:
    return records.Output(t, task, attempt, version, 0)


def test_an_early_output_is_on_the_path_and_not_the_end_of_its_task() -> None:
    run = [
        *started(2),
        called(1, name="produce"),
        called(2, reads=[11], name="use"),
        sent(1, 0.0),
        handed_over(1, 2.0, 11),
        sent(2, 2.5, lane=1),
        done(1, 4.0, 4.0),
        done(2, 6.0, 3.5, lane=1),
    ]
    analysis = analyse(run)
    assert shown(analysis.critical_path.segments) == [
        ("running", 0.0, 2.0, 1),
        ("waiting", 2.0, 2.5, 2),
        ("running", 2.5, 6.0, 2),
    ]
    assert analysis.waiting["data of other tasks"] == 2.0
    assert_sound(analysis)


def test_the_last_of_several_data_counts_whether_it_came_early_or_not() -> None:
    late = [*started(3), called(1), called(2), called(3, reads=[11, 2]), sent(1, 0.0), sent(2, 0.0, lane=1)]
    late += [handed_over(1, 1.0, 11), done(2, 3.0, 3.0, lane=1), sent(3, 3.0, lane=1)]
    late += [done(1, 4.0, 4.0), done(3, 5.0, 2.0, lane=1)]
    assert shown(analyse(late).critical_path.segments) == [("running", 0.0, 3.0, 2), ("running", 3.0, 5.0, 3)]


def test_a_producer_that_failed_after_an_output_is_on_the_path_of_who_used_it() -> None:
    run = [*started(2), called(1), called(2, reads=[11]), sent(1, 0.0), handed_over(1, 2.0, 11), sent(2, 2.0, lane=1)]
    run += [records.Failed(3.0, 1, 1, "a", 0, "exception", "no", final=False), records.Launched(3.0, 1, 2, "a", 0)]
    run += [handed_over(1, 4.0, 11, attempt=2), done(1, 4.5, 1.5), done(2, 5.0, 3.0, lane=1)]
    path = analyse(run).critical_path.segments
    assert [(segment.start, segment.end, segment.task, segment.attempt) for segment in path] == [
        (0.0, 2.0, 1, 1),
        (2.0, 5.0, 2, 1),
    ]


def test_the_program_waited_for_an_early_output_before_it_called_the_next() -> None:
    run = [*started(2), called(1), sent(1, 0.0), handed_over(1, 2.0, 11), records.Waited(2.1, 2.1)]
    run += [called(2, 2.5, reads=[11]), sent(2, 2.5, lane=1), done(1, 3.0, 3.0), done(2, 6.0, 3.5, lane=1)]
    assert shown(analyse(run).critical_path.segments) == [
        ("running", 0.0, 2.0, 1),
        ("program", 2.0, 2.5, 0),
        ("running", 2.5, 6.0, 2),
    ]


def test_a_producer_that_the_log_does_not_end_is_on_the_path() -> None:
    run = [*started(2), called(1), called(2, reads=[11]), sent(1, 0.0), handed_over(1, 2.0, 11), sent(2, 2.0, lane=1)]
    run += [done(2, 5.0, 3.0, lane=1)]
    assert shown(analyse(run).critical_path.segments)[:1] == [("running", 0.0, 2.0, 1)]


def test_tasks_that_take_no_time_end_the_walk() -> None:
    run = [record for task in range(1, 4) for record in (called(task), sent(task, 0.0), done(task, 0.0, 0.0))]
    analysis = analyse(started() + run)
    assert analysis.makespan == 0.0 and analysis.done == 3 and analysis.critical_path.segments == []


# --- reasons ----------------------------------------------------------------------------------------------------------


def reasons(run: Iterable[Record]) -> dict[str, float]:
    return waiting_times(read_history(run)).seconds


def test_a_wide_task_waits_for_units_on_one_node_and_narrow_ones_for_it() -> None:
    nodes = [records.NodeJoined(0.0, name, 2, 0) for name in "ab"]
    run = [called(1), called(2), sent(1, 0.0), sent(2, 0.0, node="b"), called(3, cpus=2), called(4, 1.0)]
    run += [done(1, 3.0, 3.0), done(2, 3.0, 3.0, node="b"), sent(3, 3.0), sent(4, 3.0, node="b")]
    run += [done(3, 4.0, 1.0), done(4, 4.0, 1.0, node="b")]
    assert reasons([*started(4), *nodes, *run]) == {
        "units together on one node": 3.0,
        "units kept for a wider task": 2.0,
    }


def test_memory() -> None:
    run = [declared(1, memory=800), called(1, function=1), called(2, function=1)]
    run += [sent(1, 0.0), done(1, 2.0, 2.0), sent(2, 2.0, lane=1), done(2, 3.0, 1.0, lane=1)]
    assert reasons(started(2) + run) == {"memory": 2.0}


def test_a_task_that_no_node_can_host() -> None:
    run = [called(1, cpus=4), records.NodeJoined(5.0, "b", 4, 0), sent(1, 5.0, node="b"), done(1, 6.0, 1.0, node="b")]
    assert reasons(started(2) + run) == {"a node that can host it": 5.0}


def test_the_master_decides() -> None:
    assert reasons([*started(), called(1), sent(1, 0.5), done(1, 1.5, 1.0)]) == {"the master's decision": 0.5}


def io_run(*, executors: int = 4, bandwidth: float = 60.0 * MB, **how: bool | int) -> list[Record]:
    """Two writes, one after the other."""
    run = started(storage=[SSD], executors=executors)
    run += [declared(1, capacity=600 * MB), called(1, io=True, **how), called(2, io=True, **how)]  # type: ignore[arg-type]
    run += [sent(1, 0.0, lane=1, layer="ssd", bandwidth=bandwidth), records.Device(0.0, "a", "ssd", bandwidth, 1, 1)]
    run += [done(1, 2.0, 2.0, lane=1, layer="ssd", size=100 * MB), records.Device(2.0, "a", "ssd", 0.0, 0, 1, 600 * MB)]
    return run


def second_write(t: float, bandwidth: float = 60.0 * MB) -> list[Record]:
    run = [
        sent(2, t, lane=1, layer="ssd", bandwidth=bandwidth),
        records.Device(t, "a", "ssd", bandwidth, 1, 0, 600 * MB),
    ]
    end = t + 1.0
    return [*run, done(2, end, 1.0, lane=1, layer="ssd", size=100 * MB), records.Device(end, "a", "ssd", 0.0, 0, 0, 0)]


def test_bandwidth_of_a_device() -> None:
    run = io_run() + second_write(2.0)
    assert reasons(run) == {"bandwidth of ssd": 2.0}
    analysis = analyse(run)
    (device,) = analysis.devices
    assert (device.layer, device.node, device.written) == ("ssd", "a", 200 * MB)
    assert device.held == pytest.approx(0.6) and device.busy == 1.0
    assert device.rate == pytest.approx(200 * MB / 3)
    assert analysis.io_seconds == 3.0 and analysis.utilisation == 0.0


def test_files_that_are_moved_count_where_they_arrive() -> None:
    disk = Layer("disk", "/home", 10.0 * MB, shared=True)
    run = started(storage=[SSD, disk])
    run += [
        records.Moved(1.0, 1, "/home/x", "/ssd/x", "", 5 * MB, 0.5),
        records.Moved(1.0, 2, "/y", "/z", "ssd", MB, 0.5),
    ]
    run += [records.Moved(2.0, 3, "/home/y", "/ssd/y", "", 7 * MB, 0.5, "no space")]
    assert {device.layer: device.moved for device in analyse(run).devices} == {"ssd": MB, "disk": 5 * MB}


def test_an_io_executor() -> None:
    assert reasons(io_run(executors=1, bandwidth=10.0 * MB) + second_write(2.0)) == {"an I/O executor": 2.0}


def test_room_that_is_taken_by_files_or_promised() -> None:
    assert reasons(io_run(bandwidth=10.0 * MB, function=1) + second_write(3.0)) == {"room on ssd": 3.0}


def test_a_learning_phase_lasts_until_a_value_is_chosen() -> None:
    chosen = records.ConstraintChosen(1.5, "f", "ssd", 60.0 * MB, 1, 2.0)
    run = io_run(learned=True)
    run.insert(-2, chosen)
    assert reasons(run + second_write(2.0)) == {"a learning phase": 1.5, "bandwidth of ssd": 0.5}


def test_a_shared_layer_is_one_device() -> None:
    shared = Layer("gpfs", "/gpfs", 100.0 * MB, shared=True)
    nodes = [records.NodeJoined(0.0, name, 1, 0, 4, [shared]) for name in "ab"]
    writes = [
        sent(task, t, lane=1, node=node, layer="gpfs", bandwidth=60.0 * MB)
        for task, t, node in ((1, 0.0, "a"), (2, 2.0, "b"))
    ]
    run: list[Record] = [*nodes, called(1, io=True), called(2, io=True), writes[0]]
    run += [
        done(1, 2.0, 2.0, lane=1, layer="gpfs", size=MB),
        writes[1],
        done(2, 3.0, 1.0, lane=1, node="b", layer="gpfs", size=MB),
    ]
    assert reasons(started(2) + run) == {"bandwidth of gpfs": 2.0}
    (device,) = analyse(started(2) + run).devices
    assert device.node == "" and device.written == 2 * MB


# --- counts -----------------------------------------------------------------------------------------------------------


def test_a_lost_node_offers_nothing_any_more() -> None:
    run = [records.NodeJoined(0.0, "b", 1, 0), records.NodeLost(2.0, "b"), called(1), sent(1, 0.0), done(1, 8.0, 8.0)]
    assert analyse(started() + run).utilisation == pytest.approx(8 / 10)


def test_a_gang_holds_units_on_all_its_nodes() -> None:
    nodes = [records.NodeJoined(0.0, name, 4, 0) for name in "ab"]
    gang = records.Declared(0.0, 1, "mpi", cpus=2, processes=3)
    run = [gang, called(1, cpus=4), called(2, cpus=2, function=1), sent(1, 0.0), done(1, 2.0, 2.0)]
    run += [records.Launched(3.0, 2, 1, "a", 0, hosts=[("a", 2), ("b", 1)]), done(2, 8.0, 5.0)]
    analysis = analyse([*started(8), *nodes, *run])
    assert {use.name: use.busy for use in analysis.nodes} == {"a": 4 * 2 + 4 * 5, "b": 2 * 5}
    assert analysis.waiting == {"computing units": 2.0, "a place for all processes of a gang": 1.0}
    assert max(analysis.over_time.units) == pytest.approx(6.0)


def test_another_implementation_counts_with_its_own_needs() -> None:
    run = [records.Declared(0.0, 1, "f"), called(1, function=1), records.Declared(0.0, 2, "g", cpus=2)]
    run += [records.Launched(0.0, 1, 1, "a", 0, implementation="g"), done(1, 2.0, 2.0)]
    analysis = analyse(started(4) + run)
    assert [use.name for use in analysis.functions] == ["g"] and analysis.utilisation == 0.5


def test_calls_of_a_map_and_calls_that_never_ended_are_counted() -> None:
    run = [called(1, count=50), called(2), sent(1, 0.0), sent(2, 0.0), done(1, 1.0, 1.0), records.Dropped(3.0, 7)]
    analysis = analyse(started() + run)
    assert analysis.done == 50 and analysis.dropped == 7 and not analysis.complete
    assert analysis.makespan == 3.0
    assert [(use.name, use.tasks) for use in analysis.functions] == [("f", 51)]


def test_units_over_time() -> None:
    run = [called(1), called(2, cpus=2), sent(1, 0.0), done(1, 1.0, 1.0), sent(2, 1.0), done(2, 4.0, 3.0)]
    over_time = analyse(started(2) + run).over_time
    assert over_time.step * len(over_time.units) == pytest.approx(4.0)
    quarter = len(over_time.units) // 4
    assert over_time.units[:quarter] == pytest.approx([1.0] * quarter)
    assert over_time.units[quarter:] == pytest.approx([2.0] * 3 * quarter)
    assert over_time.waiting[:quarter] == pytest.approx([1.0] * quarter)


def test_the_ideal_speed_up_of_a_published_study() -> None:
    assert round(ideal_speedup(7995, 5314, 2), 2) == 1.50
    assert round(ideal_speedup(7995, 5314, 4), 2) == 1.99
    run = [called(1), called(2), called(3, reads=[1]), sent(1, 0.0), sent(2, 0.0, lane=1)]
    run += [done(1, 2.0, 2.0), done(2, 2.0, 2.0, lane=1), sent(3, 2.0), done(3, 4.0, 2.0)]
    analysis = analyse(started(2) + run)
    assert analysis.parallel_seconds == 2.0 and analysis.ideal_speedup(2) == pytest.approx(4 / 3)


def test_an_empty_log_is_no_error() -> None:
    analysis = analyse([])
    assert analysis.makespan == 0.0 and analysis.done == 0 and analysis.waiting == {}


def test_records_of_the_middle_of_a_run_are_passed_over() -> None:
    analysis = analyse([sent(1, 3.0), done(1, 4.0, 1.0), records.Device(4.0, "a", "ssd", 0.0, 0, 0)])
    assert analysis.done == 0


# --- any run that can be simulated ------------------------------------------------------------------------------------

LAYERS = (
    StorageLayer("nvme", "/nvme", 200.0 * MB, 2000 * MB),
    StorageLayer("gpfs", "/gpfs", 50.0 * MB, shared=True),
)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    workload = Workload()
    jobs = []
    for number in range(draw(st.integers(1, 25))):
        after = draw(st.lists(st.sampled_from(jobs), max_size=3, unique_by=id)) if jobs else []
        seconds = draw(st.sampled_from([0.0, 0.5, 1.0, 3.0]))
        at = draw(st.sampled_from([0.0, 0.0, 2.0]))
        if draw(st.booleans()):
            cpus, fails = draw(st.integers(1, 3)), draw(st.sampled_from([0.0, 0.0, 0.4]))
            more = {"retries": 50, "makes": draw(st.sampled_from([0, 100 * MB]))}
            more["ready"] = draw(st.lists(st.sampled_from([0.0, seconds / 4, seconds / 2, seconds]), max_size=3))
            job = workload.task(f"t{cpus}", seconds=seconds, cpus=cpus, after=after, fails=fails, at=at, **more)
            jobs += [job, *(job[index] for index in range(len(job.ready)))]
        else:
            files = [(f"/gpfs/x{number}", draw(st.sampled_from([0, 100 * MB])))]
            constraint = draw(st.sampled_from([None, "10MB/s", "40MB/s", "auto"]))
            more = {"writes": files, "capacity": draw(st.sampled_from([0, 100 * MB]))}
            name = f"w{more['capacity']}-{constraint}"  # of one function, all calls ask for the same
            jobs.append(workload.io_task(name, constraint=constraint, seconds=seconds, after=after, at=at, **more))
    return workload


TUNERS = ["adaptive", "published"]


def simulated(
    workload: Workload, path: Path, tuner: str = "adaptive", **options: object
) -> tuple[Outcome, list[Record]]:
    path.unlink(missing_ok=True)
    nodes = [Node(name, 3, 100, storage=LAYERS, io_executors=3) for name in ("a", "b")]
    observer = SimulatedLog(EventLog(str(path)), nodes, "fifo", ["test"])
    rules = StorageRules(tuner=tuner)
    simulation = Simulation(nodes, workload, rules=rules, observer=observer, **options)  # type: ignore[arg-type]
    observer.attach(simulation.engine)
    outcome = simulation.run()
    observer.close(outcome.end, outcome.done, outcome.failed)
    return outcome, list(read_log(str(path)))


@settings(max_examples=60, deadline=None)
@given(
    workloads(),
    st.sampled_from([0.0, 0.01]),
    st.sampled_from([None, Network(100.0 * MB, 0.1)]),
    st.sampled_from(TUNERS),
)
def test_what_is_found_in_the_log_of_a_simulation_is_what_happened(
    tmp_path_factory: pytest.TempPathFactory, workload: Workload, deciding: float, network: Network | None, tuner: str
) -> None:
    path = tmp_path_factory.mktemp("log") / "events.jsonl"
    outcome, run = simulated(workload, path, tuner, decision_seconds=deciding, network=network)
    analysis = analyse(run)
    assert (analysis.done, analysis.failed) == (outcome.done, outcome.failed)
    # What the master needs after the last task has ended is in the simulation's makespan too.
    assert analysis.makespan == pytest.approx(outcome.makespan, abs=1e-9 + deciding * len(run))
    busy = sum(use.busy for use in analysis.nodes)
    assert busy == pytest.approx(sum(outcome.busy.values()), abs=1e-6 + 3 * deciding * len(run))
    assert_sound(analysis)


def assert_sound(analysis: Analysis) -> None:
    """What holds of every run: the path has no gaps, and the same seconds are found on every way of counting."""
    segments = analysis.critical_path.segments
    edges = [0.0, *(segment.end for segment in segments)]
    assert [segment.start for segment in segments] == edges[:-1]
    assert edges[-1] == analysis.makespan
    for segment in segments:
        if segment.kind == "waiting":
            assert sum(segment.reasons.values()) == pytest.approx(segment.seconds, abs=1e-9)
    over_time = analysis.over_time
    held = sum(use.seconds for use in analysis.functions)
    running = (sum(over_time.computing) + sum(over_time.transferring)) * over_time.step
    starting = analysis.waiting.get("the worker to begin", 0.0)
    assert running == pytest.approx(held + starting, rel=1e-6, abs=1e-6)
    data = analysis.waiting.get("data of other tasks", 0.0)
    queued = sum(over_time.waiting) * over_time.step
    assert queued == pytest.approx(sum(analysis.waiting.values()) - data - starting, rel=1e-6, abs=1e-6)
    assert all(0 <= use.utilisation <= 1 + 1e-9 for use in analysis.nodes)
    assert all(0 <= use.held <= 1 and 0 <= use.busy <= 1 for use in analysis.devices)


@pytest.mark.parametrize("tuner", TUNERS)
def test_equal_simulations_leave_equal_logs_which_other_readers_understand(tmp_path: Path, tuner: str) -> None:
    workload = Workload()
    for number in range(40):
        block = workload.task("compute", seconds=1.0, makes=MB)
        workload.io_task("save", constraint="auto", writes=[(f"/gpfs/{number}", 10 * MB)], after=[block])
    outcome, run = simulated(workload, tmp_path / "one.jsonl", tuner, seed=3)
    simulated(workload, tmp_path / "two.jsonl", tuner, seed=3)
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes()
    tally = Tally()
    tally.add(run)
    assert {name: function.done for name, function in tally.functions.items()} == {"compute": 40, "save": 40}
    assert any("save" in line for line in summary_lines(tally))
    assert isinstance(run[0], records.RunStarted) and isinstance(run[-1], records.RunEnded)
    assert run[0].cpus == 6 and run[-1].t == outcome.end


# --- how it looks -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def busy_run(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    workload = Workload()
    for number in range(60):
        block = workload.task("a function with quite a long name in it", seconds=2.0, cpus=1 + number % 2)
        workload.io_task("save", constraint="40MB/s", writes=[(f"/gpfs/{number}", 50 * MB)], after=[block])
    return analyse(simulated(workload, tmp_path_factory.mktemp("busy") / "events.jsonl")[1])


@pytest.mark.parametrize("width", [40, 60, 80, 140])
def test_the_view_fits_the_terminal(busy_run: Analysis, width: int) -> None:
    console = Console(width=width)
    with console.capture() as capture:
        console.print(analysis_view(busy_run, console, "title"))
    lines = capture.get().splitlines()
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for part in ("makespan", "120 done", "critical path", "gpfs", "computing units in use over time"):
        assert part in text


def test_the_view_in_ascii(busy_run: Analysis, tmp_path: Path) -> None:
    with open(tmp_path / "out", "w", encoding="ascii") as file:
        console = Console(width=80, file=file)
        console.print(analysis_view(busy_run, console, "title"))
    assert "#####" in (tmp_path / "out").read_text()


def test_a_figure_is_drawn(busy_run: Analysis, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from penstock.observe.figures import draw_analysis, draw_comparison

    draw_analysis(busy_run, str(tmp_path / "run.svg"), "title")
    draw_comparison([({"nodes": "2"}, 4.0), ({"nodes": "4"}, 2.0)], str(tmp_path / "sweep.png"), "title")
    assert "<svg" in (tmp_path / "run.svg").read_text() and (tmp_path / "sweep.png").stat().st_size > 1000
