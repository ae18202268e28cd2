"""Arrays that are more than their memory, masked ones and those of the program's classes, updated as a whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import penstock
from penstock import INOUT, OUT, CallError, barrier, task, wait_on

pytestmark = pytest.mark.usefixtures("runtime")


class Named(np.ndarray):
    """An array with an attribute, which NumPy does not pickle."""

    name = "none"


class Tagged(np.ndarray):
    """An array that sees to it that its attribute is pickled."""

    tag: str = ""

    def __reduce__(self) -> Any:
        function, arguments, state = super().__reduce__()  # type: ignore[misc]
        return function, arguments, (state, self.tag)

    def __setstate__(self, state: Any) -> None:
        super().__setstate__(state[0])
        self.tag = state[1]


@task(array=INOUT)
def add(array: Any, value: float = 1) -> None:
    array += value


@task(array=INOUT)
def mask_first(array: Any) -> None:
    array[0] = np.ma.masked
    array[-1] = 7


@task(array=OUT)
def fill(array: Any, value: float) -> None:
    array[...] = value


@task(array=INOUT)
def retag(array: Any) -> None:
    array.tag += "!"


@task(returns=1)
def listed(array: Any) -> list[Any]:
    return array.tolist()  # type: ignore[no-any-return]


SIZES = pytest.mark.parametrize("size", [4, 40_000])


@SIZES
def test_a_masked_array_is_brought_up_to_date(size: int) -> None:
    array = np.ma.array(np.arange(float(size)), mask=np.arange(size) == 1)
    mask = array.mask
    mask_first(array)
    add(array)
    assert listed(array).result()[:4] == [None, None, 3.0, 4.0 if size > 4 else 8.0]
    assert wait_on(array) is array
    assert array.mask[:3].tolist() == [True, True, False]
    assert array[2] == 3
    assert array[-1] == 8
    assert mask[0]  # as running sequentially would have it: the mask was changed where it is


def test_a_masked_array_without_a_mask_gets_none_for_nothing() -> None:
    array = np.ma.zeros(3)
    add(array)
    barrier()
    assert wait_on(array).tolist() == [1, 1, 1]
    assert array.mask is np.ma.nomask
    mask_first(array)
    wait_on(array)
    assert array.tolist() == [None, 1, 7]


def test_values_below_a_mask_and_the_fill_value_come_back_too() -> None:
    array = np.ma.array([1, 2, 3], mask=[1, 0, 0], fill_value=9)

    @task(array=INOUT)
    def change(array: Any) -> None:
        array.data[0] = 5
        array.fill_value = 11

    change(array)
    wait_on(array)
    assert array.data.tolist() == [5, 2, 3]
    assert array.filled().tolist() == [11, 2, 3]


def test_a_masked_array_that_is_only_written() -> None:
    array = np.ma.array([1, 2, 3], mask=[1, 0, 0])
    fill(array, 4)
    wait_on(array)
    assert array.tolist() == [4, 4, 4]


def test_views_taken_while_tasks_have_the_array_wait_for_them() -> None:
    array = np.ma.array([1.0, 2.0, 3.0], mask=[0, 1, 0])
    add(array)
    data = array.data
    assert listed(data).result()[0] == 2
    add(array)
    assert wait_on(data)[0] == 3
    add(array)
    assert listed(array[:2]).result() == [4, None]
    add(array)
    add(data)  # from now on tasks have the memory itself
    assert listed(array).result() == [6, None, 8]
    barrier()
    assert array.tolist() == [6, None, 8]


def test_a_masked_array_on_somebody_elses_array_is_a_view_of_that() -> None:
    data = np.arange(3.0)
    array = np.ma.array(data, mask=[0, 1, 0], copy=False)
    with pytest.raises(CallError, match="more than its memory.*Pass a copy"):
        add(array)
    copy = array.copy()  # as the message says
    add(copy)
    assert wait_on(copy).tolist() == [1, None, 3]


def test_a_masked_array_keeps_its_mask_where_tasks_have_its_memory() -> None:
    data = np.arange(3.0)
    array = np.ma.array(data, mask=[0, 1, 0], copy=False)
    add(data[:1], 5)
    assert listed(array).result() == [5, None, 2]
    add(data, 5)
    assert listed(array).result() == [10, None, 7]
    barrier()
    whole = np.arange(3.0)
    array = np.ma.array(whole, mask=[0, 1, 0], copy=False)
    add(whole, 5)
    assert listed(array).result() == [5, None, 7]


def test_a_hard_mask_is_refused() -> None:
    array = np.ma.array([1, 2, 3], mask=[1, 0, 0], hard_mask=True)
    with pytest.raises(CallError, match="hard mask"):
        add(array)


@SIZES
def test_an_array_of_the_programs_class(size: int) -> None:
    array = np.zeros(size).view(Named)
    array.name = "mine"
    add(array)
    assert wait_on(array) is array
    assert type(array) is Named
    assert array.name == "mine"
    assert (array == 1).all()


def test_attributes_that_a_class_pickles_come_back() -> None:
    array = np.zeros(2).view(Tagged)
    array.tag = "a"
    retag(array)
    add(array)
    assert wait_on(array).tag == "a!"
    assert array.tolist() == [1, 1]


@pytest.mark.parametrize(
    "make", [lambda: np.array([[1, 2]]).view(np.matrix), lambda: np.rec.array([(1,), (2,)], dtype=[("a", int)])]
)
def test_matrices_and_records(make: Any) -> None:
    @task(array=INOUT)
    def change(array: Any) -> None:
        array.view(np.ndarray).view(int)[...] += 1

    array = make()
    change(array)
    assert wait_on(array) is array
    assert array.view(np.ndarray).view(int).ravel().tolist() == [2, 3]


def test_a_class_that_owns_its_memory_and_its_parts() -> None:
    array = np.zeros(3).view(Named).copy()
    assert array.base is None
    add(array.view(np.ndarray)[:1])
    add(array)
    assert wait_on(array).tolist() == [2, 1, 1]
    assert penstock.wait_on(listed(array)) == [2, 1, 1]
