"""The simulator: drives the unchanged engine on virtual time, with nodes and storage devices that are only computed.

A workload is built in Python, nodes are described, and a simulation runs it:

    from penstock.sim import Node, Normal, Simulation, Workload

    workload = Workload()
    blocks = [workload.task("simulate", seconds=Normal(2.0, 0.4)) for _ in range(100)]
    workload.task("merge", seconds=5.0, after=blocks)
    outcome = Simulation([Node("a", cpus=48, memory=96 << 30)], workload).run()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.model.resources import Node, StorageLayer
    from penstock.sim.network import Network
    from penstock.sim.simulation import Outcome, Simulation
    from penstock.sim.sweeps import Point, sweep
    from penstock.sim.workloads import Lognormal, Normal, Uniform, Workload

__all__ = [
    "Lognormal",
    "Network",
    "Node",
    "Normal",
    "Outcome",
    "Point",
    "Simulation",
    "StorageLayer",
    "Uniform",
    "Workload",
    "sweep",
]

_HOMES = {
    "penstock.model.resources": ("Node", "StorageLayer"),
    "penstock.sim.network": ("Network",),
    "penstock.sim.simulation": ("Outcome", "Simulation"),
    "penstock.sim.sweeps": ("Point", "sweep"),
    "penstock.sim.workloads": ("Lognormal", "Normal", "Uniform", "Workload"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    # A program that only wants a distribution for a duration does not pay for the engine.
    if name in _HOME:
        found = globals()[name] = getattr(import_module(_HOME[name]), name)
        return found
    raise AttributeError(f"module 'penstock.sim' has no attribute {name!r}")
