"""Arrays that tasks build in the store: returned, they are not copied; and in nothing else do they differ."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.behaviour.modes import Gate, only_workers
from tests.patience import eventually
from tests.unit.test_huge_pages import needs_huge_pages

import penstock
from penstock import COLLECTION_INOUT, INOUT, OUT, ready_value, task, wait_on
from penstock.api.sync import session

pytestmark = pytest.mark.usefixtures("runtime")

#: of floats: more than 2 MiB, and no whole number of large pages
NUMBERS = 600_000

kept: list[Any] = []


def filled(value: float, count: int = NUMBERS) -> Any:
    array = penstock.empty(count)
    array[:] = value
    return array


@task
def make(value: float) -> Any:
    return filled(value)


@task
def total(array: Any) -> float:
    return float(array.sum())


@task(array=INOUT)
def add(array: Any, number: float) -> None:
    array += number


@task
def make_and_keep(count: int) -> Any:
    kept.append(filled(1.0))
    return kept[-1][:count]


@task
def change_what_was_kept() -> float:
    kept[-1] += 1
    return float(kept[-1].sum())


@task
def look_at_what_was_kept() -> float:
    return float(kept[-1].sum())


@task
def return_what_was_kept() -> Any:
    kept[-1][0] += 1
    return kept[-1]


def in_memory(folder: str) -> set[str]:
    return {name for name in os.listdir(folder) if name[0] == "s"}


def store() -> str:
    return session.running().segments.memory_dir


def segments(future: Any) -> set[str]:
    """The files that the value of a future lies in."""
    penstock.wait([future])
    versions = session.running().driver.engine.state.versions
    return {f"s{piece.segment}" for piece in versions[future._version].outcome.pieces()}


@pytest.fixture
def empty_store() -> Iterator[str]:
    """The folder of a store in which nothing is, and nothing is left."""
    gc.collect()
    eventually(lambda: not in_memory(store()))
    yield store()
    gc.collect()
    eventually(lambda: not in_memory(store()))


@pytest.fixture
def one_worker() -> Iterator[penstock.Runtime]:
    """A runtime in which each task finds what the one before it has kept."""
    with penstock.Runtime(cpus=1) as runtime:
        yield runtime


# --- what it is -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f8", "i2", "?", "M8[s]", "c16", "S5", [("a", "i4"), ("b", "f8", 3)], "3f4"])
def test_shape_and_type_are_those_of_numpy(dtype: Any) -> None:
    @task
    def make() -> Any:
        array = penstock.empty((3, 700_001), dtype)
        array.view(np.uint8)[:] = 7
        return array, array.flags.writeable, array.flags.c_contiguous

    array, *flags = make().result()
    like = np.empty((3, 700_001), dtype)
    assert (array.shape, array.dtype, flags) == (like.shape, like.dtype, [True, True])
    assert (array.view(np.uint8) == 7).all()


@pytest.mark.parametrize("shape", [0, 5, (), (0, 4), (3, 2)])
def test_small_arrays(shape: Any) -> None:
    @task
    def make() -> Any:
        array = penstock.empty(shape)
        array[...] = 2
        return array

    assert np.array_equal(make().result(), np.full(shape, 2.0))


def test_arrays_of_objects() -> None:
    @task
    def make() -> Any:
        array = penstock.empty(300_000, object)
        array[:] = "text"
        return array[-1]

    assert make().result() == "text"


@pytest.mark.parametrize("wrong", [(-1,), ("many",), (3, "no type")])
def test_bad_arguments_are_errors_of_numpy(wrong: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        penstock.empty(*wrong)


def test_outside_of_tasks_it_is_an_ordinary_array() -> None:
    array = filled(1.0)
    assert array.base is None
    assert total(array).result() == NUMBERS


def test_in_a_thread_of_the_body_it_is_an_ordinary_array() -> None:
    @task
    def make() -> Any:
        made: list[Any] = []
        thread = threading.Thread(target=lambda: made.append(filled(3.0)))
        thread.start()
        thread.join()
        return made[0]

    assert total(make()).result() == 3.0 * NUMBERS


def test_without_numpy_it_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(penstock.PenstockError, match="needs NumPy"):
        penstock.empty(3)


# --- nothing is copied ----------------------------------------------------------------------------------------------


@needs_huge_pages
@only_workers
def test_what_is_returned_is_where_it_was_built(empty_store: str) -> None:
    @task(returns=4)
    def make() -> Any:
        one, two = filled(1.0), penstock.empty((1000, 700))
        two[:] = 2.0
        return one, {"pair": [one, two.T]}, two[:500], in_memory(empty_store)

    one, pair, part, names = make()
    assert names.result() == segments(pair) and len(names.result()) == 2
    assert segments(one) | segments(part) == segments(pair)
    assert wait_on([total(one), total(part)]) == [NUMBERS, 2.0 * 350_000]
    first, second = pair.result()["pair"]
    assert first.sum() == NUMBERS and second.shape == (700, 1000) and (second == 2).all()
    first += 1  # the program's own
    assert total(one).result() == NUMBERS


@needs_huge_pages
@only_workers
def test_updated_objects_are_where_they_were_built(empty_store: str) -> None:
    @task(box=OUT, items=COLLECTION_INOUT, returns=1)
    def replace(box: dict[str, Any], items: list[Any]) -> Any:
        box["array"] = filled(4.0)
        items[1] = filled(5.0)
        return in_memory(empty_store)

    box: dict[str, Any] = {}
    items = [np.zeros(3), np.zeros(3)]
    names = replace(box, items)
    assert len(names.result()) == 2
    assert total(items[1]).result() == 5.0 * NUMBERS
    assert in_memory(empty_store) == names.result()
    assert wait_on(box)["array"].sum() == 4.0 * NUMBERS
    del box, items


@needs_huge_pages
@only_workers
def test_results_of_a_map_are_where_they_were_built(empty_store: str) -> None:
    @task
    def make(value: float) -> Any:
        return filled(value), in_memory(empty_store)

    elements = make.map([1.0, 2.0, 3.0])
    results = [element.result() for element in elements]
    assert [float(array[-1]) for array, _ in results] == [1.0, 2.0, 3.0]
    assert in_memory(empty_store) and in_memory(empty_store) <= set().union(*(names for _, names in results))
    del elements, results


@needs_huge_pages
@only_workers
def test_of_a_part_only_what_is_needed_is_kept(empty_store: str) -> None:
    @task(returns=3)
    def make() -> Any:
        one, two = filled(1.0), filled(2.0)
        return one[: NUMBERS // 2], two[: NUMBERS // 20], in_memory(empty_store)

    half, crumb, names = make()
    (first,), (second,) = segments(half), segments(crumb)
    assert first in names.result() and second not in names.result()
    assert in_memory(empty_store) == {first, second}
    assert os.path.getsize(f"{empty_store}/{first}") == NUMBERS // 2 * 8
    assert wait_on([total(half), total(crumb)]) == [NUMBERS // 2, 2.0 * (NUMBERS // 20)]


# --- nobody can change it -------------------------------------------------------------------------------------------


@only_workers
def test_who_keeps_an_array_has_a_copy(one_worker: penstock.Runtime) -> None:
    made = make_and_keep(NUMBERS)
    assert change_what_was_kept().result() == 2.0 * NUMBERS
    assert total(made).result() == NUMBERS
    again = make_and_keep(NUMBERS)
    add(again, 10)  # in place, where it was built
    assert total(again).result() == 11.0 * NUMBERS
    assert look_at_what_was_kept().result() == NUMBERS


@needs_huge_pages
@only_workers
def test_who_keeps_nothing_costs_no_copy(one_worker: penstock.Runtime) -> None:
    @task(box=INOUT)
    def make(box: list[Any]) -> Any:
        from penstock.data import built

        built.own = None  # type: ignore[assignment]  # to call it is an error
        array = penstock.empty((1000, 600))
        part, view = array[1:, 1:], memoryview(array)
        part[:] = len(view)
        box.append({"inside": [array]})
        return array

    box: list[Any] = []
    assert make(box).result()[1, 1] == 1000
    assert make_and_keep(NUMBERS).exception() is not None


@only_workers
def test_array_kept_and_returned_by_a_later_task(one_worker: penstock.Runtime) -> None:
    first = make_and_keep(NUMBERS // 2)
    second, third = return_what_was_kept(), return_what_was_kept()
    assert wait_on([total(first), total(second), total(third)]) == [NUMBERS // 2, NUMBERS + 1, NUMBERS + 2]


def test_what_is_handed_over_early_is_as_it_was_then() -> None:
    @task(returns=3)
    def make() -> Any:
        array = filled(1.0)
        ready_value(array, 0)
        array += 1
        ready_value(array, 1)
        array += 1
        return None, None, array

    assert wait_on([total(one) for one in make()]) == [1.0 * NUMBERS, 2.0 * NUMBERS, 3.0 * NUMBERS]


def test_outputs_of_a_stream_are_as_they_were_yielded() -> None:
    @task(returns=...)
    def make() -> Any:
        array = filled(0.0)
        for _ in range(3):
            array += 1
            yield array

    assert [total(one).result() for one in make()] == [1.0 * NUMBERS, 2.0 * NUMBERS, 3.0 * NUMBERS]


@only_workers
def test_a_process_of_the_body_has_a_copy(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")

    @task
    def make() -> Any:
        array = filled(1.0)
        child = os.fork()
        if not child:
            array[0] = 50.0
            os._exit(int(array[:2].sum()))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 51
        return array

    @task
    def leave_a_process(value: float) -> Any:
        array = filled(value)
        if not os.fork():
            gate.enter()
            array[:] = 50.0
            os._exit(0)
        return array

    assert total(make()).result() == NUMBERS
    left = leave_a_process(2.0)
    penstock.wait([left])
    gate.open()
    assert total(left).result() == 2.0 * NUMBERS


# --- nothing is left ------------------------------------------------------------------------------------------------


@only_workers
@pytest.mark.parametrize("end", ["returns nothing", "raises", "cannot be pickled", "dies"])
def test_what_is_not_returned_is_removed(empty_store: str, end: str) -> None:
    @task(retries=0)
    def make() -> Any:
        array = filled(1.0)
        if end == "raises":
            raise ValueError
        if end == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        return [array, threading.Lock()] if end == "cannot be pickled" else float(array[0])

    future = make()
    assert (future.exception() is None) == (end == "returns nothing")


@only_workers
def test_arrays_that_the_body_drops_do_not_pile_up(empty_store: str) -> None:
    @task
    def make() -> Any:
        most = 0
        for number in range(20):
            array = filled(number)
            most = max(most, len(in_memory(empty_store)))
        return array, most

    array, most = make().result()
    assert array[0] == 19.0 and most <= 2
    del array


@only_workers
def test_all_is_gone_with_the_last_reader(empty_store: str) -> None:
    made = [make(float(number)) for number in range(3)]
    add(made[0], 1)
    assert wait_on([total(one) for one in made]) == [1.0 * NUMBERS, 1.0 * NUMBERS, 2.0 * NUMBERS]
    del made


# --- a full store ---------------------------------------------------------------------------------------------------


@only_workers
def test_in_a_full_store_it_is_an_ordinary_array() -> None:
    @task
    def make(folder: str) -> Any:
        array = filled(3.0)
        return array, array.base is None, in_memory(folder)

    with penstock.Runtime(cpus=1) as runtime:
        runtime.segments.diversion.set(True)
        array, is_ordinary, names = make(runtime.segments.memory_dir).result()
        runtime.segments.diversion.set(False)
        assert is_ordinary and not names and array.sum() == 3.0 * NUMBERS


@only_workers
def test_more_than_the_store_holds_is_spilled() -> None:
    with penstock.Runtime(cpus=1, store_capacity="10MB"):
        made = [make(float(number)) for number in range(6)]
        assert wait_on([total(one) for one in made]) == [float(number) * NUMBERS for number in range(6)]
