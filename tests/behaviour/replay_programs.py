"""Tasks of runs that are replayed. Workers import this module, so it imports little."""

from __future__ import annotations

import time
from typing import Any

from penstock import FILE_IN, FILE_OUT, io, ready_value, task, wait_on


@task(returns=1)
def sleep(seconds: float, *inputs: Any) -> float:
    time.sleep(seconds)
    return seconds


@io
@task(path=FILE_OUT)
def save(path: str, size: int) -> None:
    with open(path, "wb") as file:
        file.write(bytes(size))


@task(returns=1, path=FILE_IN)
def length(path: str) -> int:
    with open(path, "rb") as file:
        return len(file.read())


def thinking() -> None:
    """Tasks in two stages, with a program that thinks beside them and after them."""
    for _ in range(2):
        parts = [sleep(0.02) for _ in range(4)]
        time.sleep(0.02)  # beside the tasks
        wait_on(parts)
        time.sleep(0.02)  # after them


@task(returns=6)
def produce() -> None:
    for index in range(6):
        time.sleep(0.02)
        ready_value(0.02, index)


@task
def stream() -> Any:
    for _ in range(6):
        time.sleep(0.02)
        yield 0.02


def early_outputs() -> None:
    """A task whose six outputs are used while it makes the next."""
    wait_on([sleep(seconds) for seconds in produce()])


def streamed() -> None:
    """The same, with a program that goes from one output to the next."""
    wait_on([sleep(seconds) for seconds in stream()])
