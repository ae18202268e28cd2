"""The scenarios on several nodes, each with a device of its own that is like the others, but for one if so wished."""

from collections.abc import Callable

from benchmarks.steering.scenarios import CORES, EXECUTORS, MB, PEAK, Scenario
from benchmarks.steering.simulated import workload
from penstock.engine.engine import Engine
from penstock.model.resources import Node, StorageLayer
from penstock.sim.simulation import Condition, Simulation

#: times as fast as described the odd device is, with so many streams of others
ODD = (0.4, 2)


def seconds(
    scenario: Scenario,
    nodes: int,
    tasks: int,
    constraint: float | str,
    *,
    seed: int = 0,
    odd: bool = False,
    look: Callable[[Engine], None] = lambda engine: None,
) -> float:
    """How long a scenario takes with so many tasks for each node; ``look`` sees what the engine has learned."""
    layer = StorageLayer("disk", "/disk", PEAK, curve=scenario.curve)
    one = scenario.files(tasks, seed)
    files = [file for number in range(nodes) for file in scenario.files(tasks, seed + number)]
    conditions = []
    for number in range(nodes):
        slower, more = ODD if odd and not number else (1.0, 0)
        if slower != 1.0:
            conditions.append(Condition(0.0, f"node{number}:disk", slower, more))
        for time, speed, others in scenario.conditions(one, seed + number):
            conditions.append(Condition(time, f"node{number}:disk", speed * slower, others + more))
    simulation = Simulation(
        [Node(f"node{number}", CORES, 1 << 40, storage=(layer,), io_executors=EXECUTORS) for number in range(nodes)],
        workload(files, constraint),
        conditions=conditions,
    )
    took = simulation.run().makespan
    look(simulation.engine)
    return took


def best_static(scenario: Scenario, nodes: int, tasks: int, *, around: int, odd: bool = False) -> float:
    """The least time that a number for all tasks gives; looked for beside what is best on one node."""
    numbers = range(max(1, around - 1), min(EXECUTORS, around + 1) + 1)
    return min(seconds(scenario, nodes, tasks, PEAK // streams / MB, odd=odd) for streams in numbers)
