"""A future and the object that its result() gave are one: what tasks make of the one is what the other stands for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock import INOUT, task, wait_on

pytestmark = pytest.mark.usefixtures("runtime")


class Box:
    def __init__(self, content: list[Any]) -> None:
        self.content = content


@task(returns=1)
def make(kind: str) -> Any:
    kinds = {"list": [1], "dict": {0: 1}, "nested": [[1], {"a": [1]}], "box": Box([1]), "tuple": ([1], 2)}
    return kinds[kind]


@task(target=INOUT)
def append(target: Any, number: int) -> None:
    if isinstance(target, Box):
        target.content.append(number)
    elif isinstance(target, dict):
        target[len(target)] = number
    else:
        target.append(number)


@task(returns=1)
def show(value: Any) -> str:
    return repr(value.content if isinstance(value, Box) else value)


@task(returns=1)
def show_first(values: list[Any]) -> str:
    return repr(values[0])


@task(returns=1)
def one_more(number: int) -> list[int]:
    return [number]


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize(("kind", "expected"), [("list", "[1, 2]"), ("dict", "{0: 1, 1: 2}"), ("box", "[1, 2]")])
def test_a_future_of_a_result_that_a_task_has_updated(kind: str, expected: str, waits: bool) -> None:
    future = make(kind)
    value = future.result()
    append(value, 2)
    if waits:
        wait_on(value)
    assert show(future).result() == expected
    assert show_first([future] if kind != "box" else [[1, 2]]).result() == expected
    assert future.result() is value
    assert show(value).result() == expected


@pytest.mark.parametrize("waits", [True, False])
def test_a_future_of_a_result_in_which_a_task_has_updated_something(waits: bool) -> None:
    future = make("nested")
    value = future.result()
    append(value[1]["a"], 2)
    if waits:
        wait_on(value[1]["a"])
    assert show(future).result() == "[[1], {'a': [1, 2]}]"
    box = make("box")
    append(box.result().content, 2)
    if waits:
        wait_on(box.result().content)
    assert show(box).result() == "[1, 2]"
    pair = make("tuple")
    append(pair.result()[0], 2)
    if waits:
        wait_on(pair.result()[0])
    assert show(pair).result() == "([1, 2], 2)"


@pytest.mark.parametrize("waits", [True, False])
def test_updates_of_the_future_and_of_the_result_are_updates_of_one_object(waits: bool) -> None:
    future = make("list")
    value = future.result()
    append(value, 2)
    if waits:
        wait_on(value)
    append(future, 3)
    append(value, 4)
    assert show(future).result() == "[1, 2, 3, 4]"
    assert future.result() is value
    assert value == [1, 2, 3, 4]


def test_a_result_asked_for_again_is_up_to_date() -> None:
    future = make("list")
    value = future.result()
    append(value, 2)
    assert future.result() == [1, 2]
    assert wait_on(future) is value


def test_an_element_of_a_map_whose_result_a_task_has_updated() -> None:
    mapped = one_more.map(range(3))
    value = mapped[1].result()
    append(value, 7)
    wait_on(value)
    assert show(mapped[1]).result() == "[1, 7]"
    assert show(mapped[2]).result() == "[2]"


def test_a_future_whose_result_nobody_has_updated_is_what_it_was() -> None:
    for _ in range(20):
        other = [0]
        append(other, 1)
        wait_on(other)
        del other
        future = make("list")
        value = future.result()  # perhaps where the other list was
        append(future, 3)
        assert wait_on(future) == [1, 3]
        assert value == [1], "a future that a task updates has a new value; the program keeps the old one"


@task(first=INOUT, second=INOUT, returns=1)
def append_to_both(first: Any, second: Any) -> bool:
    first.append(2)
    second.append(3)
    return first is second


@task(first=INOUT, returns=1)
def append_and_show(first: Any, holder: Any) -> str:
    first.append(2)
    return repr(holder)


@task(first=INOUT, second=INOUT)
def add_and_multiply(first: Any, second: Any) -> None:
    first += 1
    second *= 3


def test_a_future_and_its_result_in_one_call() -> None:
    for swapped in (False, True):
        future = make("list")
        pair = future, future.result()
        assert append_to_both(*(pair[::-1] if swapped else pair)).result()
        assert wait_on(pair[1]) == future.result() == [1, 2, 3]
    future = make("list")
    value = future.result()
    assert append_and_show(future, {"in": [value]}).result() == "{'in': [[1, 2]]}"
    assert append_and_show(value, (future,)).result() == "([1, 2, 2],)"
    array = task(np.zeros)(4)
    whole = array.result()
    add_and_multiply(array, whole[1:3])
    assert wait_on(array).tolist() == [1, 3, 3, 1]
    assert whole.tolist() == [1, 3, 3, 1]
