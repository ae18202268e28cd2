"""Objects and files that travel between simulated nodes: over both nodes' links, shared fairly, once per node."""

from __future__ import annotations

import pytest
from tests.unit.sim_rig import MB, SSD, node, on, simulate

from penstock.engine.state import StorageRules
from penstock.errors import ConfigError
from penstock.model.resources import Requirements, StorageLayer
from penstock.sim.network import Network
from penstock.sim.workloads import Workload

FAST = Network(100.0 * MB)


def made_there_used_here(consumers: int = 1, size: int = 100 * MB) -> Workload:
    workload = Workload()
    made = workload.add("make", on("a"), seconds=1.0, makes=size)
    for _ in range(consumers):
        workload.add("use", on("b"), seconds=1.0, after=[made])
    return workload


def test_an_object_from_another_node_takes_the_time_of_the_links() -> None:
    outcome = simulate(made_there_used_here(), node("a"), node("b"), network=FAST)
    assert outcome.makespan == 3.0
    assert outcome.links["a:out"].transferred == outcome.links["b:in"].transferred == 100 * MB
    assert outcome.links["a:in"].transferred == outcome.links["b:out"].transferred == 0
    assert outcome.busy == {"a": 1.0, "b": 2.0}  # whoever waits for its data holds its computing unit


def test_without_a_network_transfers_are_free() -> None:
    outcome = simulate(made_there_used_here(), node("a"), node("b"))
    assert outcome.makespan == 2.0
    assert outcome.links == {}


def test_latency_comes_before_the_first_byte() -> None:
    network = Network(100.0 * MB, latency=0.5)
    assert simulate(made_there_used_here(), node("a"), node("b"), network=network).makespan == 3.5


def test_consumers_on_one_node_share_one_transfer_and_later_ones_find_the_object_there() -> None:
    outcome = simulate(made_there_used_here(4), node("a"), node("b", 2), network=FAST)
    # Two wait for the transfer together, two come later and need none.
    assert outcome.makespan == 1.0 + 1.0 + 1.0 + 1.0
    assert outcome.links["b:in"].transferred == 100 * MB


def test_two_receivers_share_the_senders_link() -> None:
    workload = Workload()
    made = workload.add("make", on("a"), makes=100 * MB)
    for name in "bc":
        workload.add("use", on(name), after=[made])
    outcome = simulate(workload, node("a"), node("b"), node("c"), network=FAST)
    assert outcome.makespan == 2.0
    assert outcome.links["a:out"].transferred == 200 * MB


def test_a_later_receiver_may_fetch_from_whoever_sends_less() -> None:
    workload = Workload()
    made = workload.add("make", on("a"), makes=100 * MB)
    first = workload.add("use", on("b"), after=[made])
    for name in "cd":
        workload.add("use", on(name), after=[made, first])
    outcome = simulate(workload, *map(node, "abcd"), network=FAST)
    # b has it after 1 s; then c and d fetch it at the same time, from a and from b.
    assert outcome.makespan == 2.0
    assert outcome.links["b:out"].transferred == 100 * MB


def test_several_objects_for_one_task_share_its_link() -> None:
    workload = Workload()
    parts = [workload.add("make", on(name), makes=100 * MB) for name in "ab"]
    workload.add("merge", on("c"), after=parts)
    assert simulate(workload, *map(node, "abc"), network=FAST).makespan == 2.0


@pytest.mark.parametrize(("scheduler", "moved"), [("locality", 0), ("fifo", 100 * MB)])
def test_a_policy_that_follows_data_leaves_them_where_they_are(scheduler: str, moved: int) -> None:
    workload = Workload()
    made = workload.add("make", on("b"), makes=100 * MB)
    workload.task("use", after=[made])
    outcome = simulate(workload, node("a"), node("b"), network=FAST, scheduler=scheduler)
    assert sum(link.transferred for link in outcome.links.values()) == 2 * moved


def test_a_file_on_a_nodes_own_layer_is_read_through_its_device_and_both_links() -> None:
    workload = Workload()
    workload.add("write", on("a"), writes=[("/ssd/x", 100 * MB)])
    workload.add("read", on("b"), reads=["/ssd/x"])
    for bandwidth, seconds in ((50.0 * MB, 2.0), (200.0 * MB, 1.0)):  # the slowest on the way decides
        outcome = simulate(workload, node("a", 1, SSD), node("b", 1, SSD), network=Network(bandwidth))
        assert outcome.makespan == 1.0 + seconds
        assert outcome.devices["a:ssd"].transferred == 200 * MB
        assert outcome.devices["b:ssd"].transferred == 0
        assert outcome.links["b:in"].transferred == 100 * MB


def test_a_file_from_another_node_waits_for_the_latency_and_one_of_its_own_does_not() -> None:
    workload = Workload()
    workload.add("write", on("a"), writes=[("/ssd/x", 100 * MB)])
    for name, makespan in (("a", 2.0), ("b", 2.5)):
        workload.jobs[1:] = []
        workload.add("read", on(name), reads=["/ssd/x"])
        nodes = [node("a", 1, SSD), node("b", 1, SSD)]
        assert simulate(workload, *nodes, network=Network(100.0 * MB, latency=0.5)).makespan == makespan


def test_the_way_to_a_shared_layer_is_no_link() -> None:
    layer = StorageLayer("gpfs", "/gpfs", 100.0 * MB, shared=True)
    workload = Workload()
    workload.add("write", on("a"), writes=[("/gpfs/x", 100 * MB)])
    workload.add("read", on("b"), reads=["/gpfs/x"])
    outcome = simulate(workload, node("a", 1, layer), node("b", 1, layer), network=FAST)
    assert outcome.makespan == 2.0
    assert not any(link.transferred for link in outcome.links.values())


def test_many_streams_from_many_nodes_on_a_shared_layer_follow_its_curve() -> None:
    layer = StorageLayer("gpfs", "/gpfs", 100.0 * MB, shared=True, curve=((1, 50.0 * MB), (4, 80.0 * MB)))
    workload = Workload()
    for index in range(4):
        workload.add("write", on("abcd"[index]), writes=[(f"/gpfs/{index}", 100 * MB)])
    outcome = simulate(workload, *(node(name, 1, layer) for name in "abcd"))
    assert outcome.makespan == 400 / 80


def test_an_attempt_that_is_killed_while_it_waits_leaves_the_transfer_to_others() -> None:
    workload = Workload()
    made = workload.add("make", on("a"), makes=200 * MB)
    workload.add("hasty", on("b"), after=[made], timeout=1.0)
    workload.add("patient", on("b"), after=[made])
    outcome = simulate(workload, node("a"), node("b"), network=FAST)
    assert outcome.makespan == 2.0
    assert (outcome.done, outcome.failed) == (2, 1)


def test_objects_that_nobody_reads_any_more_are_forgotten() -> None:
    from penstock.sim.simulation import Simulation

    simulation = Simulation([node("a"), node("b")], made_there_used_here(3), network=FAST)
    simulation.run()
    assert not simulation.engine.state.segments
    assert not simulation.executor._objects._holders


@pytest.mark.parametrize(
    "numbers", [(0.0,), (-1.0,), (float("inf"),), (float("nan"),), (1.0, -1.0), (1.0, float("nan"))]
)
def test_a_network_that_cannot_be_is_refused(numbers: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="network"):
        Network(*numbers)


def test_io_tasks_fetch_too() -> None:
    workload = Workload()
    made = workload.add("make", on("a"), makes=100 * MB)
    there = Requirements(0, properties=(("host", "b"),), io=True)
    workload.add("write", there, after=[made], writes=[("/ssd/x", 100 * MB)])
    outcome = simulate(workload, node("a"), node("b", 1, SSD), network=FAST, rules=StorageRules())
    assert outcome.makespan == 2.0
