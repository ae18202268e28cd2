"""Versions and renaming: readers keep the version of their call, and writers never wait for readers."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from tests.behaviour.modes import Gate, only_workers

from penstock import COLLECTION_INOUT, INOUT, OUT, task, wait_on

pytestmark = pytest.mark.usefixtures("runtime")


@task(obj=INOUT)
def push(obj: Any, value: Any) -> None:
    obj.append(value)


@task(obj=INOUT)
def bump(obj: Any) -> None:
    obj += 1


@task(returns=1)
def read(obj: Any) -> Any:
    return obj.copy()


@task(returns=1)
def read_slowly(obj: Any, arrived: Gate, leave: Gate) -> Any:
    before = obj.copy()
    arrived.enter()
    leave.enter()
    return before, obj.copy()


@task(obj=OUT)
def renew(obj: Any, value: Any) -> None:
    obj[:] = value


def test_each_reader_sees_the_version_of_its_call() -> None:
    bag: list[int] = []
    readers = []
    for i in range(30):
        readers.append(read(bag))
        push(bag, i)
    assert wait_on(readers) == [list(range(i)) for i in range(30)]
    assert wait_on(bag) == list(range(30))


def test_a_long_chain_of_inout() -> None:
    bag: list[int] = []
    for i in range(500):
        push(bag, i)
    assert wait_on(bag) == list(range(500))


def test_independent_chains_do_not_mix() -> None:
    bags: list[list[int]] = [[] for _ in range(5)]
    for i in range(20):
        for number, bag in enumerate(bags):
            push(bag, (number, i))
    assert wait_on(bags) == [[(number, i) for i in range(20)] for number in range(5)]


@pytest.mark.parametrize("size", [3, 300_000])
@only_workers
def test_a_writer_does_not_wait_for_a_reader_and_the_reader_keeps_its_version(
    size: int, gate: Gate, second_gate: Gate
) -> None:
    numbers = np.zeros(size)
    bump(numbers)
    slow = read_slowly(numbers, gate, second_gate)
    gate.open()  # the reader has the old version in its hands and will not end by itself
    bump(numbers)
    new = read(numbers)
    assert (new.result(60) == 2).all()
    assert not slow.done()
    second_gate.open()
    before, after = slow.result(60)
    assert (before == 1).all() and (after == 1).all()
    assert (wait_on(numbers) == 2).all()


@only_workers
def test_a_writer_does_not_wait_for_a_reader_that_has_not_started(gate: Gate) -> None:
    @task(returns=1)
    def pass_gate(gate: Gate) -> int:
        gate.enter()
        return 1

    @task(returns=1)
    def read_after(obj: Any, signal: int) -> Any:
        return list(obj)

    bag = [1]
    push(bag, 2)
    late = read_after(bag, pass_gate(gate))
    push(bag, 3)
    assert wait_on(bag) == [1, 2, 3]
    assert not late.done()
    gate.open()
    assert late.result() == [1, 2]


@only_workers
def test_out_does_not_wait_for_earlier_writers(gate: Gate) -> None:
    @task(obj=INOUT)
    def push_behind_gate(obj: list[int], gate: Gate) -> None:
        gate.enter()
        obj.append(1)

    bag = [0]
    push_behind_gate(bag, gate)
    old = read(bag)
    renew(bag, [7])
    assert read(bag).result(60) == [7]
    gate.open()
    assert old.result() == [0, 1]
    assert wait_on(bag) == [7]


@only_workers
def test_readers_of_one_version_run_at_the_same_time(gate: Gate) -> None:
    @task(returns=1)
    def meet(obj: Any, opens: bool, gate: Gate) -> int:
        if opens:
            gate.open()
        else:
            gate.enter()
        return len(obj)

    bag = [1, 2]
    push(bag, 3)
    assert wait_on(meet(bag, False, gate), meet(bag, True, gate)) == [3, 3]
    wait_on(bag)


def test_a_future_and_the_object_it_was_made_from_are_two_things() -> None:
    bag = [1]
    copy = read(bag)
    push(copy, 2)
    push(bag, 3)
    assert wait_on(bag, copy) == [[1, 3], [1, 2]]


def test_an_object_that_holds_an_updated_object_sees_the_newest_version() -> None:
    inner = [1]
    outer = {"inner": inner}
    push(inner, 2)

    @task(returns=1)
    def look(outer: Any) -> Any:
        return list(outer["inner"])

    first = look(outer)
    push(inner, 3)
    second = look(outer)
    assert wait_on(first, second) == [[1, 2], [1, 2, 3]]
    assert wait_on(inner) == [1, 2, 3] and outer == {"inner": [1, 2, 3]}


def test_short_tasks_that_depend_on_each_other_at_full_speed() -> None:
    """Waits in between catch workers with one, two or no tasks at hand."""
    for turn in range(60):
        bags: list[list[int]] = [[], [], []]
        for i in range(turn % 13):
            push(bags[i % 3], i)
            push(bags[(i + turn) % 3], read(bags[i % 2]))
        assert sum(map(len, wait_on(bags))) == 2 * (turn % 13)


@pytest.mark.parametrize("size", [0, 5, 100_000, 400_000], ids=["empty", "inline", "stored", "huge pages"])
def test_an_array_that_a_task_passes_on_can_be_updated(size: int) -> None:
    @task
    def same(array: Any) -> Any:
        return array

    @task(array=INOUT)
    def add(array: Any) -> None:
        array += 1

    given = np.zeros(size)
    passed = same(given)
    add(passed)
    again = same(passed)
    add(again)
    assert [wait_on(one).sum() for one in (passed, again)] == [size, 2 * size]
    assert given.sum() == 0


@pytest.mark.parametrize("size", [5, 100_000, 400_000], ids=["inline", "stored", "huge pages"])
def test_what_the_program_has_of_an_old_version_does_not_change(size: int) -> None:
    @task
    def make() -> Any:
        return np.zeros(size)

    state, history = make(), []
    for _ in range(3):
        history.append(wait_on(state))
        bump(state)
    history.append(wait_on(state))
    assert [array.sum() for array in history] == [0, size, 2 * size, 3 * size]


@pytest.mark.parametrize("size", [5, 100_000, 400_000], ids=["inline", "stored", "huge pages"])
def test_views_of_an_argument_in_a_result_are_data_of_their_own(size: int) -> None:
    @task
    def views(array: Any) -> Any:
        return [array, array[:-1], array[1:]]

    @task(parts=INOUT)
    def bump_first(parts: Any) -> None:
        parts[0] += 1

    parts = views(np.zeros(size))
    bump_first(parts)
    assert [part.sum() for part in wait_on(parts)] == [size, 0, 0]


@pytest.mark.parametrize("mode", ["workers", "inline"], indirect=True)
@pytest.mark.parametrize("size", [3, 100_000])
def test_threads_that_update_one_object_lose_nothing(size: int) -> None:
    array, elements = np.zeros(size), [[0], [0]]

    @task(parts=COLLECTION_INOUT)
    def count(parts: Any) -> None:
        for part in parts:
            part[0] += 1

    def update() -> None:
        for _ in range(10):
            bump(array)
            count(elements)

    threads = [threading.Thread(target=update) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wait_on(array).tolist() == [40] * size
    assert wait_on(elements) == [[40], [40]]


@task(target=OUT, returns=1, on_failure="ignore")
def write_in_vain(target: list[int]) -> None:
    target.clear()
    raise ValueError


def test_what_is_only_written_keeps_its_newest_content_if_the_failure_is_ignored() -> None:
    values: list[int] = []
    push(values, 1)
    write_in_vain(values)
    assert wait_on(values) == [1]


@task(target=INOUT, returns=1)
def append_and_look(target: list[int], value: int, other: list[int]) -> tuple[bool, int]:
    target.append(value)
    return target is other, len(other)


def test_a_future_stands_for_its_object_that_tasks_update() -> None:
    made = read([1, 2])
    values = made.result()
    assert wait_on(append_and_look(values, 3, made)) == (True, 3)
    assert wait_on(append_and_look(made, 4, values)) == (True, 4)
    assert wait_on(task(len)(made)) == 4
    assert wait_on(made) is values and values == [1, 2, 3, 4]
