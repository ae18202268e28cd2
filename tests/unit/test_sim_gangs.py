"""Gangs and reservations on simulated clusters: makespans that can be worked out by hand."""

from __future__ import annotations

import pytest

from penstock.engine import reservations
from penstock.engine.reservations import PATIENCE
from penstock.model.resources import Node
from penstock.sim.simulation import Simulation
from penstock.sim.workloads import Workload

NODES = [Node(f"n{index}", 4, 10**9) for index in range(3)]


def test_gangs_that_do_not_fit_together_run_one_after_the_other() -> None:
    workload = Workload()
    for _ in range(3):
        workload.task("solve", seconds=10.0, processes=8)
    outcome = Simulation(NODES, workload).run()
    assert outcome.makespan == pytest.approx(30.0)
    assert outcome.done == 3


def test_narrow_tasks_run_beside_a_gang() -> None:
    workload = Workload()
    workload.task("solve", seconds=10.0, processes=4, cpus=2)
    for _ in range(4):
        workload.task("count", seconds=10.0)
    assert Simulation(NODES, workload).run().makespan == pytest.approx(10.0)


def test_a_gang_runs_again_when_one_of_its_nodes_is_lost() -> None:
    workload = Workload()
    workload.task("solve", seconds=10.0, processes=8)
    outcome = Simulation(NODES, workload, lost=[(4.0, "n1")]).run()
    assert outcome.done == 1
    assert outcome.makespan == pytest.approx(14.0)


@pytest.mark.parametrize("reserving", [True, False])
def test_a_gang_is_not_starved_by_a_stream_of_narrow_tasks(reserving: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Narrow tasks of 6 s, one every half a second, keep 12 units busy for as long as the stream lasts."""
    if not reserving:
        monkeypatch.setattr(reservations, "PATIENCE", float("inf"))
    workload = Workload()
    for number in range(200):
        workload.task("count", seconds=6.0, at=number / 2)
        if number == 15:
            workload.task("solve", seconds=1.0, processes=8, at=number / 2)
    started: list[float] = []

    def watch(now: float, event: object) -> None:
        running = simulation.engine.state.ledger.gangs
        if running and not started:
            started.append(now)

    simulation = Simulation(NODES, workload, watch=watch)
    outcome = simulation.run()
    assert outcome.done == 201
    if reserving:
        assert started[0] <= 7.5 + 1.5 * PATIENCE + 6.0
    else:
        assert started[0] >= 99.0
