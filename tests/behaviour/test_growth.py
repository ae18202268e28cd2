"""A program that runs for long: what is over leaves no records behind, whatever kind of task it was."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import penstock
from penstock import FILE_IN, FILE_OUT, INOUT, barrier, task, wait_on

if TYPE_CHECKING:
    from penstock import Runtime  # workers import this module, and need no engine

COUNT = 60


@task
def same(value: Any) -> Any:
    return value


@task
def small(number: int) -> Any:
    return np.arange(number % 7)


@task
def large(number: int) -> Any:
    return np.full(20_000, float(number))


@task(returns=2)
def pair(number: int) -> tuple[Any, Any]:
    return np.full(20_000, float(number)), number


@task
def length(*values: Any) -> int:
    return len(values)


@task(values=INOUT)
def put(values: Any, number: int) -> None:
    values[0] = number


@task(path=FILE_OUT)
def write(path: str) -> None:
    Path(path).write_text("content")


@task(path=FILE_IN)
def read(path: str) -> str:
    return Path(path).read_text()


@task(returns=...)
def stream(count: int) -> Iterator[Any]:
    for number in range(count):
        yield np.arange(number)


@task
def fail(number: int) -> None:
    raise ValueError(number)


@task(on_failure="ignore")
def fail_unheard(number: int) -> None:
    raise ValueError(number)


class Thing:
    def __init__(self) -> None:
        self.content: dict[int, int] = {0: 0}

    def __setitem__(self, key: int, value: int) -> None:
        self.content[key] = value


def updated(make: Callable[[], Any]) -> Callable[[int, Path], None]:
    def go(number: int, folder: Path) -> None:
        obj = make()
        put(obj, number)
        put(obj, number + 1)

    return go


def write_and_read(number: int, folder: Path) -> None:
    write(str(folder / f"file{number}"))
    read(str(folder / f"file{number}"))


def cancel(number: int, folder: Path) -> None:
    future = length(small(number))
    future.cancel()
    try:
        future.result()
    except CancelledError:
        pass


KINDS: dict[str, Callable[[int, Path], Any]] = {
    "plain": lambda number, folder: same(number),
    "array argument": lambda number, folder: same(np.arange(5)),
    "array result": lambda number, folder: small(number),
    "array chain": lambda number, folder: same(same(small(number))),
    "large array": lambda number, folder: length(same(large(number))),
    "large argument": lambda number, folder: length(np.zeros(20_000)),
    "large and small": lambda number, folder: same(pair(number)[1]),
    "shared": lambda number, folder: length(penstock.share(np.zeros(20_000))),
    "updated list": updated(lambda: [0]),
    "updated array": updated(lambda: np.zeros(4)),
    "updated large array": updated(lambda: np.zeros(20_000)),
    "updated instance": updated(Thing),
    "updated, fetched": lambda number, folder: [put(values := [0], number), wait_on(values)],
    "files": write_and_read,
    "map": lambda number, folder: small.map(range(3)).results(),
    "large map": lambda number, folder: large.map(range(3)).results(),
    "stream": lambda number, folder: [part.result() for part in stream(3)],
    "failed": lambda number, folder: fail(number).exception(),
    "failed, consumer": lambda number, folder: length(fail(number)).exception(),
    "failed, ignored": lambda number, folder: fail_unheard(number),
    "cancelled": cancel,
}


def records(runtime: Runtime) -> dict[str, int]:
    """How many entries the tables of the engine and of the main program have, apart from those that are bounded."""
    state, driver = runtime.driver.engine.state, runtime.driver
    owners = {
        "state": state,
        "store": state.store,
        "origins": state.origins,
        "ledger": state.ledger,
        "driver": driver,
        "runtime": runtime,
        "identity": runtime.identity,
        "buffers": runtime.buffers,
    }
    return {
        f"{owner}.{name}": len(table)
        for owner, holder in owners.items()
        for name, table in vars(holder).items()
        if hasattr(table, "__len__") and not isinstance(table, str | bytes)
    }


def settled(runtime: Runtime, as_before: dict[str, int] | None = None) -> dict[str, int]:
    """The records when everything is over, which some of it is in the background."""
    deadline = time.monotonic() + 60
    while True:
        same(1).result()  # the driver hears of what is dropped with the next event
        barrier()
        gc.collect()
        found = records(runtime)
        if as_before is None:
            return found
        if all(count <= as_before.get(name, 0) + 3 for name, count in found.items()) or time.monotonic() > deadline:
            return found
        time.sleep(0.01)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", KINDS)
def test_tasks_that_are_over_leave_no_records(kind: str, tmp_path: Path, runtime: Runtime) -> None:
    call = KINDS[kind]
    for number in range(3):
        call(number, tmp_path)
    before = settled(runtime)
    for number in range(3, 3 + COUNT):
        call(number, tmp_path)
    after = settled(runtime, before)
    grown = {name: (before.get(name, 0), count) for name, count in after.items() if count > before.get(name, 0) + 3}
    assert not grown


PROGRAM = """
import resource
import numpy as np
from penstock import INOUT, Runtime, task

@task
def make(i):
    return np.arange(4)

@task
def large(i):
    return np.zeros(20_000)

@task
def take(array):
    return array[:2]

@task(array=INOUT)
def change(array):
    array += 1

def go(count):
    for i in range(count):
        take(make(i))
        change(np.zeros(4))
        if not i % 10:
            take(large(i))
    take(make(0)).result()

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

with Runtime(cpus=2, window=5_000) as runtime:
    go(20_000)
    before = peak()
    go(60_000)
    print((peak() - before) // 1024)
"""


@pytest.mark.long
@pytest.mark.timeout(900)
def test_memory_does_not_grow_over_two_hundred_thousand_tasks_with_arrays() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=800, check=True)
    assert int(done.stdout) < 20  # MB
