"""The scenarios in the simulator, with the engine of real runs: how long each way takes."""

from benchmarks.steering.scenarios import CORES, EXECUTORS, MB, PEAK, File, Scenario
from penstock.engine.state import StorageRules
from penstock.model.resources import Node, StorageLayer
from penstock.runtime.delivery import deliveries_of
from penstock.sim.simulation import Condition, Simulation
from penstock.sim.workloads import Workload
from penstock.tuning.registry import Delivery, Learned

#: what a run learned: by the adaptive controller, and in epochs
Known = dict[tuple[str, str], Delivery] | dict[tuple[str, str], Learned]


def seconds(
    scenario: Scenario,
    tasks: int,
    constraint: float | str,
    *,
    seed: int = 0,
    tuner: str = "adaptive",
    known: Known | None = None,
) -> tuple[float, Known]:
    """How long a scenario takes, and what was learned."""
    files = scenario.files(tasks, seed)
    layer = StorageLayer("disk", "/disk", PEAK, curve=scenario.curve)
    node = Node("here", CORES, 1 << 40, storage=(layer,), io_executors=EXECUTORS)
    given = {"deliveries" if tuner == "adaptive" else "known": known or {}}
    courses = scenario.conditions(files, seed)
    simulation = Simulation(
        [node],
        workload(files, constraint),
        rules=StorageRules(tuner=tuner, **given),  # type: ignore[arg-type]
        conditions=[Condition(time, "here:disk", speed, others) for time, speed, others in courses],
    )
    outcome = simulation.run()
    state = simulation.engine.state
    learned: Known
    if tuner == "adaptive":
        learned = {(one.function, one.layer): one for one in deliveries_of(state.steered)}
    else:
        learned = {key: one for key, tuner_ in state.tuners.items() if (one := tuner_.learned()) is not None}
    return outcome.makespan, learned


def workload(files: list[File], constraint: float | str) -> Workload:
    """The tasks, all called at once."""
    made = Workload()
    for number, file in enumerate(files):
        path = f"/disk/{number}"
        how = {"reads": [(path, file.size)]} if file.reads else {"writes": [(path, file.size)]}
        made.io_task(file.name, seconds=file.seconds, constraint=constraint, **how)  # type: ignore[arg-type]
    return made


def best_static(scenario: Scenario, tasks: int, seed: int = 0) -> tuple[float, int]:
    """The least time that a number for all tasks can give, and how many then run at a time."""
    return min(
        (seconds(scenario, tasks, PEAK // streams / MB, seed=seed)[0], streams) for streams in range(1, EXECUTORS + 1)
    )


def plain(scenario: Scenario, tasks: int, seed: int = 0) -> float:
    """As many writers as there are cores: a program that knows nothing of I/O."""
    return seconds(scenario, tasks, PEAK / CORES / MB, seed=seed)[0]
