"""How fast the simulator is, from building the workload to the outcome, and what the largest published run needs.

Plainly: tasks that depend on nothing. In the shape of the published study of 893,123 tasks: chunks, pipelines, trees of
merges, on 100 nodes of 48 cores. Each in a process of its own, whose peak memory is looked at.
"""

import sys
import time

from benchmarks.memory import peak_bytes
from benchmarks.row import Budget, Measurement, Row
from benchmarks.workload import emit

RATE = "simulated_tasks_per_second"
SECONDS = "simulated_gwas_seconds"
MEMORY = "simulated_gwas_gb"
PLAIN = "simulated_plain_seconds"
TASKS = 893_123


def _of_gwas(figure: str) -> Measurement:
    # One round: it takes most of a minute. One process for both figures.
    return Measurement(figure, "less", __name__, rounds=1, together=True)


ROWS = [
    Row("simulated tasks, 100 × 48 cores", "/s", Measurement(RATE, "more", __name__), Budget(30_000)),
    Row("893,123 simulated tasks, GWAS", "s", _of_gwas(SECONDS), Budget(60)),
    Row("893,123 simulated tasks, GWAS, peak", "GB", _of_gwas(MEMORY), Budget(3)),
    Row("893,123 simulated tasks, plain", "s", Measurement(PLAIN, "less", __name__, rounds=1), Budget(60)),
]


def plain(tasks: int) -> float:
    """Seconds to build and simulate tasks that depend on nothing."""
    from benchmarks.papers.gwas import nodes
    from penstock.sim.simulation import Simulation
    from penstock.sim.workloads import Uniform, Workload

    began = time.perf_counter()
    workload = Workload()
    for _ in range(tasks):
        workload.task("work", seconds=Uniform(5.0, 15.0))
    outcome = Simulation(nodes(4800), workload).run()
    seconds = time.perf_counter() - began
    if outcome.done != tasks:
        raise AssertionError(f"{outcome.done} of {tasks} tasks were done")
    return seconds


def gwas(third_level: int) -> tuple[float, int]:
    """Seconds to build and simulate the study, and its number of tasks."""
    from benchmarks.papers.gwas import nodes, workload
    from penstock.sim.simulation import Simulation

    began = time.perf_counter()
    flow = workload(third_level)
    outcome = Simulation(nodes(4800), flow).run()
    seconds = time.perf_counter() - began
    if outcome.done != len(flow.jobs):
        raise AssertionError(f"{outcome.done} of {len(flow.jobs)} tasks were done")
    return seconds, outcome.done


def main() -> None:
    quick = "--quick" in sys.argv
    if RATE in sys.argv:
        tasks = 20_000 if quick else 100_000
        emit({RATE: tasks / plain(tasks)})
    elif PLAIN in sys.argv:
        tasks = TASKS // 10 if quick else TASKS
        seconds = plain(tasks)
        emit({PLAIN: seconds, "tasks_per_second": tasks / seconds, "peak_gb": peak_bytes() / 1e9})
    else:
        seconds, tasks = gwas(1 if quick else 8)
        emit({SECONDS: seconds, MEMORY: peak_bytes() / 1e9, "tasks": tasks, "tasks_per_second": tasks / seconds})


if __name__ == "__main__":
    main()
