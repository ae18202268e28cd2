"""Objects whose writer failed: once the program knows, they have the value from before, in every mode."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.behaviour.modes import MODES, Gate, only_workers

import penstock
from penstock import (
    COLLECTION_INOUT,
    FILE_IN,
    FILE_INOUT,
    INOUT,
    OUT,
    DataLost,
    DependencyFailed,
    barrier,
    cancel,
    delete_object,
    task,
    wait_on,
)

if TYPE_CHECKING:
    from penstock import Runtime  # workers import this module, and need no engine


@task(xs=INOUT)
def add(xs: list[int], x: int) -> None:
    xs.append(x)


@task(xs=INOUT)
def spoil(xs: list[int]) -> int:
    xs.append(-1)
    raise ValueError("spoiled")


@task(xs=OUT)
def fill(xs: list[int], x: int, fails: bool = False) -> None:
    xs[:] = [x]
    if fails:
        raise ValueError("not filled")


@task(xs=INOUT, on_failure="ignore")
def spoil_ignored(xs: list[int]) -> None:
    xs.append(-1)
    raise ValueError("ignored")


@task(xs=INOUT, on_failure="cancel_successors")
def spoil_and_cancel(xs: list[int]) -> None:
    raise ValueError("no more")


@task
def read(xs: Any) -> Any:
    return xs


@task
def make() -> list[int]:
    return [1]


def known(future: Any) -> None:
    assert isinstance(future.exception(), ValueError)


# --- what "seen" is ---------------------------------------------------------------------------------------------------


def test_before_the_program_knows_calls_fail_and_name_the_root(runtime: Runtime) -> None:
    xs: list[int] = []
    add(xs, 1)
    failed = spoil(xs)
    add(xs, 2)
    reader = read(xs)
    with pytest.raises(DependencyFailed, match="spoil"):
        reader.result()
    known(failed)
    add(xs, 3)
    assert wait_on(xs) == [1, 3]


@pytest.mark.parametrize("how", ["result", "exception", "wait_on", "object", "barrier"])
def test_whatever_tells_the_program_of_the_failure_lets_it_go_on(runtime: Runtime, how: str) -> None:
    xs: list[int] = []
    add(xs, 1)
    future = spoil(xs)
    if how == "exception":
        known(future)
    else:
        asks = {
            "result": future.result,
            "wait_on": lambda: wait_on(future),
            "object": lambda: wait_on(xs),
            "barrier": barrier,
        }
        with pytest.raises(ValueError, match="spoiled"):
            asks[how]()
    assert read(xs).result() == [1]
    add(xs, 2)
    assert wait_on(xs) == [1, 2]


def test_an_object_that_no_task_has_changed_before_is_as_the_program_left_it(runtime: Runtime) -> None:
    xs = [7]
    known(spoil(xs))
    assert read(xs).result() == [7]
    assert wait_on(xs) is xs == [7]


def test_a_failure_that_passed_through_other_objects_is_known_for_all_of_them(runtime: Runtime) -> None:
    xs, ys = [1], [2]
    add(ys, 3)
    failed = spoil(xs)
    extend(ys, xs)
    known(failed)
    assert (wait_on(ys), wait_on(xs)) == ([2, 3], [1])


@task(ys=INOUT)
def extend(ys: list[int], xs: list[int]) -> None:
    ys.extend(xs)


def test_two_failures_are_known_one_by_one(runtime: Runtime) -> None:
    xs = [1]
    known(spoil(xs))
    second = spoil(xs)
    with pytest.raises(DependencyFailed):
        read(xs).result()
    known(second)
    assert wait_on(xs) == [1]


# --- kinds of updates -------------------------------------------------------------------------------------------------


def test_what_is_only_written_has_the_value_from_before(runtime: Runtime) -> None:
    xs = [0]
    fill(xs, 1)
    failed = fill(xs, 2, fails=True)
    assert isinstance(failed.exception(), ValueError)
    assert read(xs).result() == [1]
    fill(xs, 3)
    assert wait_on(xs) == [3]


def test_ignored_failures_between_others(runtime: Runtime) -> None:
    xs: list[int] = []
    add(xs, 1)
    spoil_ignored(xs)
    known(spoil(xs))
    spoil_ignored(xs)
    add(xs, 2)
    assert wait_on(xs) == [1, 2]


def test_cancelled_successors_leave_objects_usable(runtime: Runtime) -> None:
    xs, ys = [1], [2]
    failed = spoil_and_cancel(xs)
    extend(ys, xs)
    known(failed)
    assert (wait_on(xs), wait_on(ys)) == ([1], [2])


@only_workers
def test_a_writer_that_was_cancelled_leaves_the_value_from_before(runtime: Runtime, gate: Gate) -> None:
    xs = [1]
    add(xs, 2)
    waiting = hold(gate)
    written = add_after(xs, waiting)
    assert cancel(written)
    assert read(xs).result() == [1, 2]
    add(xs, 3)
    gate.open()
    assert wait_on(xs) == [1, 2, 3]
    waiting.result()


@only_workers
@pytest.mark.parametrize("later", [False, True], ids=["of the object", "of what it waits for"])
def test_a_writer_that_was_cancelled_while_it_ran_leaves_the_value_from_before(
    runtime: Runtime, gate: Gate, tmp_path: Path, later: bool
) -> None:
    xs, ys, path = [1], [2], tmp_path / "data.txt"
    path.write_text("old")
    add(xs, 2)
    future = make()
    running = add_at_gate(xs, future, path, gate)
    gate.open()
    if later:
        add_after(xs, running)
    assert cancel(running)
    if later:
        add_after(ys, running)
    found = read(xs)
    assert wait_on(found, read([future]), read_file(path)) == [[1, 2], [[1]], "old"]
    add(xs, 3)
    add(ys, 3)
    add(future, 3)
    assert (wait_on(xs), wait_on(ys), future.result()) == ([1, 2, 3], [2, 3], [1, 3])
    with penstock.open_file(path) as file:
        assert file.read() == "old"


@task(xs=INOUT, more=INOUT, path=FILE_INOUT)
def add_at_gate(xs: list[int], more: list[int], path: Path, gate: Gate) -> None:
    xs.append(-1)
    more.append(-1)
    path.write_text("new")
    for _ in range(2):  # the test opens it once
        gate.enter()


@task(path=FILE_IN)
def read_file(path: Path) -> str:
    return path.read_text()


@task
def hold(gate: Gate) -> None:
    gate.enter()


@task(xs=INOUT)
def add_after(xs: list[int], first: None) -> None:
    xs.append(-1)


class Counter:
    def __init__(self) -> None:
        self.count = 0

    @task
    def step(self, fails: bool = False) -> int:
        self.count += 1
        if fails:
            raise ValueError("tripped")
        return self.count


def test_the_object_of_a_method(runtime: Runtime) -> None:
    counter = Counter()
    counter.step()
    known(counter.step(fails=True))
    assert counter.step().result() == 2
    assert wait_on(counter).count == 2


@task(xs=COLLECTION_INOUT)
def step_all(xs: list[Any], fails: bool = False) -> None:
    for index, x in enumerate(xs):
        xs[index] = x + 1
    if fails:
        raise ValueError("not all")


def test_numbers_in_a_collection(runtime: Runtime) -> None:
    xs = [1, 2, 3]
    known(step_all(xs, fails=True))
    assert read(xs).result() == [1, 2, 3]
    step_all(xs)
    known(step_all(xs, fails=True))
    assert wait_on(xs) == [2, 3, 4]
    assert [type(x) for x in xs] == [int] * 3


def test_objects_in_a_collection(runtime: Runtime) -> None:
    parts = [[1], [2]]
    add(parts[0], 5)
    known(extend_all(parts, fails=True))
    extend_all(parts)
    assert wait_on(parts) == [[1, 5, 0], [2, 0]]


@task(parts=COLLECTION_INOUT)
def extend_all(parts: list[list[int]], fails: bool = False) -> None:
    for part in parts:
        part.append(0)
    if fails:
        raise ValueError("not all")


def test_a_future_that_a_task_was_to_update(runtime: Runtime) -> None:
    made = make()
    known(spoil(made))
    assert read(made).result() == [1]
    add(made, 2)
    assert made.result() == [1, 2]
    known(spoil(made))
    assert wait_on(made) == [1, 2]


def test_the_future_itself_tells_of_the_failure_first(runtime: Runtime) -> None:
    made = make()
    spoil(made)
    with pytest.raises(ValueError, match="spoiled"):
        made.result()
    assert made.exception() is None
    assert made.result() == [1]


# --- in place ---------------------------------------------------------------------------------------------------------


@task(array=INOUT)
def increase(array: Any, fails: bool = False) -> None:
    array += 1
    if fails:
        raise ValueError("half way")


@task(array=INOUT, retries=1)
def increase_on_a_copy(array: Any) -> None:
    array += 1
    raise ValueError("half way")


def test_a_large_array_that_no_task_has_changed_before(runtime: Runtime) -> None:
    array = np.zeros(200_000)
    known(increase(array, fails=True))
    increase(array)
    assert wait_on(array).tolist() == [1.0] * 200_000


def test_what_was_being_changed_in_place_is_lost_and_the_error_says_so(runtime: Runtime) -> None:
    array = np.zeros(200_000)
    increase(array)
    known(increase(array, fails=True))
    for use in (lambda: increase(array), lambda: read(array), lambda: wait_on(array)):
        with pytest.raises(DataLost, match=r"increase#\d+ was changing it in place .* retries=1"):
            use()
    delete_object(array)
    increase(array)
    assert wait_on(array).tolist() == [1.0] * 200_000


def test_a_task_with_retries_works_on_a_copy(runtime: Runtime) -> None:
    array = np.zeros(200_000)
    increase(array)
    known(increase_on_a_copy(array))
    increase(array)
    assert wait_on(array).tolist() == [2.0] * 200_000


def test_what_is_read_by_others_is_changed_in_a_copy(runtime: Runtime) -> None:
    array = np.zeros(200_000)
    increase(array)
    seen = read(array)
    failed = increase(array, fails=True)
    known(failed)
    assert seen.result()[0] == 1
    # Whether the reader was done by the time decides whether there was a copy: never is it a wrong value.
    try:
        assert wait_on(array).tolist() == [1.0] * 200_000
    except DataLost:
        delete_object(array)


# --- persistent objects -----------------------------------------------------------------------------------------------


class Stock(penstock.PersistentObject):
    items: list[int]


@task(stock=INOUT)
def store(stock: Stock, item: int, fails: bool = False) -> None:
    stock.items = [*stock.items, item]
    if fails:
        raise ValueError("no room")


@task
def items(stock: Stock) -> list[int]:
    return list(stock.items)


@pytest.mark.parametrize("looked", [False, True])
def test_a_persistent_object_has_its_last_state(mode: str, tmp_path: Path, looked: bool) -> None:
    with penstock.Runtime(store=f"local:{tmp_path}/store", **MODES[mode]):
        stock = Stock()
        stock.items = [1]
        stock.make_persistent("stock")
        store(stock, 2)
        if looked:
            wait_on(stock)
        known(store(stock, 3, fails=True))
        assert items(stock).result() == [1, 2]
        store(stock, 4)
        assert wait_on(stock).items == [1, 2, 4]


# --- threads ----------------------------------------------------------------------------------------------------------


def test_threads_that_fail_and_go_on_with_objects_of_their_own(runtime: Runtime) -> None:
    wrong: list[object] = []

    def work(number: int) -> None:
        xs: list[int] = []
        for round_ in range(10):
            add(xs, round_)
            if spoil(xs).exception() is None or read(xs).result() != list(range(round_ + 1)):
                wrong.append((number, round_))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
