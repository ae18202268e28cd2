"""Small simulations for tests: the engine's invariants are checked after every event."""

from __future__ import annotations

from typing import Any

from penstock.engine.checks import check
from penstock.model.resources import Node, Requirements, StorageLayer
from penstock.sim.simulation import Outcome, Simulation
from penstock.sim.workloads import Workload

MB = 1_000_000
SSD = StorageLayer("ssd", "/ssd", 100.0 * MB)


def node(name: str = "n", cpus: int = 2, *layers: StorageLayer, executors: int = 8) -> Node:
    """A node that a task can ask for by its name: ``on(name)``."""
    return Node(name, cpus, 10**9, (("host", name),), layers, executors)


def on(name: str, cpus: int = 1) -> Requirements:
    return Requirements(cpus, properties=(("host", name),))


def simulate(workload: Workload, *nodes: Node, **settings: Any) -> Outcome:
    simulation = Simulation(
        nodes or (node(),), workload, record=True, watch=lambda _now, _event: check(simulation.engine), **settings
    )
    outcome = simulation.run()
    assert not simulation.engine.state.ledger.holders
    return outcome
