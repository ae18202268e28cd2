"""A copy of what holds a future holds the same future."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from penstock import COLLECTION_INOUT, INOUT, CallError, Future, task, wait_on

pytestmark = pytest.mark.usefixtures("runtime")


@task
def make(value: Any) -> Any:
    return [value]


@task(items=INOUT)
def push(items: list[Any]) -> None:
    items.append("pushed")


@task(numbers=COLLECTION_INOUT)
def raise_all(numbers: list[int]) -> None:
    for index in range(len(numbers)):
        numbers[index] += 1


class Holder:
    def __init__(self, future: Any) -> None:
        self.future = future


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
def test_a_copy_holds_the_same_future(duplicate: Any) -> None:
    future = make(1)
    for holder in ([future], {"a": future}, (future, [future])):
        copied = duplicate(holder)
        assert wait_on(copied) == wait_on(holder)
    assert duplicate(Holder(future)).future is future
    assert duplicate(future) is future


def test_a_deep_copy_of_what_holds_a_future_that_is_not_done() -> None:
    first = make(make(2))
    plan = {"steps": [first, first]}
    copied = copy.deepcopy(plan)
    assert copied is not plan
    assert copied["steps"] is not plan["steps"]
    assert copied["steps"][0] is copied["steps"][1] is first
    assert wait_on(copied) == {"steps": [[[2]], [[2]]]}


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
def test_no_task_updates_a_future_that_a_copy_holds_too(duplicate: Any) -> None:
    future = make(3)
    kept = duplicate([future]) if duplicate is copy.deepcopy else [duplicate(future)]
    with pytest.raises(CallError, match="items.*copy of what held it.*result"):
        push(future)
    assert wait_on(kept) == [[3]]


def test_a_list_copied_by_its_own_method_is_no_copy_of_its_futures() -> None:
    future = make(3)
    also = [future].copy()
    push(future)
    assert wait_on(also) == [[3, "pushed"]]  # as it would be without tasks: the element is one object


def test_a_map_and_its_futures_are_copied_likewise() -> None:
    mapped = make.map(range(3))
    assert [future.result() for future in copy.deepcopy(mapped)] == [[0], [1], [2]]
    assert [one.result() for one in copy.deepcopy(list(mapped))] == [[0], [1], [2]]


def test_numbers_that_a_task_replaces_are_copied_with_their_collection() -> None:
    numbers = [1, 2]
    raise_all(numbers)
    copied = copy.deepcopy(numbers)
    assert wait_on(copied) == [2, 3]
    assert wait_on(numbers) == [2, 3]


def test_a_stream_is_not_copied() -> None:
    @task(returns=...)
    def several() -> Any:
        yield 1

    stream = several()
    for duplicate in (copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match=r"gone through once.*list\(stream\)"):
            duplicate([stream] if duplicate is copy.deepcopy else stream)
    assert [future.result() for future in stream] == [1]


def test_copies_inside_a_task() -> None:
    @task
    def outer() -> Any:
        future = make(4)
        copied = copy.deepcopy({"a": [future]})
        assert copied["a"][0] is future
        return wait_on(copied)

    assert outer().result() == {"a": [[4]]}


def test_a_future_is_not_pickled() -> None:
    future: Future[Any] = make(1)
    with pytest.raises(TypeError, match=r"cannot be pickled.*result\(\)"):
        pickle.dumps({"a": future})
