"""A task that needs much starts in bounded time among an endless stream of narrow ones, whatever the cluster."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.engine.reservations import PATIENCE
from penstock.model.resources import Node
from penstock.sim.simulation import Simulation
from penstock.sim.workloads import Uniform, Workload

#: when it becomes ready, and for how long narrow tasks keep coming
READY, STREAM = 10.0, 50.0
#: how much more they are than the cluster can bear
LOAD = 1.1


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Node], dict[str, Any]]:
    """Nodes, and what a task needs that some of them, or some together, can give."""
    cpus = draw(st.lists(st.integers(2, 4), min_size=1, max_size=4))
    nodes = [Node(f"n{index}", count, 100 * count) for index, count in enumerate(cpus)]
    each = draw(st.integers(1, 2))
    if draw(st.booleans()):
        most = sum(count // each for count in cpus)
        return nodes, {"cpus": each, "processes": draw(st.integers(min(2, most), most))}
    widest = max(cpus)
    return nodes, {"cpus": draw(st.integers(2, widest)), "memory": draw(st.integers(0, 100 * widest))}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    cluster=clusters(),
    seconds=st.sampled_from([1.0, 2.0, 8.0]),
    spread=st.sampled_from([0.0, 0.5]),
    scheduler=st.sampled_from(["fifo", "locality", "load_balance", "fifo_data"]),
    seed=st.integers(0, 99),
)
def test_it_starts_in_bounded_time(
    cluster: tuple[list[Node], dict[str, Any]], seconds: float, spread: float, scheduler: str, seed: int
) -> None:
    nodes, need = cluster
    units = sum(node.cpus for node in nodes)
    longest = seconds * (1 + spread)
    workload = Workload()
    count = int(STREAM / seconds * units * LOAD)
    for number in range(count):
        at = number * STREAM / count
        if at >= READY and (number - 1) * STREAM / count < READY:
            workload.task("wide", seconds=1.0, at=at, **need)
            wide = len(workload.jobs)
        workload.task("narrow", seconds=Uniform(seconds * (1 - spread), longest), memory=100, at=at)
    started: list[float] = []

    def watch(now: float, event: object) -> None:
        if not started and wide in simulation.engine.state.ledger.holders:
            started.append(now)

    simulation = Simulation(nodes, workload, scheduler=scheduler, seed=seed, watch=watch)
    assert simulation.run().done == count + 1
    # Until those before it have started; until it is noticed, and patience has run out, and the next task ends; until
    # all that ran on its nodes has ended.
    assert started[0] <= LOAD * READY + 1.5 * PATIENCE + 2 * longest
