"""Strict mode finds parts of a list that tasks change by themselves after they changed the list as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import penstock
from penstock import COLLECTION_IN, COLLECTION_INOUT, INOUT, ArgumentChanged, delete_object, share, task, wait_on


@pytest.fixture(autouse=True)
def strict() -> Iterator[penstock.Runtime]:
    with penstock.Runtime(mode="inline", strict=True) as runtime:
        yield runtime


@task(c=INOUT)
def push(c: Any, value: Any) -> None:
    c.append(value)


@task(c=COLLECTION_INOUT)
def push_to_each(c: Any, value: Any) -> None:
    for element in c:
        element.append(value)


@task(c=COLLECTION_IN, returns=1)
def look(c: Any) -> Any:
    return list(c)


def test_a_part_changed_after_the_whole_is_reported_at_the_next_use() -> None:
    part = [0]
    whole = [{"k": (part,)}]
    push(whole, 1)
    push(part, 2)
    for use in (lambda: look(whole), lambda: wait_on(whole), lambda: push(whole, 3)):
        with pytest.raises(ArgumentChanged, match=r"as a whole.*\[0\]\['k'\]\[0\]"):
            use()
    delete_object(part, whole)


def test_a_part_changed_before_the_whole_is_in_order() -> None:
    part = [0]
    whole = [part]
    push(part, 1)
    push(whole, [2])
    assert wait_on(look(whole)) == [[0, 1], [2]]
    assert wait_on(whole) == [[0, 1], [2]]


def test_waiting_in_between_is_in_order() -> None:
    whole: list[Any] = [[0]]
    push(whole, [1])
    push(wait_on(whole)[0], 2)
    assert wait_on(look(whole)) == [[0, 2], [1]]


def test_elements_of_a_collection_are_in_order() -> None:
    rows = [[[0]], [[1]]]
    push_to_each(rows, [2])
    push(rows[0], [3])
    assert wait_on(look(rows)) == [[[0], [2], [3]], [[1], [2]]]
    push_to_each(rows, [4])
    push(rows[1][0], 5)  # a part of a row that tasks changed as a whole
    with pytest.raises(ArgumentChanged, match=r"as a whole.*\[0\]"):
        look(rows)
    delete_object(*rows, rows[1][0])


def test_a_shared_part_does_not_change() -> None:
    part = [0]
    whole = [part]
    push(whole, 1)
    share(part)
    assert wait_on(look(whole)) == [[0], 1]


def test_a_list_that_holds_itself() -> None:
    loop: list[Any] = [0]
    loop.append(loop)
    push(loop, 1)
    push(loop, 2)
    assert wait_on(loop)[-2:] == [1, 2]


@task(c=INOUT, d=COLLECTION_INOUT)
def push_all(c: Any, d: Any, box: Any, careless: bool) -> None:
    for one in (c, *d):
        one.append(len(box["held"]))
    if careless:
        box["held"].append(None)


@pytest.mark.parametrize("careless", [False, True])
def test_what_a_task_may_change_may_be_inside_of_what_it_only_reads(careless: bool) -> None:
    c, d = [0], [[1], [2]]
    error = push_all(c, d, {"also": (c, [d[1]]), "held": [d[0]]}, careless).exception()
    assert ("changed its argument 'box' (dict)" in str(error)) is careless
    if not careless:
        assert (wait_on(c), wait_on(d)) == ([0, 1], [[1, 1], [2, 1]])
