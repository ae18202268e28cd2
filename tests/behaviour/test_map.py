"""``f.map(items)``: an array of calls, with a future per element."""

from __future__ import annotations

import concurrent.futures
import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.behaviour.modes import Gate, only_workers

import penstock
from penstock import IN, INOUT, task, wait_on

pytestmark = pytest.mark.usefixtures("runtime")


@task(returns=1)
def square(x: int) -> int:
    return x * x


@task
def plain(x: Any) -> Any:
    return x


@task(returns=1)
def add(a: int, b: int) -> int:
    return a + b


@task(returns=2)
def divide(a: int, b: int) -> tuple[int, int]:
    return divmod(a, b)


@task(returns=1)
def invert(x: int) -> float:
    return 1 / x


@task(returns=1)
def total(values: Any) -> Any:
    return sum(values)


@task(bag=INOUT)
def push(bag: list[int], value: int) -> None:
    bag.append(value)


class Scale:
    def __init__(self, factor: int) -> None:
        self.factor = factor

    @task(returns=1, target_direction=IN)
    def times(self, x: int) -> int:
        return self.factor * x


@pytest.mark.parametrize("count", [0, 1, 2, 7, 5000])
def test_results_come_in_order(count: int) -> None:
    mapped = square.map(range(count))
    assert len(mapped) == count
    assert mapped.results() == [i * i for i in range(count)]
    assert wait_on(mapped) == [i * i for i in range(count)]


def test_each_element_is_a_future() -> None:
    mapped = square.map([1, 2, 3])
    assert all(isinstance(future, concurrent.futures.Future) for future in mapped)
    assert [future.result() for future in mapped] == [1, 4, 9]
    assert mapped[1].result() == 4
    assert mapped[-1].result() == 9
    assert mapped[1].exception() is None and mapped[1].done()
    with pytest.raises(IndexError):
        mapped[3]


def test_slices_are_lists_of_futures() -> None:
    mapped = square.map(range(10))
    assert wait_on(list(mapped[2:5])) == [4, 9, 16]
    assert wait_on(list(mapped[::-3])) == [81, 36, 9, 0]
    assert list(mapped[20:]) == []


def test_several_iterables_end_with_the_shortest() -> None:
    assert add.map([1, 2, 3], (10, 20)).results() == [11, 22]


def test_any_iterable_will_do() -> None:
    def numbers() -> Iterator[int]:
        yield from (1, 2, 3)

    assert square.map(numbers()).results() == [1, 4, 9]
    assert sorted(square.map({2, 3}).results()) == [4, 9]
    assert plain.map({"a": 1}).results() == ["a"]
    assert plain.map("abc").results() == ["a", "b", "c"]


def test_a_bare_task_maps() -> None:
    assert plain.map([None, 1, "x"]).results() == [None, 1, "x"]


def test_a_failure_belongs_to_its_item_alone() -> None:
    mapped = invert.map([1, 0, 4, 0])
    assert mapped[0].result() == 1.0
    assert mapped[2].result() == 0.25
    for index in (1, 3):
        with pytest.raises(ZeroDivisionError):
            mapped[index].result()
        assert isinstance(mapped[index].exception(), ZeroDivisionError)


class Ends:
    """What raises, when it is unpickled, what tells a loop that there is no more."""

    def __reduce__(self) -> tuple[Any, ...]:
        return next, (iter(()),)


@only_workers
def test_an_item_that_stops_iterations_when_it_is_unpickled_fails_alone() -> None:
    mapped = plain.map([[1], Ends(), [3]])
    with pytest.raises(RuntimeError, match="StopIteration"):
        mapped[1].result(60)
    assert [mapped[0].result(60), mapped[2].result(60)] == [[1], [3]]


def test_results_raise_the_first_failure() -> None:
    @task(returns=1)
    def fail_if_odd(x: int) -> int:
        if x % 2:
            raise ValueError(f"odd {x}")
        return x

    mapped = fail_if_odd.map(range(6))
    with pytest.raises(ValueError, match="odd 1"):
        mapped.results()
    with pytest.raises(ValueError, match="odd 1"):
        wait_on(mapped)
    assert [future.exception() is None for future in mapped] == [True, False] * 3


def test_elements_as_arguments_of_other_tasks() -> None:
    mapped = square.map(range(10))
    sums = [add(mapped[i], mapped[i + 1]) for i in range(9)]
    assert wait_on(sums) == [i * i + (i + 1) ** 2 for i in range(9)]
    assert total(mapped[2:4]).result() == 13


def test_a_whole_map_as_an_argument() -> None:
    assert total(list(square.map(range(4)))).result() == 14
    assert total(square.map(range(4))).result() == 14


def test_a_map_of_a_map() -> None:
    assert square.map(square.map([1, 2, 3])).results() == [1, 16, 81]


def test_an_element_whose_item_failed_fails_its_consumer() -> None:
    mapped = invert.map([1, 0])
    good, bad = plain(mapped[0]), plain(mapped[1])
    assert good.result() == 1.0
    with pytest.raises(penstock.DependencyFailed, match="invert"):
        bad.result()
    assert isinstance(mapped[1].exception(), ZeroDivisionError)


def test_items_may_be_futures_or_hold_them() -> None:
    assert square.map([square(2), square(3)]).results() == [16, 81]
    assert total.map([[square(1), square(2)], [square(3)]]).results() == [5, 9]
    assert add.map([square(2), 1], [10, square(3)]).results() == [14, 10]


def test_items_may_be_arrays() -> None:
    small = [np.full(10, i, dtype=np.float64) for i in range(4)]
    assert [float(x) for x in total.map(small).results()] == [0, 10, 20, 30]
    large = [np.full(200_000, i, dtype=np.float64) for i in range(4)]
    assert [float(x) for x in total.map(large).results()] == [0, 200_000, 400_000, 600_000]


def test_results_may_be_arrays() -> None:
    @task(returns=1)
    def made(value: int) -> Any:
        return np.full(200_000, value)

    for index, array in enumerate(made.map(range(3)).results()):
        assert array.shape == (200_000,) and (array == index).all()


def test_items_may_be_of_classes_local_to_the_test() -> None:
    class Local:
        def __init__(self, value: int) -> None:
            self.value = value

    mapped = plain.map([Local(1), Local(2)])
    assert [type(x) is Local and x.value for x in mapped.results()] == [1, 2]


def test_items_updated_by_tasks_arrive_updated() -> None:
    bag = [1]
    push(bag, 2)
    assert total.map([bag, bag]).results() == [3, 3]
    assert wait_on(bag) == [1, 2]


def test_what_the_program_changes_after_the_call_does_not_reach_the_map() -> None:
    items = [[1], [2]]
    mapped = total.map(items)
    items[0].append(100)
    items[1][:] = [7]
    assert mapped.results() == [1, 2]


def test_an_item_that_cannot_be_pickled_is_an_error() -> None:
    with pytest.raises(TypeError, match="plain"):
        plain.map([1, threading.Lock(), 3]).results()
    penstock.barrier()


def test_a_map_that_updates_an_object_updates_it_in_order() -> None:
    bag: list[int] = []
    push.map([bag] * 5, range(5))
    assert wait_on(bag) == [0, 1, 2, 3, 4]


def test_a_map_with_several_returns() -> None:
    mapped = divide.map([7, 9], [2, 4])
    assert wait_on([list(pair) for pair in mapped]) == [[3, 1], [2, 1]]


def test_a_map_of_a_method() -> None:
    assert Scale(3).times.map([1, 2]).results() == [3, 6]


def test_a_call_that_does_not_fit_is_an_error_at_the_call() -> None:
    with pytest.raises(TypeError, match="add"):
        add.map([1, 2])


def test_a_map_inside_a_task_runs_there() -> None:
    @task(returns=1)
    def outer(count: int) -> int:
        return sum(future.result() for future in square.map(range(count)))

    assert outer(4).result() == 14


def test_map_with_as_completed_and_wait() -> None:
    mapped = square.map(range(30))
    assert sorted(future.result() for future in penstock.as_completed(mapped)) == sorted(i * i for i in range(30))
    done, not_done = penstock.wait(square.map(range(3)))
    assert len(done) == 3 and not not_done


def test_a_map_followed_by_a_barrier() -> None:
    mapped = square.map(range(100))
    penstock.barrier()
    assert all(future.done() for future in mapped)


def test_a_barrier_raises_a_failure_of_a_map_that_nobody_looked_at() -> None:
    mapped = invert.map([1, 0])
    with pytest.raises(ZeroDivisionError):
        penstock.barrier()
    assert mapped[0].result() == 1.0


@only_workers
def test_results_time_out(gate: Gate) -> None:
    @task(returns=1)
    def pass_gate(gate: Gate) -> int:
        gate.enter()
        return 1

    mapped = pass_gate.map([gate])
    with pytest.raises(TimeoutError):
        mapped.results(timeout=0.01)
    gate.open()
    assert mapped.results() == [1]


@only_workers
def test_a_quick_element_does_not_wait_for_a_slow_one(gate: Gate) -> None:
    @task(returns=1)
    def maybe_pass(gate: Gate | None) -> int:
        if gate is not None:
            gate.enter()
        return 1

    mapped = maybe_pass.map([None, gate, None, None])
    assert [mapped[i].result(60) for i in (0, 2, 3)] == [1, 1, 1]
    assert not mapped[1].done()
    gate.open()
    assert mapped[1].result() == 1


@only_workers
def test_a_map_uses_all_workers(gate: Gate) -> None:
    """Two items that wait for each other can only end if they run at the same time."""

    @task(returns=1)
    def meet(role: str, gate: Gate) -> int:
        if role == "waits":
            gate.enter()
        else:
            gate.open()
        return os.getpid()

    pids = meet.map(["waits", "opens"], [gate, gate]).results(timeout=60)
    assert len(set(pids)) == 2


@only_workers
def test_cancel_of_a_map(gate: Gate) -> None:
    @task(returns=1)
    def pass_gate(gate: Gate) -> int:
        gate.enter()
        threading.Event().wait()
        return 1

    mapped = pass_gate.map([gate, gate, gate])
    gate.open()
    penstock.cancel(mapped)
    for future in mapped:
        with pytest.raises(penstock.TaskCancelled):
            future.result(60)
    assert square(2).result() == 4


def test_a_map_that_is_dropped_still_runs() -> None:
    bag: list[int] = []
    push.map([bag], [1])
    square.map(range(10))
    penstock.barrier()
    assert wait_on(bag) == [1]


def reused() -> Iterator[list[int]]:
    """One list, with another content each time."""
    item: list[int] = []
    for number in range(4):
        item[:] = [number] * 3
        yield item


def test_items_are_as_they_were_when_they_came() -> None:
    expected = [0, 3, 6, 9]
    assert total.map(reused()).results() == expected
    assert total.map(item for item in reused()).results() == expected
    assert total.map(map(list.copy, reused())).results() == expected

    class Items:
        def __iter__(self) -> Iterator[list[int]]:
            return reused()

    assert total.map(Items()).results() == expected


def test_items_before_one_that_needs_a_call_of_its_own_are_as_they_were() -> None:
    def items() -> Iterator[Any]:
        yield from reused()
        yield np.ones(100_000)
        yield from reused()

    assert wait_on(list(total.map(items()))) == [0, 3, 6, 9, 100_000, 0, 3, 6, 9]


def test_numbers_first_and_then_something_else() -> None:
    assert wait_on(list(plain.map(iter([1, 2.5, None, [3], 4])))) == [1, 2.5, None, [3], 4]
    assert plain.map(iter(range(5))).results() == list(range(5))
    assert plain.map(iter([])).results() == []
