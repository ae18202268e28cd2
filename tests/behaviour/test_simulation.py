"""Simulated runs: makespans that can be computed by hand, the same engine, the same course every time."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.engine.checks import check
from penstock.engine.state import StorageRules
from penstock.errors import ConfigError, ConstraintError
from penstock.model import events
from penstock.model.resources import Node, StorageLayer
from penstock.model.tasks import FailureKind, OnFailure
from penstock.sim.simulation import Outcome, Simulation
from penstock.sim.workloads import Lognormal, Normal, Uniform, Workload

MB = 1_000_000
SSD = StorageLayer("ssd", "/ssd", 100.0 * MB)


def node(cpus: int = 2, *layers: StorageLayer, executors: int = 8, name: str = "n") -> Node:
    return Node(name, cpus, 10**9, (), layers, executors)


def simulate(workload: Workload, *nodes: Node, **settings: Any) -> Outcome:
    """Run a workload, with the engine's invariants checked after every event."""
    simulation = Simulation(
        nodes or (node(),), workload, record=True, watch=lambda _now, _event: check(simulation.engine), **settings
    )
    return simulation.run()


# --- computing ------------------------------------------------------------------------------------------------------


def test_a_chain_takes_the_sum_of_its_tasks() -> None:
    workload = Workload()
    before = workload.task("f", seconds=1.5)
    for seconds in (2.0, 0.25):
        before = workload.task("f", seconds=seconds, after=[before])
    outcome = simulate(workload)
    assert outcome.makespan == outcome.end == 3.75
    assert (outcome.done, outcome.failed) == (3, 0)
    assert outcome.busy == {"n": 3.75}


def test_a_fork_and_join_on_two_cores() -> None:
    workload = Workload()
    root = workload.task("split", seconds=1.0)
    parts = [workload.task("work", seconds=2.0, after=[root]) for _ in range(4)]
    workload.task("join", seconds=0.5, after=parts)
    assert simulate(workload).makespan == 1.0 + 2 * 2.0 + 0.5


@pytest.mark.parametrize(("cores", "makespan"), [(1, 10.0), (3, 4.0), (10, 1.0), (64, 1.0)])
def test_more_tasks_than_cores_run_in_waves(cores: int, makespan: float) -> None:
    workload = Workload()
    for _ in range(10):
        workload.task("f", seconds=1.0)
    outcome = simulate(workload, node(cores))
    assert outcome.makespan == makespan
    assert outcome.busy == {"n": 10.0}


def test_tasks_of_several_units_and_several_nodes() -> None:
    workload = Workload()
    for _ in range(4):
        workload.task("wide", seconds=1.0, cpus=2)
    outcome = simulate(workload, node(3, name="a"), node(2, name="b"))
    assert outcome.makespan == 2.0
    assert outcome.busy == {"a": 4.0, "b": 4.0}


def test_short_tasks_are_sent_ahead_and_none_is_lost_or_run_twice() -> None:
    workload = Workload()
    for index in range(300):
        workload.task("short", seconds=0.001 if index % 50 else 0.2)
    outcome = simulate(workload)
    assert outcome.done == 300
    assert outcome.busy["n"] == pytest.approx(294 * 0.001 + 6 * 0.2)
    assert any(isinstance(event, events.Recalled) for _, event in outcome.log)
    finished = [event.task for _, event in outcome.log if isinstance(event, events.Finished)]
    assert sorted(finished) == list(range(1, 301))


def test_a_program_may_call_its_tasks_over_time() -> None:
    workload = Workload()
    first = workload.task("f", seconds=1.0)
    workload.task("f", seconds=1.0, at=5.0, after=[first])
    workload.task("f", seconds=1.0)  # called after the one before it
    outcome = simulate(workload, node(1))
    assert outcome.makespan == 7.0


def test_a_master_that_needs_time_for_each_event_delays_what_it_decides() -> None:
    workload = Workload()
    for _ in range(3):
        workload.task("f", seconds=1.0)
    outcome = simulate(workload, node(3), decision_seconds=0.125)
    # Calls are handled at 1/8, 2/8 and 3/8; the last task ends at 11/8 and is known to be over at 12/8.
    assert outcome.makespan == 1.5
    assert outcome.done == 3


# --- storage --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("as_io", "makespan"), [(False, 6.0), (True, 4.0)])
def test_checkpoints_overlap_with_computing_when_they_are_io_tasks(as_io: bool, makespan: float) -> None:
    workload = Workload()
    for index in range(2):
        block = workload.task("generate_block", seconds=1.0)
        add = workload.io_task if as_io else workload.task
        add("checkpoint", writes=[(f"/ssd/{index}", 100 * MB)], after=[block])
        workload.task("scale", seconds=1.0, after=[block])
    outcome = simulate(workload, node(1, SSD))
    assert outcome.makespan == makespan
    assert outcome.devices["n:ssd"].transferred == 200 * MB
    assert outcome.devices["n:ssd"].busy == 2.0


def test_a_static_constraint_admits_as_many_as_fit() -> None:
    workload = Workload()
    for index in range(7):
        workload.io_task("write", writes=[(f"/ssd/{index}", 100 * MB)], constraint=30)
    most = 0

    def watch(_now: float, _event: events.Event) -> None:
        nonlocal most
        [device] = simulation.engine.state.ledger.devices()
        most = max(most, len(device.holders))

    simulation = Simulation([node(1, SSD)], workload, watch=watch)
    outcome = simulation.run()
    assert most == 100 // 30
    # Three at a time share 100 MB/s: two waves of three, then one alone.
    assert outcome.makespan == pytest.approx(3 + 3 + 1)


def test_congestion_makes_an_unconstrained_run_slower_than_a_constrained_one() -> None:
    curve = ((1, 50.0 * MB), (2, 100.0 * MB), (8, 40.0 * MB))
    layer = StorageLayer("ssd", "/ssd", 100.0 * MB, curve=curve)
    times = []
    for constraint in (None, 50):
        workload = Workload()
        for index in range(8):
            workload.io_task("write", writes=[(f"/ssd/{index}", 100 * MB)], constraint=constraint)
        times.append(simulate(workload, node(1, layer)).makespan)
    assert times == [800 / 40, 800 / 100]


def test_an_enforced_layer_is_written_no_faster_than_what_tasks_hold() -> None:
    for enforced, makespan in ((False, 4.0), (True, 20.0)):
        layer = StorageLayer("ssd", "/ssd", 100.0 * MB, enforced=enforced)
        workload = Workload()
        for index in range(4):
            workload.io_task("write", writes=[(f"/ssd/{index}", 100 * MB)], constraint=10)
        assert simulate(workload, node(1, layer, executors=2)).makespan == pytest.approx(makespan)


def test_a_reader_uses_the_device_that_its_file_is_on() -> None:
    workload = Workload()
    workload.io_task("write", writes=[("/home/x", 100 * MB)], constraint=10)
    workload.task("read", reads=["/home/x", ("/ssd/given", 50 * MB), ("/elsewhere/y", 50 * MB)], seconds=1.0)
    outcome = simulate(workload, node(1, SSD))
    # Written to the layer, though its name is elsewhere: 1 s. Read there: 1 s, and 0.5 s for the other; the third is
    # on no device. Then 1 s of computing, and the file goes home.
    assert outcome.makespan == 3.5
    assert outcome.end == 4.5
    assert outcome.devices["n:ssd"].transferred == 350 * MB


def test_nodes_share_a_shared_layer_and_nothing_else() -> None:
    for shared, makespan in ((True, 2.0), (False, 1.0)):
        layer = StorageLayer("gpfs", "/gpfs", 100.0 * MB, shared=shared)
        workload = Workload()
        for index in range(2):
            workload.task("write", writes=[(f"/gpfs/{index}", 100 * MB)])
        outcome = simulate(workload, node(1, layer, name="a"), node(1, layer, name="b"))
        assert outcome.makespan == makespan
        assert set(outcome.devices) == ({"gpfs"} if shared else {"a:gpfs", "b:gpfs"})


def test_streams_that_are_slow_by_themselves() -> None:
    workload = Workload()
    workload.task("write", writes=[("/ssd/x", 100 * MB)])
    assert simulate(workload, node(1, SSD), stream_bandwidth={"ssd": 25.0 * MB}).makespan == 4.0


@pytest.mark.parametrize(("data_movement", "end"), [(True, 6.0), (False, 8.0)])
def test_files_flow_down_during_the_run_or_at_its_end(data_movement: bool, end: float) -> None:
    slow = StorageLayer("disk", "/disk", 50.0 * MB)
    workload = Workload()
    written = workload.io_task("write", writes=[("/disk/x", 100 * MB)], constraint=10, capacity=100 * MB)
    workload.task("compute", seconds=5.0, after=[written])
    rules = StorageRules(data_movement=data_movement)
    outcome = simulate(workload, node(1, SSD, slow), rules=rules)
    assert outcome.makespan == 6.0
    assert outcome.end == end
    assert outcome.devices["n:disk"].transferred == 100 * MB
    assert outcome.devices["n:disk"].busy == 2.0
    moved = [event for _, event in outcome.log if isinstance(event, events.Moved)]
    assert [event.path for event in moved] == ["/disk/x"]


def test_tasks_wait_for_room_that_moving_files_makes() -> None:
    small = StorageLayer("ssd", "/ssd", 100.0 * MB, capacity=250 * MB)
    slow = StorageLayer("disk", "/disk", 50.0 * MB)
    workload = Workload()
    for index in range(5):
        workload.io_task("write", writes=[(f"/disk/{index}", 100 * MB)], constraint=60, capacity=100 * MB)
    outcome = simulate(workload, node(1, small, slow))
    assert (outcome.done, outcome.failed) == (5, 0)
    assert outcome.devices["n:disk"].transferred == 500 * MB


def test_files_of_use_during_the_run_only_never_go_home() -> None:
    workload = Workload()
    workload.io_task("write", writes=[("/home/x", 100 * MB)], constraint=10, temp=True)
    outcome = simulate(workload, node(1, SSD))
    assert outcome.makespan == outcome.end == 1.0


def test_a_file_written_again_while_it_is_read() -> None:
    workload = Workload()
    workload.task("write", writes=[("/ssd/x", 100 * MB)])
    workload.task("read", reads=["/ssd/x"], seconds=5.0)
    workload.task("rewrite", writes=[("/ssd/x", 100 * MB)])
    workload.task("read", reads=["/ssd/x"])
    outcome = simulate(workload)
    assert outcome.done == 4
    published = [event.path for _, event in outcome.log if isinstance(event, events.Published)]
    assert published == ["/ssd/x"]


def test_a_bounded_search_uses_446_tasks_of_an_ssd_with_225_executors() -> None:
    ssd = StorageLayer("ssd", "/ssd", 450.0 * MB)
    workload = Workload()
    for index in range(600):
        workload.io_task("checkpoint", writes=[(f"/ssd/{index}", 290 * MB)], constraint="auto(2,256,2)")
    outcome = Simulation([node(48, ssd, executors=225)], workload, rules=StorageRules(tuner="published")).run()
    assert [epoch.constraint / MB for epoch in outcome.epochs] == [2, 4, 8, 16, 32, 64, 128, 256]
    assert [epoch.tasks for epoch in outcome.epochs] == [225, 112, 56, 28, 14, 7, 3, 1]
    assert sum(epoch.tasks for epoch in outcome.epochs) == 446
    assert not any(epoch.partial for epoch in outcome.epochs)
    for epoch in outcome.epochs:
        assert epoch.seconds == pytest.approx(epoch.concurrency * 290 / 450)
    [choice] = outcome.chosen
    assert choice.constraint == 256 * MB
    assert outcome.makespan == pytest.approx(600 * 290 / 450)


# --- chance and failure ---------------------------------------------------------------------------------------------


def random_workload() -> Workload:
    workload = Workload()
    for index in range(60):
        seconds = (Normal(1.0, 0.5), Lognormal(0.5, 1.0), Uniform(0.1, 2.0))[index % 3]
        made = workload.task("f", seconds=seconds, fails=0.3, retries=1, on_failure=OnFailure.RETRY)
        workload.io_task("w", writes=[(f"/ssd/{index}", 10 * MB)], after=[made], constraint="auto", fails=0.05)
    return workload


@pytest.mark.parametrize("tuner", ["adaptive", "published"])
def test_the_same_seed_gives_the_same_outcome_and_another_one_another(tuner: str) -> None:
    rules = StorageRules(tuner=tuner)
    first, again, other = (simulate(random_workload(), node(3, SSD), seed=seed, rules=rules) for seed in (1, 1, 2))
    assert first == again
    assert first.makespan != other.makespan
    assert first.failed


def test_durations_do_not_depend_on_the_scheduler() -> None:
    workload = random_workload()
    assert workload.durations(3) == workload.durations(3)
    assert min(workload.durations(3)) >= 0
    fifo, lifo = (simulate(workload, node(3, SSD), seed=3, scheduler=name) for name in ("fifo", "lifo"))
    assert fifo.makespan != lifo.makespan
    assert fifo.busy["n"] == pytest.approx(lifo.busy["n"])
    assert fifo.failures == lifo.failures


def test_a_task_that_always_fails_takes_its_consumers_along() -> None:
    workload = Workload()
    bad = workload.task("bad", seconds=1.0, fails=1.0, retries=2, on_failure=OnFailure.RETRY)
    workload.task("consumer", seconds=1.0, after=[bad])
    workload.task("other", seconds=1.0)
    outcome = simulate(workload)
    assert (outcome.done, outcome.failed) == (1, 2)
    assert outcome.makespan == 3.0
    assert outcome.failures == {FailureKind.EXCEPTION: 1, FailureKind.DEPENDENCY: 1}


def test_a_task_that_runs_too_long_is_killed_and_leaves_its_device() -> None:
    workload = Workload()
    workload.task("stuck", writes=[("/ssd/x", 1000 * MB)], timeout=2.0)
    workload.task("write", writes=[("/ssd/y", 200 * MB)])
    outcome = simulate(workload, node(2, SSD))
    assert outcome.failures == {FailureKind.TIMEOUT: 1}
    # Both share for two seconds; then the other has the device for itself.
    assert outcome.makespan == 3.0
    assert outcome.devices["n:ssd"].transferred == 300 * MB


# --- bad input ------------------------------------------------------------------------------------------------------


def test_what_no_node_can_ever_give_is_refused() -> None:
    workload = Workload()
    workload.task("wide", cpus=64)
    with pytest.raises(ConstraintError, match="computing_units=64"):
        simulate(workload)


@pytest.mark.parametrize(
    "details",
    [
        {"seconds": -1.0},
        {"seconds": float("inf")},
        {"seconds": Normal(-1.0, 1.0)},
        {"seconds": Uniform(2.0, 1.0)},
        {"fails": 1.5},
        {"at": -1.0},
        {"reads": ["/nowhere"]},
        {"takes": ["nothing"]},
        {"gives": [("x", -1)]},
        {"seconds": "2s"},
        {"after": [99]},
        {"secs": 1.0},
        {"on_failure": "nonsense"},
    ],
)
def test_tasks_that_cannot_be_meant_are_refused(details: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="task f"):
        Workload().task("f", **details)


def test_a_simulation_needs_a_node() -> None:
    with pytest.raises(ConfigError, match="at least one node"):
        Simulation([], Workload()).run()
