"""Regions of memory against NumPy: which bytes a view has, whether two share one, and what waits for what."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.graph.regions import Accesses, Owned, Region, covers, overlap, region, runs

SHAPE = (6, 4, 3)


@st.composite
def views(draw: st.DrawFn) -> Any:
    """A view of an array whose elements say where they are."""
    memory = np.arange(np.prod(SHAPE) * 2, dtype=np.uint8)
    view: Any = memory.reshape(*SHAPE, 2)
    if draw(st.booleans()):
        view = view.reshape(SHAPE[0], -1)
    for _ in range(draw(st.integers(0, 3))):
        if not view.ndim:
            break
        axis = draw(st.integers(0, view.ndim - 1))
        length = view.shape[axis]
        kind = draw(st.sampled_from(["slice", "pick", "transpose", "window"]))
        if kind == "slice":
            step = draw(st.sampled_from([1, 1, 2, 3, -1, -2]))
            bounds = sorted((draw(st.integers(0, length)), draw(st.integers(0, length))))
            view = view.swapaxes(0, axis)[slice(*bounds)][::step].swapaxes(0, axis)
        elif kind == "pick" and length and view.ndim > 1:
            view = view.swapaxes(0, axis)[draw(st.integers(0, length - 1))]
        elif kind == "transpose":
            view = view.T
        elif kind == "window" and length >= 2:
            view = np.lib.stride_tricks.sliding_window_view(view, 2, axis=axis)
    return memory, view


def bytes_of(view: Any) -> set[int]:
    return set(view.ravel().tolist())


def region_of(memory: Any, view: Any) -> Region:
    offset = view.__array_interface__["data"][0] - memory.__array_interface__["data"][0]
    return region(offset if view.size else 0, view.shape, view.strides, view.itemsize)


@given(views())
def test_a_region_has_the_bytes_of_its_view(made: Any) -> None:
    found = [byte for begin, end in runs(region_of(*made)) for byte in range(begin, end)]
    assert set(found) == bytes_of(made[1])


@settings(max_examples=500)
@given(views(), views())
def test_no_shared_byte_is_missed(one: Any, other: Any) -> None:
    first, second = region_of(*one), region_of(*other)
    shared = bytes_of(one[1]) & bytes_of(other[1])
    if shared:
        assert overlap(first, second) and overlap(second, first)
    if covers(first, second):
        assert bytes_of(one[1]) >= bytes_of(other[1])


def blocks() -> Any:
    """Blocks, rows, columns and every other row or column of a table: what programs are made of."""
    return st.tuples(*[st.tuples(st.integers(0, 5), st.integers(1, 3), st.sampled_from([1, 2]))] * 2)


@given(blocks(), blocks())
def test_blocks_of_a_table_are_told_apart_exactly(one: Any, other: Any) -> None:
    table = np.arange(64, dtype=np.uint8).reshape(8, 8)

    def cut(block: Any) -> Any:
        (row, rows, by), (column, columns, every) = block
        return table[row : row + rows * by : by, column : column + columns * every : every]

    # Equal steps: how slices of different steps mesh is not looked into.
    a, b = cut(one), cut(((*other[0][:2], one[0][2]), (*other[1][:2], one[1][2])))
    wraps = any(view.shape[0] == 1 or view.shape[1] == 1 for view in (a, b))
    if not wraps or one[0][2] == one[1][2] == 1:
        shared = bool(bytes_of(a) & bytes_of(b))
        assert overlap(region_of(table, a), region_of(table, b)) == shared


def test_fields_and_columns_are_apart() -> None:
    records = np.zeros(10, dtype=[("x", "f8"), ("n", "i4"), ("y", "f8")])
    x, n = region(0, (10,), (20,), 8), region(8, (10,), (20,), 4)
    assert records.itemsize == 20 and not overlap(x, n) and overlap(x, region(0, (200,), (1,), 1))


@given(st.lists(st.tuples(st.booleans(), views()), max_size=12))
def test_what_tasks_own_is_known(steps: list[tuple[bool, Any]]) -> None:
    owned, truth = Owned(), set[int]()
    for adds, made in steps:
        one, its = region_of(*made), bytes_of(made[1])
        left = [byte for each in owned.lacking(one) for begin, end in runs(each) for byte in range(begin, end)]
        assert set(left) == its - truth or (owned.has(one) and its <= truth)
        if adds:
            owned.add(one)
            truth |= its
        else:
            met = owned.meeting(one)
            found = {byte for each in met for begin, end in runs(each) for byte in range(begin, end)}
            assert its & truth <= found <= truth
            owned.remove(met)
            truth = {byte for each in owned.all() for begin, end in runs(each) for byte in range(begin, end)}
            assert not its & truth
        if owned.has(one):
            assert its <= truth
        assert {byte for each in owned.all() for begin, end in runs(each) for byte in range(begin, end)} == truth


@given(st.lists(st.tuples(st.booleans(), views(), st.booleans()), max_size=15))
def test_tasks_that_share_bytes_are_in_order(steps: list[tuple[bool, Any, bool]]) -> None:
    """Whoever shares a byte with an earlier task, and one of them writes, comes after it, through others or not."""
    accesses, over = Accesses(), set[int]()
    after: dict[int, set[int]] = {}
    past: list[tuple[set[int], bool]] = []
    for token, (writes, made, ends) in enumerate(steps):
        one, its = region_of(*made), bytes_of(made[1])
        direct = set(accesses.before(one, writes=writes))
        accesses.add(one, token, writes=writes)
        after[token] = direct.union(*(after[earlier] for earlier in direct))
        for earlier, (bytes_before, wrote) in enumerate(past):
            if bytes_before & its and (writes or wrote) and earlier not in over:
                assert earlier in after[token]
        past.append((its, writes))
        if ends and after[token] <= over:
            over.add(token)
            accesses.forget(over.__contains__)
