"""Simulated failures: attempts that fail, nodes that go with all they hold, and nodes that come."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.sim_rig import MB, SSD, node, on, simulate

from penstock.errors import ConfigError, ConstraintError
from penstock.model import events
from penstock.model.resources import StorageLayer
from penstock.model.tasks import FailureKind, OnFailure
from penstock.sim.network import Network
from penstock.sim.simulation import Simulation
from penstock.sim.workloads import Workload


def tasks(count: int, **details: Any) -> Workload:
    workload = Workload()
    for _ in range(count):
        workload.task("f", seconds=1.0, **details)
    return workload


@pytest.mark.parametrize(("fails_first", "done", "makespan"), [(0, 1, 1.0), (2, 1, 3.0), (3, 0, 3.0)])
def test_the_first_attempts_fail_and_the_next_one_does_not(fails_first: int, done: int, makespan: float) -> None:
    # As in a program, retries alone mean that failures are tried again.
    for options in ({}, {"on_failure": OnFailure.RETRY}, {"on_failure": "retry"}):
        outcome = simulate(tasks(1, fails_first=fails_first, retries=2, **options))
        assert (outcome.done, outcome.makespan) == (done, makespan)


def test_a_task_that_fails_without_being_tried_again() -> None:
    assert simulate(tasks(1, fails_first=1)).failed == 1
    assert simulate(tasks(1, fails_first=1, retries=2, on_failure="fail")).failed == 1


def test_what_ran_on_a_lost_node_runs_again_elsewhere() -> None:
    outcome = simulate(tasks(4), node("a"), node("b"), lost=[(0.5, "a")])
    # b is done with its own at 1 s, then runs those of a.
    assert (outcome.done, outcome.failed) == (4, 0)
    assert outcome.makespan == 2.0
    assert outcome.busy == {"a": 1.0, "b": 4.0}


def test_what_was_sent_ahead_to_a_lost_node_is_not_lost() -> None:
    workload = Workload()
    for _ in range(400):
        workload.task("short", seconds=0.001)
    outcome = simulate(workload, node("a"), node("b"), lost=[(0.0505, "a")])
    assert outcome.done == 400
    finished = [event.task for _, event in outcome.log if isinstance(event, events.Finished)]
    assert sorted(finished) == list(range(1, 401))


def test_tasks_fail_when_the_last_node_is_lost() -> None:
    outcome = simulate(tasks(5), node("a"), lost=[(1.5, "a")])
    assert outcome.done == 2
    assert outcome.failed == 3
    assert outcome.makespan == 1.5
    assert outcome.failures == {FailureKind.UNPLACEABLE: 3}


def test_tasks_wait_for_a_node_that_is_to_join() -> None:
    workload = tasks(5)
    outcome = simulate(workload, node("a"), lost=[(1.5, "a")], joins=[(10.0, node("a", 4))])
    assert (outcome.done, outcome.failed) == (5, 0)
    assert outcome.makespan == 11.0
    assert outcome.busy == {"a": 2 + 1 + 3}


def test_what_only_a_later_node_can_host_is_not_refused() -> None:
    workload = Workload()
    workload.task("wide", seconds=1.0, cpus=8)
    outcome = simulate(workload, node("a"), joins=[(3.0, node("big", 8))])
    assert outcome.makespan == 4.0
    with pytest.raises(ConstraintError, match="computing_units=8"):
        simulate(workload, node("a"), joins=[(3.0, node("small", 4))])


def test_a_node_that_joins_takes_part_of_the_work() -> None:
    outcome = simulate(tasks(8), node("a"), joins=[(1.0, node("b", 4))])
    assert outcome.makespan == 2.0
    assert outcome.busy == {"a": 4.0, "b": 4.0}


def test_files_on_a_lost_nodes_own_layer_are_gone_for_their_readers() -> None:
    shared = StorageLayer("gpfs", "/gpfs", 100.0 * MB, shared=True)
    workload = Workload()
    workload.add("write", on("a"), writes=[("/ssd/x", 100 * MB), ("/gpfs/y", 100 * MB)])
    workload.task("reader", reads=["/ssd/x"], steps=[5.0])
    workload.task("reader", reads=["/gpfs/y"])
    outcome = simulate(workload, node("a", 1, SSD, shared), node("b", 1, SSD, shared), lost=[(3.0, "a")])
    assert (outcome.done, outcome.failed) == (2, 1)
    [failed] = [event.failure.message for _, event in outcome.log if isinstance(event, events.Failed)]
    assert failed == "file /ssd/x was on node a, which was lost"


def test_files_on_a_lost_layer_never_come_home_and_the_run_ends_all_the_same() -> None:
    workload = Workload()
    for index in range(4):
        workload.io_task("write", writes=[(f"/home/{index}", 100 * MB)], constraint=50, capacity=100 * MB)
    outcome = simulate(workload, node("a", 1, SSD), node("b", 1, SSD), lost=[(100.0, "a")])
    assert outcome.end < 100.0
    workload.task("long", seconds=200.0)
    outcome = simulate(workload, node("b", 1, SSD), node("a", 1, SSD), lost=[(100.0, "a")])
    moved = [event for _, event in outcome.log if isinstance(event, events.Moved)]
    assert {event.error for event in moved} == {"", "the node that it was on was lost"}
    assert outcome.done == 5


def test_a_move_breaks_off_with_its_node() -> None:
    slow = StorageLayer("disk", "/disk", 1.0 * MB)
    workload = Workload()
    workload.io_task("write", writes=[("/disk/x", 100 * MB)], constraint=50, capacity=100 * MB)
    simulation = Simulation(
        [node("a", 1, SSD, slow), node("b")], workload, lost=[(50.0, "a")], record=True, room={"disk": 150 * MB}
    )
    outcome = simulation.run()
    [moved] = [event for _, event in outcome.log if isinstance(event, events.Moved)]
    assert moved.error
    assert simulation.executor.files.used() == {}


def test_results_of_a_lost_node_survive() -> None:
    workload = Workload()
    made = workload.add("make", on("a"), makes=100 * MB)
    workload.add("use", on("b"), after=[made], steps=[5.0])
    outcome = simulate(workload, node("a"), node("b"), network=Network(100.0 * MB), lost=[(3.0, "a")])
    assert outcome.done == 2
    assert outcome.makespan == 6.0  # they come from a store that is none of these nodes
    assert outcome.links["a:out"].transferred == 0


def test_a_node_that_is_lost_while_data_come_to_it() -> None:
    workload = Workload()
    made = workload.add("make", on("a"), makes=100 * MB)
    workload.task("use", after=[made], cpus=2)
    nodes = [node("b", 2), node("a", 1), node("c", 2)]
    outcome = simulate(workload, *nodes, network=Network(100.0 * MB), lost=[(0.5, "b")])
    assert (outcome.done, outcome.failed) == (2, 0)
    assert outcome.makespan == 1.5
    assert outcome.links["b:in"].transferred == pytest.approx(50 * MB)


def test_a_slow_master_hears_late_of_a_lost_node_and_loses_nothing() -> None:
    outcome = simulate(
        tasks(20), node("a"), node("b"), lost=[(2.1, "a")], joins=[(2.15, node("a"))], decision_seconds=0.05
    )
    assert (outcome.done, outcome.failed) == (20, 0)
    finished = [event.task for _, event in outcome.log if isinstance(event, events.Finished)]
    assert sorted(finished) == list(range(1, 21))


@pytest.mark.parametrize(
    "settings",
    [
        {"lost": [(1.0, "x")]},
        {"lost": [(1.0, "n"), (2.0, "n")]},
        {"lost": [(-1.0, "n")]},
        {"joins": [(1.0, node("n"))]},
        {"lost": [(2.0, "n")], "joins": [(1.0, node("n"))]},
        {"lost": [(float("nan"), "n")]},
        {"lost": [("n", 1.0)]},
        {"joins": [(node("m"), 1.0)]},
    ],
)
def test_comings_and_goings_that_cannot_be_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="node"):
        simulate(tasks(1), **settings)


def test_two_nodes_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="two nodes are called 'n'"):
        simulate(tasks(1), node("n"), node("n"))


@pytest.mark.parametrize("settings", [{"room": {"sdd": 5}}, {"stream_bandwidth": {"sdd": 5.0}}])
def test_a_layer_that_no_node_has_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="no node has a layer 'sdd'; there are: ssd"):
        simulate(tasks(1), node("n", 2, SSD), **settings)


def test_a_simulation_runs_once() -> None:
    simulation = Simulation([node("n")], tasks(1))
    simulation.run()
    with pytest.raises(ConfigError, match="run already"):
        simulation.run()


# --- gangs ----------------------------------------------------------------------------------------------------------


def test_a_gang_keeps_all_its_hosts_busy() -> None:
    workload = Workload()
    workload.task("mpi", seconds=3.0, cpus=2, processes=3, processes_per_node=2)
    workload.task("narrow", seconds=1.0)
    outcome = simulate(workload, node("a", 4), node("b", 4))
    assert outcome.makespan == 3.0
    assert sorted(outcome.busy.values()) == [2 * 3.0 + 1.0, 2 * 2 * 3.0]


def test_a_gang_ends_with_any_of_its_hosts_and_is_tried_again() -> None:
    workload = Workload()
    workload.task("mpi", seconds=3.0, cpus=2, processes=2, processes_per_node=1)
    for lost in "abc":
        outcome = simulate(workload, *(node(name) for name in "abc"), lost=[(2.0, lost)])
        assert (outcome.done, outcome.failed) == (1, 0)
        hit = lost in [host for host, busy in outcome.busy.items() if busy == 4.0]
        assert outcome.makespan == (5.0 if hit else 3.0)
    assert sum(outcome.busy.values()) in (12.0, 20.0)


def test_a_gang_that_is_sent_to_a_node_which_is_gone_already() -> None:
    workload = Workload()
    workload.task("mpi", seconds=3.0, cpus=2, processes=2, processes_per_node=1, at=1.0)
    nodes = [node(name) for name in "abc"]
    outcome = simulate(
        workload, *nodes, lost=[(1.125, "a"), (1.125, "b")], joins=[(9.0, nodes[0])], decision_seconds=0.25
    )
    assert (outcome.done, outcome.failed) == (1, 0)
    assert 12.0 < outcome.makespan < 13.0
