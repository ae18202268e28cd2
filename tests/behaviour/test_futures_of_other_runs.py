"""Futures that a task cannot take as they are: of another run, or elements of a map given to be changed."""

from __future__ import annotations

import pytest

import penstock
from penstock import INOUT, CallError, task


@task
def add(x: int, y: int) -> int:
    return x + y


@task(bag=INOUT)
def push(bag: list[int], x: int) -> None:
    bag.append(x)


@task
def bag_of(x: int) -> list[int]:
    return [x]


def test_a_future_of_a_run_that_is_over_arrives_as_its_value() -> None:
    with penstock.Runtime(cpus=1):
        old = add(1, 2)
    with penstock.Runtime(cpus=1):
        [add(i, i) for i in range(5)]
        assert add(old, 10).result() == 13  # type: ignore[arg-type]
        assert add(0, old).result() == 3  # type: ignore[arg-type]


def test_a_future_of_another_run_cannot_be_updated() -> None:
    with penstock.Runtime(cpus=1):
        old = bag_of(1)
    with penstock.Runtime(cpus=1), pytest.raises(CallError, match="'bag' of task push"):
        push(old, 2)  # type: ignore[arg-type]


def test_an_element_of_a_map_cannot_be_updated() -> None:
    with penstock.Runtime(cpus=1):
        bags = bag_of.map(range(3))
        with pytest.raises(CallError, match="'bag' of task push"):
            push(bags[1], 2)
        assert bags.results() == [[0], [1], [2]]
