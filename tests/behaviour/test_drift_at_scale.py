"""What was learned in epochs is learned anew when times change, and not because many tasks start at once."""

from __future__ import annotations

from penstock.engine.state import StorageRules
from penstock.model.events import ConstraintDrifted
from penstock.model.resources import Node, StorageLayer
from penstock.sim.simulation import Simulation
from penstock.sim.workloads import Workload

MB = 1_000_000
#: congests beyond 56 streams
CURVE = ((1, 100.0 * MB), (14, 420.0 * MB), (56, 450.0 * MB), (112, 300.0 * MB), (225, 150.0 * MB))
PUBLISHED = StorageRules(tuner="published")
SSD = StorageLayer("ssd", "/ssd", 450.0 * MB, curve=CURVE)


def drifts(*sizes: int, constraint: str) -> int:
    """How often learning begins anew with 1,000 writes of each size, all ready at once."""
    workload = Workload()
    for number, size in enumerate(size for size in sizes for _ in range(1000)):
        workload.io_task("write", writes=[(f"/ssd/{number}", size * MB)], constraint=constraint)
    outcome = Simulation([Node("n", 48, 0, storage=(SSD,), io_executors=225)], workload, rules=PUBLISHED).run()
    assert outcome.done == 1000 * len(sizes)
    return sum(isinstance(note, ConstraintDrifted) for note in outcome.notes)


def test_a_wave_that_starts_at_once_is_no_drift() -> None:
    # A bounded search knows one stream alone and two at a time; the first of a wave of 56 were never alone.
    assert drifts(290, 290, constraint="auto(2,256,2)") == 0
    assert drifts(290, 290, constraint="auto") == 0


def test_writes_that_become_larger_are_a_drift() -> None:
    assert drifts(100, 600, constraint="auto(2,256,2)") >= 1
    assert drifts(100, 600, constraint="auto") >= 1


def test_a_function_that_is_defined_anew_goes_on_learning() -> None:
    # As in a notebook: the same name, another number, and perhaps other constraints.
    workload = Workload()
    for number, capacity in enumerate((0, 100 * MB)):
        workload.io_task("write", writes=[(f"/ssd/{number}", 0)], constraint="auto", capacity=capacity)
    outcome = Simulation([Node("n", 2, 0, storage=(SSD,), io_executors=4)], workload, rules=PUBLISHED).run()
    assert (outcome.done, outcome.failed) == (2, 0)
