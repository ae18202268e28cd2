"""Collections as arguments: their elements are data of their own, down to a depth."""

from __future__ import annotations

import enum
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.behaviour.modes import Gate, only_workers

import penstock
from penstock import (
    COLLECTION_IN,
    COLLECTION_INOUT,
    COLLECTION_OUT,
    INOUT,
    CallError,
    DefinitionError,
    Depth,
    Type,
    barrier,
    task,
    wait_on,
)

pytestmark = pytest.mark.usefixtures("runtime")


def generate(i: int) -> Any:
    return np.random.RandomState(i).rand(5)


@task(returns=1)
def make_vector(i: int) -> Any:
    return generate(i)


@task(returns=1, c=COLLECTION_IN)
def select_element(c: Any, i: Any) -> Any:
    return c[i]


@task(c=COLLECTION_INOUT)
def increase_elements(c: Any) -> None:
    for i in range(len(c)):
        c[i] += 1.0


@task(element=INOUT)
def increase_element(element: Any) -> None:
    element += 1.0


@task(c=COLLECTION_INOUT)
def push_to_each(c: Any, value: Any) -> None:
    for element in c.values() if isinstance(c, dict) else c:
        element.append(value)


@task(bag=INOUT)
def push(bag: Any, value: Any) -> None:
    bag.append(value)


@task(c=COLLECTION_IN, returns=1)
def flatten(c: Any) -> Any:
    return [list(element) for element in (c.values() if isinstance(c, dict) else c)]


@task(c=COLLECTION_IN, returns=1)
def as_is(c: Any) -> Any:
    return c


# --- acceptance tests of the specification ------------------------------------------------------------------------


def test_a_vectors_made_by_a_plain_function() -> None:
    vectors = [generate(i) for i in range(10)]
    assert (wait_on(select_element(vectors, 4)) == generate(4)).all()


def test_b1_vectors_made_by_tasks_and_increased_together() -> None:
    vectors = [make_vector(i) for i in range(10)]
    increase_elements(vectors)
    assert np.allclose(wait_on(select_element(vectors, 4)), generate(4) + 1.0)


def test_b2_and_one_of_them_increased_alone() -> None:
    vectors = [make_vector(i) for i in range(10)]
    increase_elements(vectors)
    increase_element(vectors[4])
    assert np.allclose(wait_on(select_element(vectors, 4)), generate(4) + 2.0)
    assert np.allclose(wait_on(select_element(vectors, 3)), generate(3) + 1.0)


def test_b2_in_the_other_order() -> None:
    vectors = [make_vector(i) for i in range(10)]
    increase_element(vectors[4])
    increase_elements(vectors)
    assert np.allclose(wait_on(select_element(vectors, 4)), generate(4) + 2.0)


def test_b2_with_vectors_of_the_program() -> None:
    vectors = [generate(i) for i in range(10)]
    increase_elements(vectors)
    increase_element(vectors[4])
    assert np.allclose(wait_on(select_element(vectors, 4)), generate(4) + 2.0)
    wait_on(vectors)
    assert np.allclose(vectors[4], generate(4) + 2.0) and np.allclose(vectors[0], generate(0) + 1.0)


# --- kinds of collections -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [list, tuple], ids=["list", "tuple"])
def test_sequences_are_collections_and_keep_their_type(kind: Any) -> None:
    elements = kind([[0], [1]])
    push_to_each(elements, 9)
    found = wait_on(as_is(elements))
    assert type(found) is kind and found == kind([[0, 9], [1, 9]])
    assert wait_on(elements) == kind([[0, 9], [1, 9]])


def test_the_values_of_a_dict_are_elements() -> None:
    elements = {"a": [0], 7: [1]}
    push_to_each(elements, 9)
    push(elements["a"], 8)
    assert wait_on(flatten(elements)) == [[0, 9, 8], [1, 9]]
    assert wait_on(elements) == {"a": [0, 9, 8], 7: [1, 9]}


def test_an_object_array_is_a_collection() -> None:
    cells = np.empty(3, dtype=object)
    for i in range(3):
        cells[i] = [i]
    push_to_each(cells, 9)
    push(cells[1], 8)
    assert wait_on(flatten(cells)) == [[0, 9], [1, 9, 8], [2, 9]]
    assert list(wait_on(cells)) == [[0, 9], [1, 9, 8], [2, 9]]


def test_an_object_array_of_two_dimensions() -> None:
    @task(grid={Type: COLLECTION_INOUT, Depth: 2})
    def push_to_cells(grid: Any) -> None:
        for row in grid:
            for cell in row:
                cell.append("x")

    grid = np.empty((2, 2), dtype=object)
    for i, j in np.ndindex(2, 2):
        grid[i, j] = [i, j]
    push_to_cells(grid)
    push(grid[1, 0], "y")
    wait_on(grid)
    assert grid[1, 0] == [1, 0, "x", "y"] and grid[0, 1] == [0, 1, "x"]


def test_an_array_of_numbers_is_a_collection() -> None:
    @task(vectors={Type: COLLECTION_INOUT, Depth: 2})
    def number_vectors(vectors: Any) -> None:
        for number, vector in enumerate(vector for row in vectors for vector in row):
            vector += number

    @task(vectors={Type: COLLECTION_IN, Depth: 2}, returns=1)
    def sums(vectors: Any) -> list[float]:
        return [float(vector.sum()) for row in vectors for vector in row]

    cube = np.ones((2, 2, 2))
    number_vectors(cube)
    increase_element(cube)
    number_vectors(cube)
    assert wait_on(sums(cube)) == [4.0, 8.0, 12.0, 16.0]
    assert wait_on(cube)[1, 1].tolist() == [8.0, 8.0]
    increase_elements(cube)
    assert wait_on(cube)[0, 0].tolist() == [3.0, 3.0]


def test_an_array_of_numbers_that_a_task_made_is_a_collection() -> None:
    made = make_vector(3)
    assert (wait_on(as_is(wait_on(made))) == generate(3)).all()


def test_a_collection_of_numbers_that_a_task_fills() -> None:
    @task(rows=COLLECTION_OUT)
    def fill(rows: Any) -> None:
        for number, row in enumerate(rows):
            row[:] = number

    grid = np.full((3, 2), 9)
    fill(grid)
    assert wait_on(grid).tolist() == [[0, 0], [1, 1], [2, 2]]


def test_an_array_with_fewer_dimensions_than_levels_is_refused() -> None:
    @task(cells={Type: COLLECTION_INOUT, Depth: 3})
    def deep(cells: Any) -> None: ...

    with pytest.raises(CallError, match="cells.*2 dimensions"):
        deep(np.zeros((2, 2)))


def test_futures_in_a_collection_arrive_as_values() -> None:
    elements = [make_vector(0), generate(1)]
    found = wait_on(as_is(elements))
    assert (found[0] == generate(0)).all() and (found[1] == generate(1)).all()


def test_a_collection_of_thousands() -> None:
    elements = [[i] for i in range(2000)]
    push_to_each(elements, -1)
    assert wait_on(flatten(elements)) == [[i, -1] for i in range(2000)]


def test_an_empty_collection() -> None:
    empty: list[Any] = []
    push_to_each(empty, 1)
    assert wait_on(flatten(empty)) == []
    assert wait_on(empty) == []


@pytest.mark.parametrize("wrong", [5, "text", None, object()])
def test_what_is_no_collection_is_an_error_at_the_call(wrong: Any) -> None:
    with pytest.raises(CallError, match="'c'.*flatten"):
        flatten(wrong)


# --- depth --------------------------------------------------------------------------------------------------------


@task(c={Type: COLLECTION_INOUT, Depth: 2})
def push_to_leaves(c: Any, value: Any) -> None:
    for row in c:
        for leaf in row:
            leaf.append(value)


@task(c=COLLECTION_IN(depth=2), returns=1)
def leaf_at(c: Any, i: int, j: int) -> Any:
    return list(c[i][j])


def test_depth_two_makes_the_inner_elements_data() -> None:
    grid = [[[i, j] for j in range(2)] for i in range(2)]
    push_to_leaves(grid, "all")
    push(grid[1][0], "one")
    assert wait_on(leaf_at(grid, 1, 0)) == [1, 0, "all", "one"]
    assert wait_on(leaf_at(grid, 0, 1)) == [0, 1, "all"]
    push_to_leaves(grid, "again")
    assert wait_on(grid) == [
        [[i, j, "all"] + (["one"] if (i, j) == (1, 0) else []) + ["again"] for j in (0, 1)] for i in (0, 1)
    ]


def test_depth_two_of_futures() -> None:
    grid = [[make_list(i, j) for j in range(2)] for i in range(2)]
    push_to_leaves(grid, "x")
    push(grid[0][1], "y")
    assert wait_on(leaf_at(grid, 0, 1)) == [0, 1, "x", "y"]
    assert wait_on(grid) == [[[0, 0, "x"], [0, 1, "x", "y"]], [[1, 0, "x"], [1, 1, "x"]]]


@task(returns=1)
def make_list(*values: Any) -> Any:
    return list(values)


def test_leaves_above_the_depth_are_data_too() -> None:
    @task(c={Type: COLLECTION_INOUT, Depth: 3})
    def push_deep(c: Any) -> None:
        c[0].value.append(1)
        c[1][0].value.append(2)

    holders = [Box([]), [Box([])]]
    push_deep(holders)
    wait_on(holders)
    assert holders[0].value == [1] and holders[1][0].value == [2]  # type: ignore[attr-defined, index]


class Box:
    def __init__(self, value: Any) -> None:
        self.value = value


@pytest.mark.parametrize("depth", [0, -1, "deep", None])
def test_a_depth_that_makes_no_sense_is_an_error_at_the_decorator(depth: Any) -> None:
    with pytest.raises((DefinitionError, ValueError, TypeError)):

        @task(c={Type: COLLECTION_IN, Depth: depth})
        def never(c: Any) -> None: ...


def test_a_depth_on_something_else_than_a_collection_is_an_error() -> None:
    with pytest.raises((DefinitionError, ValueError, TypeError)):

        @task(c={Type: INOUT, Depth: 2})
        def never(c: Any) -> None: ...


# --- elements -----------------------------------------------------------------------------------------------------


def test_numbers_as_elements_are_replaced() -> None:
    numbers = [1.0, 2.0, 3.0]
    increase_elements(numbers)
    increase_elements(numbers)
    assert wait_on(select_element(numbers, 1)) == 4.0
    assert wait_on(numbers) == [3.0, 4.0, 5.0]


def test_numbers_as_values_of_a_dict_are_replaced() -> None:
    @task(c=COLLECTION_INOUT)
    def double(c: Any) -> None:
        for key in c:
            c[key] *= 2

    prices = {"a": 1, "b": 2}
    double(prices)
    double(prices)
    assert wait_on(prices) == {"a": 4, "b": 8}


def test_an_element_replaced_by_another_object() -> None:
    @task(c=COLLECTION_INOUT)
    def replace_first(c: Any) -> None:
        c[0] = [*c[0], "replaced"]

    elements = [[1], [2]]
    replace_first(elements)
    push_to_each(elements, "pushed")
    assert wait_on(flatten(elements)) == [[1, "replaced", "pushed"], [2, "pushed"]]
    assert wait_on(elements) == [[1, "replaced", "pushed"], [2, "pushed"]]


def test_elements_swapped_by_a_task() -> None:
    @task(c=COLLECTION_INOUT)
    def swap(c: Any) -> None:
        c[0], c[1] = c[1], c[0]

    elements = [[1], [2]]
    swap(elements)
    assert wait_on(flatten(elements)) == [[2], [1]]


def test_an_object_twice_in_a_collection_is_one_object() -> None:
    shared = [0]
    elements = [shared, [1], shared]

    @task(c=COLLECTION_INOUT, returns=1)
    def push_and_compare(c: Any) -> bool:
        c[0].append(9)
        return c[0] is c[2]

    assert push_and_compare(elements).result() is True
    assert wait_on(flatten(elements)) == [[0, 9], [1], [0, 9]]
    wait_on(elements)
    assert elements[0] is elements[2] and shared == [0, 9]


def test_an_element_shared_by_two_collections() -> None:
    shared = [0]
    left, right = [shared, [1]], [[2], shared]
    push_to_each(left, "l")
    push_to_each(right, "r")
    push(shared, "s")
    assert wait_on(flatten(left)) == [[0, "l", "r", "s"], [1, "l"]]
    assert wait_on(flatten(right)) == [[2, "r"], [0, "l", "r", "s"]]
    assert wait_on(shared) == [0, "l", "r", "s"]


def test_element_then_container_and_container_then_element() -> None:
    a, b = [0], [1]
    push(a, "element")
    push_to_each([a, b], "container")
    push(b, "element")
    assert wait_on(flatten((b, a))) == [[1, "container", "element"], [0, "element", "container"]]
    assert wait_on(a, b) == [[0, "element", "container"], [1, "container", "element"]]


def test_a_list_that_changes_between_calls_is_looked_at_anew() -> None:
    elements = [[0]]
    push_to_each(elements, "x")
    elements.append([1])
    push_to_each(elements, "y")
    elements.pop(0)
    assert wait_on(flatten(elements)) == [[1, "y"]]
    assert wait_on(elements) == [[1, "y"]]
    barrier()


def test_a_container_that_is_itself_inout_elsewhere() -> None:
    @task(bag=INOUT)
    def grow(bag: Any) -> None:
        bag.append(["new"])

    elements = [[0]]
    grow(elements)
    push_to_each(wait_on(elements), "x")
    assert wait_on(elements) == [[0, "x"], ["new", "x"]]


def test_collection_out_fills_the_elements() -> None:
    @task(c=COLLECTION_OUT)
    def fill(c: Any) -> None:
        for i, element in enumerate(c):
            element[:] = [i] * 2

    elements: list[list[int]] = [[], []]
    fill(elements)
    push(elements[1], 9)
    assert wait_on(elements) == [[0, 0], [1, 1, 9]]


def test_collection_in_sees_the_state_at_the_call() -> None:
    elements = [[0], [1]]
    before = flatten(elements)
    elements[0].append(5)
    after = flatten(elements)
    assert wait_on(before, after) == [[[0], [1]], [[0, 5], [1]]]


def test_an_element_whose_task_failed_fails_the_reader_of_the_collection() -> None:
    @task(returns=1)
    def fail() -> Any:
        raise ValueError("no element")

    failed = fail()
    with pytest.raises(penstock.DependencyFailed, match="no element"):
        flatten([[1], failed]).result()
    assert isinstance(failed.exception(), ValueError)


@only_workers
def test_elements_of_one_collection_are_updated_at_the_same_time(gate: Gate) -> None:
    @task(element=INOUT)
    def meet(element: Any, opens: bool, gate: Gate) -> None:
        if opens:
            gate.open()
        else:
            gate.enter()
        element.append("met")

    elements = [[0], [1]]
    push_to_each(elements, "x")
    meet(elements[0], False, gate)
    meet(elements[1], True, gate)
    assert wait_on(flatten(elements)) == [[0, "x", "met"], [1, "x", "met"]]


# --- cycles -------------------------------------------------------------------------------------------------------


def test_a_collection_that_contains_itself_is_an_error_at_the_call() -> None:
    loop: list[Any] = [[1]]
    loop.append(loop)
    with pytest.raises(CallError) as caught:
        flatten(loop)
    message = str(caught.value)
    assert "cycle" in message and "'c'" in message and "flatten" in message
    with pytest.raises(CallError, match="cycle"):
        push_to_each(loop, 1)


def test_a_cycle_through_a_deeper_level() -> None:
    outer: list[Any] = [[1]]
    inner: list[Any] = [outer]
    outer.append(inner)
    with pytest.raises(CallError, match="cycle"):
        push_to_leaves(outer, 1)
    with pytest.raises(CallError, match="cycle"):
        leaf_at(outer, 0, 0)


def test_a_cycle_leaves_the_objects_as_they_were() -> None:
    loop: list[Any] = [[1]]
    loop.append(loop)
    with pytest.raises(CallError):
        push_to_each(loop, 1)
    push(loop[0], 2)
    assert wait_on(loop[0]) == [1, 2]


# --- what is written, replaced and given back -----------------------------------------------------------------------


@task(c=COLLECTION_INOUT)
def put_at(c: Any, key: Any, value: Any) -> None:
    c[key] = value


def test_an_object_twice_in_a_collection_is_written_once(runtime: penstock.Runtime) -> None:
    barrier()
    versions = runtime.driver.engine.state.versions
    before = set(versions)
    shared = [0]
    push_to_each([shared, shared], 9)
    assert wait_on(shared) == [0, 9, 9]
    as_is([]).result()
    assert len(versions.keys() - before) <= 1, "of the list, which the program has, no version is left"


def test_an_object_given_alone_and_in_a_collection_is_one_object() -> None:
    @task(one=INOUT, c=COLLECTION_INOUT, returns=1)
    def push_both(one: Any, c: Any) -> bool:
        one.append("one")
        c[0].append("c")
        return one is c[0]

    shared = [0]
    assert push_both(shared, [shared, [1]]).result() is True
    assert wait_on(flatten([shared])) == [[0, "one", "c"]]
    assert wait_on(shared) == [0, "one", "c"]


@pytest.mark.parametrize("place", [0, 2])
def test_one_object_at_two_places_cannot_be_replaced_at_one(place: int) -> None:
    shared = [0]
    elements = [shared, [1], shared]
    put_at(elements, place, ["new"])
    error = as_is(elements).exception()
    assert error is not None
    for part in ("put_at", "'c'[0]", "'c'[2]", "one place only"):
        assert part in str(error)
    penstock.delete_object(*elements)


def test_one_object_at_two_places_replaced_at_both() -> None:
    @task(c=COLLECTION_INOUT)
    def replace_both(c: Any) -> None:
        c[0] = c[2] = ["new"]

    shared = [0]
    elements = [shared, [1], shared]
    replace_both(elements)
    push(elements[2], 9)
    assert wait_on(elements) == [["new", 9], [1], ["new", 9]] and elements[0] is elements[2]


@pytest.mark.parametrize("new", [{"k": 1}, 7, (1, 2), "text", None])
def test_an_element_replaced_by_something_of_another_type(new: Any) -> None:
    elements = [[0], [1]]
    put_at(elements, 0, new)
    push(elements[1], 5)
    assert wait_on(as_is(elements)) == [new, [1, 5]]
    wait_on(elements)
    assert elements == [new, [1, 5]], "the list itself is brought up to date"
    put_at(elements, 0, ["again"])
    assert wait_on(elements) == [["again"], [1, 5]]


def test_an_array_replaced_by_one_of_another_shape() -> None:
    elements = {"a": np.zeros(3), "b": np.ones(20_000)}
    put_at(elements, "b", np.full((2, 20_000), 7.0))
    increase_element(elements["a"])
    wait_on(elements)
    assert elements["b"].shape == (2, 20_000) and elements["b"][1, 5] == 7.0 and elements["a"][0] == 1.0


def test_large_arrays_swapped_and_doubled_by_tasks() -> None:
    @task(c=COLLECTION_INOUT)
    def swap(c: Any) -> None:
        c[0], c[1] = c[1], c[0]

    @task(c=COLLECTION_INOUT)
    def double(c: Any) -> None:
        c[0] = c[1]

    arrays = [np.full(20_000, float(i)) for i in range(2)]
    increase_elements(arrays)
    swap(arrays)
    increase_element(arrays[0])
    assert [float(a[9]) for a in wait_on(as_is(arrays))] == [3.0, 1.0]
    double(arrays)
    increase_element(arrays[0])  # must not reach the other one, though both have the same bytes
    assert [float(a[9]) for a in wait_on(arrays)] == [2.0, 1.0]


def test_a_dict_whose_keys_are_put_in_another_order() -> None:
    @task(c=COLLECTION_INOUT)
    def turn_around(c: Any) -> None:
        for key in list(c):
            value = c.pop(key)
            c[key] = [*value, key]
        first = next(iter(c))
        c[first] = c.pop(first)

    elements = {"a": [1], "b": [2]}
    turn_around(elements)
    assert wait_on(elements) == {"a": [1, "a"], "b": [2, "b"]}


def test_a_task_that_changes_keys_or_length_is_told() -> None:
    @task(c=COLLECTION_INOUT)
    def rename(c: Any) -> None:
        c["z"] = c.pop("a")

    @task(c=COLLECTION_INOUT(depth=2))
    def shorten(c: Any) -> None:
        c[1] = [[0]]

    elements = {"a": [1], "b": [2]}
    rename(elements)
    error = as_is(elements).exception()
    assert "rename" in str(error) and "'a'" in str(error) and "'z'" in str(error) and "keys" in str(error)
    rows = [[[1]], [[2], [3]]]
    shorten(rows)
    error = as_is(rows).exception()
    assert "length" in str(error) and "'c'[1]" in str(error) and "from 2 to 1" in str(error)
    penstock.delete_object(*elements.values(), *rows[0], *rows[1])


def test_a_container_changed_as_a_whole_and_then_through_its_elements() -> None:
    elements = [[0]]
    push(elements, ["new"])
    push_to_each(elements, "x")  # waits for the list: only then are its elements known
    push(elements[1], "y")
    assert wait_on(flatten(elements)) == [[0, "x"], ["new", "x", "y"]]
    assert wait_on(elements) == [[0, "x"], ["new", "x", "y"]]


def test_rows_changed_as_a_whole_and_then_their_cells() -> None:
    grid = [[[0]], [[1], [2]]]
    push_to_each(grid, [9])
    push_to_leaves(grid, "x")
    assert wait_on(grid) == [[[0, "x"], [9, "x"]], [[1, "x"], [2, "x"], [9, "x"]]]


@pytest.mark.parametrize("kind", ["tuple", "dict", "array", "twice"])
def test_futures_in_any_container_are_written_as_elements(kind: str) -> None:
    first, second = make_list(1), make_list(2)
    cells = np.empty(2, dtype=object)
    cells[0], cells[1] = first, second
    container: Any = {"tuple": (first, second), "dict": {"a": first, "b": second}, "array": cells}.get(kind)
    container = [first, second, first] if container is None else container
    push_to_each(container, "x")
    push(first, "y")
    expected = [[1, "x", "y"], [2, "x"]] if kind != "twice" else [[1, "x", "x", "y"], [2, "x"], [1, "x", "x", "y"]]
    assert wait_on(flatten(container)) == expected
    assert wait_on(first, second) == expected[:2]


def test_an_array_of_one_object_without_dimensions() -> None:
    @task(c=COLLECTION_INOUT)
    def push_only(c: Any) -> None:
        c[()].append(9)

    cell = np.empty((), dtype=object)
    cell[()] = [0]
    push_only(cell)
    assert wait_on(cell[()]) == [0, 9]


def test_collections_among_varargs_and_keywords() -> None:
    @task(args=COLLECTION_INOUT, named=COLLECTION_INOUT)
    def push_to_all(*args: Any, named: Any) -> None:
        for c in (*args, named):
            c[0].append(7)

    left, right, named = [[1]], [[2]], {0: [3]}
    push_to_all(left, right, left, named=named)
    assert wait_on(left, right, named) == [[[1, 7, 7]], [[2, 7]], {0: [3, 7]}]


def test_six_levels() -> None:
    @task(c=COLLECTION_INOUT(depth=6))
    def push_far_down(c: Any) -> None:
        c[0]["k"][0][0][0][0].append("far")

    element = [0]
    nested = [{"k": ([[(element,)]],)}]
    push_far_down(nested)
    push(element, "near")
    assert wait_on(nested) == [{"k": ([[([0, "far", "near"],)]],)}] and element == [0, "far", "near"]


def test_an_ignored_failure_leaves_numbers_and_lists_as_they_were() -> None:
    @task(c=COLLECTION_INOUT, on_failure="IGNORE")
    def spoil(c: Any) -> None:
        c[0].append("spoiled")
        c[1] = "spoiled"
        raise ValueError("no")

    elements = [[0], 5]
    spoil(elements)
    push(elements[0], 1)
    assert wait_on(elements) == [[0, 1], 5]


def test_subclasses_of_containers_keep_their_type() -> None:
    named = Pair([1], [2])
    push_to_each(named, 3)
    found = wait_on(as_is(named))
    assert type(found) is Pair and found == Pair([1, 3], [2, 3])
    table: Any = defaultdict(list, {"a": [1]})
    push_to_each(table, 3)
    assert type(wait_on(as_is(table))) is defaultdict and wait_on(table) == {"a": [1, 3]}


class Pair(NamedTuple):
    x: list[int]
    y: list[int]


# --- on the way -----------------------------------------------------------------------------------------------------


def test_a_collection_is_one_record_on_the_wire(runtime: penstock.Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    handle = runtime.driver.handle
    monkeypatch.setattr(
        runtime.driver, "handle", lambda event: (calls.append(getattr(event, "call", None)), handle(event))[1]
    )
    futures = [make_list(i) for i in range(20)]
    calls.clear()
    look_at = as_is([[i] for i in range(1000)])
    with_futures = as_is([*futures, *futures])
    plain, waiting = [call for call in calls if call is not None]
    assert plain.slots == () and plain.reads == (), "elements that no task makes travel inside the one value"
    assert len(waiting.reads) == len(set(waiting.reads)) == 20, "an element is registered once, wherever it stands"
    assert wait_on(look_at, with_futures) == [[[i] for i in range(1000)], [[i] for i in range(20)] * 2]


@only_workers
def test_elements_are_fetched_where_they_are_touched() -> None:
    @task(returns=1)
    def block(i: int) -> Any:
        return np.full(1_000_000, float(i))

    @task(c=COLLECTION_IN, returns=1)
    def touch(c: Any, i: int) -> tuple[float, int]:
        before = resident_shared()
        value = float(c[i][7])
        return value, resident_shared() - before

    @task(c=COLLECTION_IN, returns=1)
    def come(c: Any) -> int:
        return resident_shared()

    def resident_shared() -> int:
        status = Path("/proc/self/status").read_text()
        return int(status.split("RssShmem:")[1].split()[0]) * 1024

    blocks = [block(i) for i in range(12)]
    barrier()
    assert come(blocks).result() < 20_000_000, "96 MB are mapped, and not read, before the task touches them"
    value, grown = touch(blocks, 5).result()
    assert value == 5.0 and grown < 12_000_000


@task(bag=INOUT, c=COLLECTION_INOUT, returns=1)
def push_to_each_of(bag: Any, c: Any) -> bool:
    for element in c:
        element.append(5)
    return bag is c


def test_a_list_that_tasks_have_is_a_value_and_a_collection_in_one_call() -> None:
    rows = [[1], [2]]
    push(rows, [3])
    assert wait_on(push_to_each_of(rows, rows))
    assert wait_on(rows) == [[1, 5], [2, 5], [3, 5]]


@pytest.mark.parametrize("value", [np.float64(3), Decimal(3), (3,)], ids=["numpy", "decimal", "tuple"])
def test_values_that_stand_at_two_places_are_replaced_at_each(value: Any) -> None:
    """As numbers are: nobody can tell one 3 from another."""

    @task(values=COLLECTION_INOUT)
    def double(values: Any) -> None:
        for index, one in enumerate(values):
            values[index] = one + one

    values = [value, value]
    double(values)
    double(values)
    assert wait_on(values) == [value + value + value + value] * 2


class Level(enum.Enum):
    LOW = 1
    HIGH = 2


@task(levels=COLLECTION_INOUT)
def raise_all(levels: Any) -> None:
    for place in range(len(levels)):
        levels[place] = Level.HIGH


@task(c=COLLECTION_INOUT)
def push_to_first(c: Any) -> None:
    c[0].append(1)


def test_members_of_an_enumeration_are_replaced_as_numbers_are() -> None:
    levels = [Level.LOW, Level.LOW]
    raise_all(levels)
    assert wait_on(levels) == [Level.HIGH, Level.HIGH]
    assert (Level.LOW.name, Level.LOW.value) == ("LOW", 1)
    assert wait_on(select_element([Level.LOW], 0)) is Level.LOW
    push_to_first((fixed := [0], Level.LOW))
    assert wait_on(fixed) == [0, 1]


@task(pairs=COLLECTION_INOUT)
def replace_pair(pairs: Any) -> None:
    pairs[0] = ([5],)


def test_what_a_replaced_tuple_held_stays_what_it_was() -> None:
    held = [1]
    pairs: list[Any] = [(held,)]
    replace_pair(pairs)
    assert wait_on(pairs) == [([5],)]
    assert held == [1]
