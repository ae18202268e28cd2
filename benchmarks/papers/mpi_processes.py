"""How many processes an MPI task should have: more make each task faster, and fewer of them run at once.

Two programs on 4, 8 and 12 nodes of 48 cores, with 2 to 48 processes per task: a blocked matrix product whose blocks
are written by MPI tasks, and a web archive whose TF-IDF is computed by them. Published are the best number for each,
how much faster the task and the program became with 8 processes on 8 nodes, and no times.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from msgspec import Struct

from benchmarks.papers.figure import Figure, Lines, Replay
from penstock.model.resources import Node
from penstock.sim.simulation import Simulation
from penstock.sim.workloads import Job, Workload

__all__ = ["COUNTS", "NODES", "TITLE", "best", "makespans", "matmul", "replay", "web"]

TITLE = "Processes per MPI task: matrix product and web archive, 4 to 12 nodes"

NODES = (4, 8, 12)
COUNTS = (2, 4, 8, 16, 48)
CORES = 48
MEMORY = 370 * 10**9

#: the best number of processes on each number of nodes, as published
BEST = {"matmul": (4, 8, 8), "web": (8, 8, 16)}


class Gain(Struct, frozen=True):
    """How much faster a task is with more processes: a part stays sequential, and each process adds overhead."""

    sequential: float
    overhead: float

    def __call__(self, processes: int) -> float:
        shared = self.sequential + (1 - self.sequential) / processes
        return 1 / (shared + self.overhead * (processes - 1))


#: parallel writing: 3 times faster with 8 processes, and no faster with more, as published
WRITING = Gain(0.174, 0.008)
#: TF-IDF: "more than 7 times" with 8 processes
COMPUTING = Gain(0.0159, 0.0)

# --- matrix product ---------------------------------------------------------------------------------------------------

BLOCKS = 8
WRITE = 100.0
#: so that the program is 1.9 times faster with 8 processes on 8 nodes
MULTIPLY = 36.0
CREATE = 2.0


def matmul(processes: int) -> Workload:
    """192 blocks are made, 512 products computed, and each is written before the next one changes the block."""
    workload = Workload()
    first, second, _ = (
        [[workload.task("create_block", seconds=CREATE) for _ in range(BLOCKS)] for _ in range(BLOCKS)]
        for _ in range(3)
    )
    for i in range(BLOCKS):
        for j in range(BLOCKS):
            written: list[Job] = []
            for k in range(BLOCKS):
                product = workload.task("multiply", seconds=MULTIPLY, after=[first[i][k], second[k][j], *written])
                seconds = WRITE / WRITING(processes)
                written = [workload.task("write_result", seconds=seconds, after=[product], processes=processes)]
    return workload


# --- web archive ------------------------------------------------------------------------------------------------------

RECORDS = 720
READ = 10.0
COMPUTE = 100.0
#: of the logarithms of the records' lengths, which vary: so that the best number grows at 12 nodes, not before
SPREAD = 0.5
#: of a task, however many processes it has; so that the program is 3 times faster with 8 processes on 8 nodes
NEEDED = 17 * 10**9


def web(processes: int) -> Workload:
    """720 chains of two tasks: read a record, compute its TF-IDF."""
    workload = Workload()
    chance = Random(5)
    for _ in range(RECORDS):
        length = chance.lognormvariate(0.0, SPREAD)
        record = workload.task("read_record", seconds=READ * length)
        workload.task(
            "calculate_tf_idf",
            seconds=COMPUTE * length / COMPUTING(processes),
            after=[record],
            processes=processes,
            memory=NEEDED // processes,
        )
    return workload


# --- both -------------------------------------------------------------------------------------------------------------

Program = Callable[[int], Workload]
PROGRAMS: dict[str, Program] = {"matmul": matmul, "web": web}


def makespan(program: Program, nodes: int, processes: int) -> float:
    """Seconds of a program whose tasks have so many processes; with one, they are sequential."""
    machine = [Node(f"n{number:02}", CORES, MEMORY) for number in range(nodes)]
    workload = program(processes)
    outcome = Simulation(machine, workload, scheduler="load_balance", seed=1).run()
    if outcome.done != len(workload.jobs):
        raise AssertionError(f"{outcome.done} of {len(workload.jobs)} tasks were done")
    return outcome.makespan


def makespans(program: Program, nodes: int) -> dict[int, float]:
    """Seconds by the number of processes."""
    return {processes: makespan(program, nodes, processes) for processes in COUNTS}


def best(times: dict[int, float]) -> int:
    """The number of processes with which the program was fastest."""
    return min(times, key=times.__getitem__)


def replay() -> Replay:
    figures: list[Figure] = []
    charts: list[Lines] = []
    for name, program in PROGRAMS.items():
        times = {nodes: makespans(program, nodes) for nodes in NODES}
        for nodes, published in zip(NODES, BEST[name], strict=True):
            ours = best(times[nodes])
            title = f"{name}, {nodes} nodes: best number of processes"
            # That it changes with the nodes at all is what the spread of the records was chosen for.
            figures.append(Figure(title, published, ours, "", name == "web", ours == published))
        gain = makespan(program, 8, 1) / times[8][8]
        aim, task = (1.9, WRITING(8)) if name == "matmul" else (3.0, COMPUTING(8))
        figures.append(_near(f"{name}, 8 nodes, 8 processes: program", aim, gain))
        figures.append(_near(f"{name}, 8 processes: task", 3.0 if name == "matmul" else 7.0, task))
        figures.append(_shrinking(name, times))
        curves = {f"{nodes} nodes": list(times[nodes].items()) for nodes in NODES}
        charts.append(Lines(f"{name}: time by processes per task", "processes", "s", curves, log_x=True))
    return Replay(figures, charts, _REMARKS)


def _shrinking(name: str, times: dict[int, dict[int, float]]) -> Figure:
    """Whether more nodes make the program faster with every number of processes."""
    equal = [count for count in COUNTS if not times[4][count] > times[8][count] > times[12][count]]
    note = f"no difference with {', '.join(map(str, equal))}: fewer nodes hold all 64 chains" if equal else ""
    ours = "not always" if equal else "always"
    return Figure(f"{name}: more nodes are faster", "always", ours, "", False, not equal, note)


def _near(name: str, published: float, ours: float) -> Figure:
    return Figure(name, published, ours, "×", True, abs(ours / published - 1) < 0.1)


_REMARKS = (
    "fitted: the gain of a task with 8 processes and what it loses with more; the time of a multiplication against "
    "that of a write, by the 1.9 of the whole program; the memory of a TF-IDF task, by the 3 of the whole program; the "
    "spread of the records' lengths, by the best numbers of the web archive. Those of the product are what comes out.",
    "read so: each product of a block is written before the next changes the block, so 64 chains run side by side. "
    "With 512 independent writes, sequential ones would keep all cores busy, and no number of processes could gain.",
    "with records of equal length the best number for the web archive would not change with the nodes: it is the "
    "longest ones, left at the end, that more processes shorten.",
)
