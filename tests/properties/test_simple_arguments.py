"""The short way for simple arguments gives what the long way gives, byte for byte, or leaves it to that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import INOUT, Runtime, task
from penstock.runtime.arguments import Arguments
from penstock.runtime.simple_arguments import packed_simply


@task
def same(x: Any) -> Any:
    return x


@task(x=INOUT)
def keep(x: Any) -> None: ...


SCALARS = st.one_of(st.integers(), st.floats(), st.text(max_size=5), st.binary(max_size=5), st.none())
TREES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.lists(inner, max_size=3).map(tuple), st.dictionaries(SCALARS, inner, max_size=3)
    ),
    max_leaves=10,
)


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with Runtime(mode="inline") as runtime:
        yield runtime


@given(st.data())
def test_both_ways_come_to_the_same(runtime: Runtime, data: st.DataObject) -> None:
    results = [same(data.draw(TREES)) for _ in range(data.draw(st.integers(0, 3)))]
    tracked: Any = [1, 2]
    if data.draw(st.booleans()):
        keep(tracked)
    values: list[Any] = [*data.draw(st.lists(TREES, max_size=3)), *results, tracked, [tracked]]
    pick = st.sampled_from(values)
    args = tuple(data.draw(st.lists(pick, max_size=4)))
    kwargs = data.draw(st.dictionaries(st.sampled_from("abc"), pick, max_size=3))
    simple = packed_simply(runtime, args, kwargs)
    arguments = Arguments(runtime, same.declaration, 1)
    packed = arguments.pack(args, kwargs)
    if simple is None:
        is_tracked = any(one is tracked or one == [tracked] for one in (*args, *kwargs.values()) if type(one) is list)
        assert is_tracked, f"{args} {kwargs} could have gone the short way"
        return
    assert simple[0] == packed
    assert list(simple[1]) == arguments.wiring.slots == arguments.wiring.reads


def test_what_is_large_goes_the_long_way(runtime: Runtime) -> None:
    for large in (bytes(100_000), list(range(5000)), [[0] * 500 for _ in range(3)]):
        assert packed_simply(runtime, (large,), {}) is None


def test_what_the_program_has_of_a_future_goes_the_long_way(runtime: Runtime) -> None:
    future = same([1])
    assert packed_simply(runtime, (future,), {}) is not None
    future.result()
    assert packed_simply(runtime, (future,), {}) is None


def test_futures_of_others_and_failed_ones_go_the_long_way(runtime: Runtime) -> None:
    failed = task(lambda: 1 / 0)()
    assert isinstance(failed.exception(), ZeroDivisionError)
    with Runtime(mode="inline"):
        other = same(1)
    for future in (failed, other):
        assert packed_simply(runtime, (future,), {}) is None
