"""Tasks of runs that are replayed. Workers import this module, so it imports little."""

from __future__ import annotations

import time
from typing import Any

from penstock import FILE_IN, FILE_OUT, io, task, wait_on


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
        parts = [sleep(0.15) for _ in range(4)]
        time.sleep(0.1)  # beside the tasks
        wait_on(parts)
        time.sleep(0.1)  # after them
