"""Tasks called inside tasks run there, at once, and behave as they would in the main program."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from penstock import COLLECTION_INOUT, FILE_OUT, INOUT, ReturnsMismatch, as_completed, barrier, task, wait, wait_on

pytestmark = pytest.mark.usefixtures("runtime")


@task(returns=1)
def add(a: int, b: int = 1) -> int:
    return a + b


@task(returns=2)
def split(a: int) -> tuple[int, int]:
    return a, -a


@task(bag=INOUT)
def push(bag: list[int], value: int) -> None:
    bag.append(value)


@task(returns=1)
def process() -> int:
    return os.getpid()


@task(returns=1)
def fail() -> Any:
    raise ValueError("inside")


@task(path=FILE_OUT)
def write(path: str, text: str) -> None:
    Path(path).write_text(text)


def in_task(function: Any, *args: Any) -> Any:
    """What a function gives when it is called inside a task."""
    return task(returns=1)(function)(*args).result()


def test_it_runs_in_the_process_of_the_outer_task() -> None:
    assert in_task(lambda: process().result() == os.getpid()) is True


def test_futures_inside() -> None:
    def outer() -> Any:
        future = add(1)
        values = [future.result(), future.done(), future.cancelled(), future.exception()]
        return [*values, wait_on(future), wait_on([future, add(5)])]

    assert in_task(outer) == [2, True, False, None, 2, [2, 6]]


def test_futures_as_arguments_inside() -> None:
    def outer() -> Any:
        first, second = split(5)
        return add(add(first), second).result()

    assert in_task(outer) == 1


def test_futures_anywhere_in_arguments_inside() -> None:
    @task(returns=1)
    def total(data: Any) -> int:
        return int(sum(data["numbers"]) + data["one"][0])

    def outer() -> Any:
        return total({"numbers": [add(1), add(2)], "one": (add(3),)}).result()

    assert in_task(outer) == 9


def test_inout_inside() -> None:
    def outer() -> Any:
        bag: list[int] = []
        push(bag, 1)
        push(bag, 2)
        return wait_on(bag)

    assert in_task(outer) == [1, 2]


def test_inout_of_a_future_inside() -> None:
    @task(returns=1)
    def make() -> list[int]:
        return [0]

    def outer() -> Any:
        future = make()
        push(future, 1)  # type: ignore[arg-type]
        return wait_on(future)

    assert in_task(outer) == [0, 1]


def test_collections_inside() -> None:
    @task(c=COLLECTION_INOUT)
    def bump(c: Any) -> None:
        for i in range(len(c)):
            c[i] += 1

    def outer() -> Any:
        numbers = [add(0), 5]
        bump(numbers)
        return wait_on(numbers)

    assert in_task(outer) == [2, 6]


def test_files_inside(tmp_path: Path) -> None:
    def outer(path: str) -> str:
        write(path, "text")
        return Path(path).read_text()

    assert in_task(outer, str(tmp_path / "a")) == "text"


def test_maps_barriers_and_waits_inside() -> None:
    def outer() -> Any:
        mapped = add.map(range(3))
        barrier()
        futures = [add(i) for i in range(3)]
        done, not_done = wait(futures)
        return list(mapped.results()), sorted(f.result() for f in as_completed(futures)), len(done), len(not_done)

    assert in_task(outer) == ([1, 2, 3], [1, 2, 3], 3, 0)


def test_an_exception_inside_is_the_same_as_outside() -> None:
    def caught() -> str:
        future = fail()
        try:
            future.result()
        except ValueError as error:
            return f"caught {error}"
        return "nothing"

    assert in_task(caught) == "caught inside"

    def uncaught() -> Any:
        return fail().result()

    with pytest.raises(ValueError, match="inside"):
        in_task(uncaught)


def test_a_returns_mismatch_inside() -> None:
    @task(returns=2)
    def wrong() -> tuple[int, int, int]:
        return 1, 2, 3

    with pytest.raises(ReturnsMismatch, match="wrong"):
        in_task(lambda: [future.result() for future in wrong()])


def test_methods_inside() -> None:
    class Counter:
        def __init__(self) -> None:
            self.count = 0

        @task
        def up(self) -> None:
            self.count += 1

        @task(returns=1)
        def twice(self) -> int:
            self.up()
            self.up()
            wait_on(self)
            return self.count

    counter = Counter()
    assert counter.twice().result() == 2
    assert wait_on(counter).count == 2


def test_recursion() -> None:
    assert factorial(10).result() == 3628800


@task(returns=1)
def factorial(n: int) -> int:
    return 1 if n < 2 else n * factorial(n - 1).result()


def test_a_future_made_inside_can_be_returned() -> None:
    assert in_task(lambda: wait_on(add(1))) == 2
    assert in_task(lambda: [add(1), {"k": add(2)}]) == [2, {"k": 3}]
    assert in_task(lambda: add(1)) == 2
