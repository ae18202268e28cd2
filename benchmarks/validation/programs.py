"""Five programs that are as different as programs are: what they wait for, how long their tasks are, what they write.

Each is an ordinary program: it calls tasks, waits, and computes on its own in between. All take a few seconds on two
cores. Work is counted, not timed, so that a task takes as long as the machine lets it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.storage.device import MB
from penstock import COLLECTION_IN, FILE_IN, FILE_OUT, barrier, constraint, io, task, wait_on

Program = Callable[[Path, float], None]

#: turns of a loop that take about a millisecond
MILLISECOND = 40_000


def turn(milliseconds: float) -> int:
    """Keep a core busy for about that long."""
    total = 0
    for number in range(round(milliseconds * MILLISECOND)):
        total += number & 3
    return total


@task(returns=1)
def work(milliseconds: float, *inputs: Any) -> int:
    return turn(milliseconds)


@task(returns=1, parts=COLLECTION_IN)
def gather(milliseconds: float, parts: list[Any]) -> int:
    return turn(milliseconds)


@task(returns=1)
def nothing() -> None:
    """A task that is over at once."""


def write(result: Any, path: str, size: int) -> None:
    with open(path, "wb") as file:
        for _ in range(size // (MB // 4)):
            file.write(bytes(MB // 4))


def writer(bandwidth: float) -> Any:
    """A task that writes a file; with a constraint, if there is a bandwidth in MB/s."""
    declared: Any = io(task(path=FILE_OUT)(write))
    return constraint(storage_bw=f"{bandwidth:g}MB/s")(declared) if bandwidth else declared


@task(returns=1, path=FILE_IN)
def digest(path: str, milliseconds: float) -> int:
    with open(path, "rb") as file:
        size = len(file.read())
    return size + turn(milliseconds)


def compute_bound(device: Path, bandwidth: float) -> None:
    """Chains of unequal tasks, gathered twice."""
    for _ in range(2):
        ends = []
        for chain in range(9):
            value = work(20 + 15 * chain)
            for link in range(3):
                value = work(30 + 10 * ((chain + link) % 4), value)
            ends.append(value)
        wait_on(gather(50, ends))


def io_bound(device: Path, bandwidth: float) -> None:
    """More files than executors, written as fast as the device allows."""
    write_file = writer(bandwidth)
    for number in range(64):
        write_file(None, str(device / f"file-{number}"), 2 * MB)
    barrier()


def mixed(device: Path, bandwidth: float) -> None:
    """Iterations that compute, write checkpoints and read them again, with a program that thinks in between."""
    write_file = writer(bandwidth or 8)
    for iteration in range(3):
        results = [work(40) for _ in range(16)]
        paths = [str(device / f"checkpoint-{iteration}-{number}") for number in range(16)]
        for result, path in zip(results, paths, strict=True):
            write_file(result, path, MB)
        turn(150)
        sizes = [digest(path, 15) for path in paths[::2]]
        wait_on(sizes)
        turn(100)
    barrier()


def tiny(device: Path, bandwidth: float) -> None:
    """Tasks so short that calling them is most of the work."""
    for future in [nothing() for _ in range(60_000)]:
        future.result()


def tree(device: Path, bandwidth: float) -> None:
    """A tree whose stages end with a wait and some work of the program's own."""
    values: list[Any] = [work(15 + leaf % 7) for leaf in range(96)]
    while len(values) > 1:
        values = [gather(20, values[first : first + 2]) for first in range(0, len(values), 2)]
        wait_on(values)
        turn(30)


PROGRAMS: dict[str, Program] = {
    "compute-bound": compute_bound,
    "I/O-bound": io_bound,
    "mixed": mixed,
    "tiny tasks": tiny,
    "staged tree": tree,
}
