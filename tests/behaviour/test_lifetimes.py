"""A version that nobody can read any more is freed at once, in the store and in the main program."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests import patience
from tests.behaviour.modes import only_workers
from tests.own_place import memory_dir
from tests.trees import everything_below

import penstock
from penstock import INOUT, delete_object, share, task, wait_on

pytestmark = pytest.mark.usefixtures("runtime")

LARGE = 200_000


class Box:
    def __init__(self, value: Any) -> None:
        self.value = value


@task(returns=1)
def make(count: int) -> Any:
    return np.ones(count)


@task(returns=1)
def total(array: Any) -> float:
    return float(array.sum())


@task(array=INOUT)
def bump(array: Any) -> None:
    array += 1


@task(box=INOUT)
def change(box: Box) -> None:
    box.value = 1


@task(returns=1)
def look(box: Any) -> Any:
    return box.value


def stored() -> int:
    """Bytes of this program's large objects in shared memory."""
    folders = memory_dir().glob("penstock-*")
    files = [file for folder in folders for file in everything_below(folder)]
    total = 0
    for file in files:
        try:
            total += file.stat().st_size if file.is_file() and file.stat().st_size > LARGE else 0
        except FileNotFoundError:
            continue
    return total


def becomes(condition: Callable[[], bool]) -> bool:
    """Whether something comes true soon: what is freed is freed by the control thread, in its own time."""

    def is_so_without_garbage() -> bool:
        gc.collect()
        return condition()

    return patience.becomes(is_so_without_garbage)


def test_an_argument_is_not_kept_after_the_call() -> None:
    box = Box(5)
    gone = weakref.ref(box)
    assert look(box).result() == 5
    del box
    assert becomes(lambda: gone() is None)


def test_an_updated_object_is_not_kept_once_the_program_has_it_back() -> None:
    box = Box(5)
    gone = weakref.ref(box)
    change(box)
    wait_on(box)
    del box
    assert becomes(lambda: gone() is None)


def test_an_updated_object_that_the_program_forgets_is_not_kept() -> None:
    box = Box(5)
    gone = weakref.ref(box)
    change(box)
    penstock.barrier()
    delete_object(box)
    del box
    assert becomes(lambda: gone() is None)


def test_an_updated_object_that_the_program_drops_is_not_kept() -> None:
    """Without a word from the program: nobody can ask for its newest version any more."""
    box = Box(5)
    gone = weakref.ref(box)
    change(box)
    penstock.barrier()
    del box
    assert becomes(lambda: gone() is None)


def test_a_result_is_not_kept_when_its_future_is_gone() -> None:
    future = task(lambda: Box(5))()
    gone = weakref.ref(future.result())
    assert gone() is not None
    del future
    assert becomes(lambda: gone() is None)


@only_workers
def test_a_large_result_is_freed_with_its_future() -> None:
    assert becomes(lambda: stored() == 0)
    future = make(LARGE)
    penstock.barrier()
    assert stored() >= 8 * LARGE
    del future
    assert becomes(lambda: stored() == 0)


@only_workers
def test_a_large_result_that_nobody_takes_is_freed() -> None:
    make(LARGE)
    penstock.barrier()
    assert becomes(lambda: stored() == 0)


@only_workers
def test_intermediate_results_of_a_chain_are_freed() -> None:
    sums = [total(make(LARGE)) for _ in range(5)]
    assert wait_on(sums) == [float(LARGE)] * 5
    assert becomes(lambda: stored() == 0)


@only_workers
def test_old_versions_of_an_updated_array_are_freed() -> None:
    array = np.zeros(LARGE)
    for _ in range(10):
        bump(array)
        total(array)
    penstock.barrier()
    assert becomes(lambda: 0 < stored() < 3 * 8 * LARGE)
    assert (wait_on(array) == 10).all()
    assert becomes(lambda: stored() == 0)


@only_workers
def test_an_input_is_freed_after_its_last_task() -> None:
    array = np.zeros(LARGE)
    assert total(array).result() == 0
    del array
    assert becomes(lambda: stored() == 0)


@only_workers
def test_a_shared_object_is_stored_once_and_freed_when_deleted() -> None:
    array = share(np.zeros(LARGE))
    assert wait_on([total(array) for _ in range(5)]) == [0.0] * 5
    assert 8 * LARGE <= stored() < 2 * 8 * LARGE
    delete_object(array)
    assert becomes(lambda: stored() == 0)


@only_workers
def test_failed_tasks_leave_nothing_in_the_store() -> None:
    @task(returns=1)
    def fail(array: Any) -> Any:
        raise ValueError("large traceback")

    future = fail(make(LARGE))
    assert isinstance(future.exception(), ValueError)
    del future
    assert becomes(lambda: stored() == 0)


@only_workers
def test_cancelled_tasks_leave_nothing_in_the_store() -> None:
    futures = [total(make(LARGE)) for _ in range(10)]
    penstock.cancel(*futures)
    penstock.wait(futures)
    del futures
    penstock.barrier()  # what they were to read is made all the same
    assert becomes(lambda: stored() == 0)
