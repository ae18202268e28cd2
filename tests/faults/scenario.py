"""The scenario of the fault loop that kills processes: twelve calls, each of which passes points where it may die.

Apart from the tests, because workers import it: a worker that replaces a killed one should not have to import pytest.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from tests.faults.programs import Tally

import penstock
from penstock import FILE_IN, FILE_INOUT, FILE_OUT, INOUT, task, wait_on

NUMBERS = 50_000


class Fault:
    """Kills a process when it passes a point for the Nth time, counted over all processes."""

    def __init__(self, number: int, point: str, victim: str, tally: Tally) -> None:
        self.number = number
        self.point = point
        self.victim = victim
        self.tally = tally

    def pass_by(self, point: str) -> None:
        """A task is at a point of its body."""
        if point == self.point and self.tally.mark() == self.number:
            os.kill(os.getpid() if self.victim == "worker" else os.getppid(), signal.SIGKILL)
            signal.pause()

    @property
    def happened(self) -> bool:
        return self.tally.count() >= self.number


class NoFault(Fault):
    """For the sequential program."""

    def __init__(self) -> None:
        pass

    def pass_by(self, point: str) -> None:
        pass


def make(number: int, fault: Fault) -> Any:
    fault.pass_by("begin")
    made = np.arange(NUMBERS, dtype=float) * number
    fault.pass_by("end")
    return made


def add(array: Any, other: Any, fault: Fault) -> None:
    fault.pass_by("begin")
    array += other
    fault.pass_by("end")


def count(totals: dict[str, float], name: str, array: Any, fault: Fault) -> None:
    fault.pass_by("begin")
    totals[name] = totals.get(name, 0.0) + float(np.sum(array))
    fault.pass_by("end")


def save(totals: dict[str, float], path: str, fault: Fault) -> None:
    fault.pass_by("begin")
    with open(path, "w") as file:
        for name in sorted(totals):
            file.write(f"{name} {totals[name]}\n")
    fault.pass_by("end")


def append(path: str, line: str, fault: Fault) -> None:
    fault.pass_by("begin")
    with open(path, "a") as file:
        file.write(line + "\n")
    fault.pass_by("end")


def read(path: str, fault: Fault) -> str:
    fault.pass_by("begin")
    text = Path(path).read_text()
    fault.pass_by("end")
    return text


def join(parts: list[Any], fault: Fault) -> list[str]:
    fault.pass_by("begin")
    joined = [str(part) if isinstance(part, str) else str(float(np.sum(part))) for part in parts]
    fault.pass_by("end")
    return joined


SEQUENTIAL = SimpleNamespace(make=make, add=add, count=count, save=save, append=append, read=read, join=join)
# Who changes data in place asks for retries, and so works on a copy; the others are retried anyway.
TASKS = SimpleNamespace(
    make=task(make),
    add=task(array=INOUT, retries=2)(add),
    count=task(totals=INOUT)(count),
    save=task(path=FILE_OUT)(save),
    append=task(path=FILE_INOUT, retries=2)(append),
    read=task(path=FILE_IN)(read),
    join=task(join),
)
STEPS = 12


def scenario(steps: SimpleNamespace, folder: Path, fault: Fault) -> tuple[Any, ...]:
    """Twelve calls that update arrays and a dictionary, write a file, change it and read it before and after."""
    path = str(folder / "totals.txt")
    arrays = [steps.make(number, fault) for number in (1, 2, 3)]
    totals: dict[str, float] = {}
    mine = np.ones(NUMBERS)
    steps.add(mine, arrays[0], fault)
    steps.add(arrays[1], mine, fault)
    steps.count(totals, "second", arrays[1], fault)
    steps.save(totals, path, fault)
    before = steps.read(path, fault)
    steps.append(path, "appended", fault)
    after = steps.read(path, fault)
    steps.count(totals, "third", arrays[2], fault)
    joined = steps.join([before, after, mine, *arrays], fault)
    results = wait_on(totals), wait_on(before), wait_on(after), wait_on(joined), float(np.sum(wait_on(mine)))
    with penstock.open_file(path) as file:
        return (*results, file.read())
