"""Threads that call tasks on the same objects and wait for them, in any order: no update is lost, and nobody hangs."""

from __future__ import annotations

import random
import threading
from collections import Counter
from typing import Any

import numpy as np
import pytest

from penstock import INOUT, barrier, task, wait_on

pytestmark = [pytest.mark.usefixtures("runtime"), pytest.mark.timeout(120)]

THREADS, STEPS, ROWS = 4, 60, 8


@task(values=INOUT)
def push(values: list[int], value: int) -> None:
    values.append(value)


@task(part=INOUT)
def increase(part: Any) -> None:
    part += 1


@task(returns=1)
def length(values: list[int]) -> int:
    return len(values)


class Shared:
    """What the threads use, and how often each part of it was given to a task that updates it."""

    def __init__(self) -> None:
        self.values: list[int] = []
        self.table = np.zeros((ROWS, 1_000))
        self.calls: list[int | str] = []

    def step(self, chance: random.Random) -> None:
        kind, row = chance.randrange(10), chance.randrange(ROWS)
        if kind < 3:
            push(self.values, 1)
            self.calls.append("push")
        elif kind < 6:
            increase(self.table[row])
            self.calls.append(row)
        elif kind == 6:
            wait_on(self.values)
        elif kind == 7:
            wait_on(self.table if chance.random() < 0.5 else self.table[row])
        elif kind == 8:
            length(self.values).result()
        else:
            barrier()


def test_no_call_is_lost_whoever_waits_meanwhile() -> None:
    shared, over = Shared(), Counter[int]()

    def work(number: int) -> None:
        chance = random.Random(number)
        for _ in range(STEPS):
            shared.step(chance)
        over[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    calls = Counter(shared.calls)
    assert len(wait_on(shared.values)) == calls["push"]
    assert wait_on(shared.table)[:, 0].tolist() == [calls[row] for row in range(ROWS)]
    assert len(over) == THREADS
