"""What a task passes on, or has changed in place, is not written to the store again; and nobody can tell otherwise."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from tests.behaviour.modes import only_workers
from tests.patience import eventually

import penstock
from penstock import INOUT, ready_value, task, wait_on
from penstock.api.sync import session

pytestmark = pytest.mark.usefixtures("runtime")

NUMBERS = 100_000


@task
def make(value: float) -> Any:
    return np.full(NUMBERS, value)


@task
def same(array: Any) -> Any:
    return array


@task
def half(array: Any) -> Any:
    return array[: NUMBERS // 2]


@task
def crumb(array: Any) -> Any:
    return array[: NUMBERS // 10]


@task
def every_second(array: Any) -> Any:
    return array[::2]


@task(returns=2)
def both(one: Any, two: Any) -> Any:
    return {"pair": [one, two]}, one


@task(array=INOUT)
def add(array: Any, number: float) -> None:
    array += number


@task(array=INOUT)
def add_and_return(array: Any, number: float) -> Any:
    array += number
    return array


@task(returns=2)
def hand_over(array: Any) -> Any:
    ready_value(array, 0)
    return None, array * 2


@task(array=INOUT, returns=2)
def hand_over_then_change(array: Any) -> Any:
    ready_value(array, 0)
    array += 1
    return None, float(array[0])


@task
def total(array: Any) -> float:
    return float(array.sum())


def segments(*futures: Any) -> list[set[int]]:
    """The segments that the values of futures lie in."""
    penstock.wait(futures)
    versions = session.running().driver.engine.state.versions
    return [{piece.segment for piece in versions[future._version].outcome.pieces()} for future in futures]


@only_workers
def test_argument_passed_on_and_a_large_part_of_it_stay_where_they_are() -> None:
    made = make(3.0)
    passed, part, small, strided = same(made), half(made), crumb(made), every_second(made)
    pair, again = both(made, passed)
    origin, *others, crumbs, gathered = segments(made, passed, part, pair, again, small, strided)
    pair = others.pop(2)
    assert all(other == origin for other in others)
    assert pair > origin  # its second array is a copy: it would be updated with the first
    assert crumbs.isdisjoint(origin) and gathered.isdisjoint(origin)


def test_values_that_share_a_segment_are_independent() -> None:
    made = make(3.0)
    passed, part = same(made), half(made)
    before = total(passed)
    add(passed, 1)
    add(part, 10)
    add(made, 100)
    after = [total(passed), total(part), total(made)]
    assert wait_on(before) == 3.0 * NUMBERS
    assert wait_on(after) == [4.0 * NUMBERS, 13.0 * NUMBERS / 2, 103.0 * NUMBERS]


def test_origin_may_go_before_what_refers_to_it() -> None:
    made = make(2.0)
    passed = same(same(made))
    part = half(passed)
    penstock.wait([part, passed])
    del made, passed
    penstock.barrier()
    assert part.result().sum() == 2.0 * NUMBERS / 2
    assert wait_on(total(part)) == 2.0 * NUMBERS / 2


def test_object_changed_in_place_and_returned_is_two_values() -> None:
    array = np.zeros(NUMBERS)
    returned = add_and_return(array, 5)
    add(array, 1)
    assert wait_on(total(returned)) == 5.0 * NUMBERS
    assert wait_on(array).sum() == 6.0 * NUMBERS
    assert returned.result().sum() == 5.0 * NUMBERS


def test_what_was_handed_over_early_is_as_it_was_then() -> None:
    first, second = hand_over(make(1.0))
    assert wait_on([total(first), total(second)]) == [NUMBERS, 2.0 * NUMBERS]
    array = np.zeros(NUMBERS)
    first, number = hand_over_then_change(array)
    assert wait_on(total(first)) == 0.0 and number.result() == 1.0
    assert wait_on(array).sum() == NUMBERS


def test_results_of_a_map_may_be_parts_of_what_was_shared() -> None:
    table = penstock.share(np.arange(1.0 * NUMBERS))
    parts = [half(table), same(table)]
    assert [float(part.result()[-1]) for part in parts] == [NUMBERS / 2 - 1, NUMBERS - 1]


def test_array_passed_on_can_be_changed_by_whoever_is_given_it() -> None:
    for count in (5, NUMBERS):
        passed = same(np.zeros(count))
        add(passed, 1)
        assert passed.result().sum() == count


@only_workers
def test_nothing_is_left_in_the_store_when_all_are_gone() -> None:
    held = session.running().driver.engine.state.segments
    gc.collect()
    eventually(lambda: not held)
    made = make(1.0)
    everything = [same(made), half(made), crumb(made), *both(made, made), add_and_return(made, 1)]
    penstock.wait(everything)
    assert held
    del made, everything
    eventually(lambda: not held)
