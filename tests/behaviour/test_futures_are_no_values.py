"""A future that is used as if it were its value says what to do, not a wrong answer; also inside a task."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import copy
import json
import math
import operator
import os
import pprint
from collections.abc import Callable
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest
from tests.behaviour.modes import Gate, only_workers

import penstock
from penstock import Future, NotAValue, task, wait_on

pytestmark = pytest.mark.usefixtures("runtime")


@task
def same(value: Any) -> Any:
    return value


@task
def fail() -> None:
    raise ValueError("on purpose")


COMPARISONS: dict[str, Callable[[Any], Any]] = {
    "equal": lambda f: f == 5,
    "equal, turned": lambda f: 5 == f,  # noqa: SIM300
    "not equal": lambda f: f != 5,
    "equal to None": lambda f: f == None,  # noqa: E711
    "equal to a text": lambda f: f == "a",
    "equal to a list": lambda f: f == [1],
    "equal to an object": lambda f: f == object(),
    "equal to an array": lambda f: f == np.arange(3),
    "an array equal to it": lambda f: np.arange(3) == f,
    "a number of NumPy equal to it": lambda f: np.int64(3) == f,
    "in a list": lambda f: 3 in [f],
    "it in a list": lambda f: f in [3],
    "index of": lambda f: [f].index(3),
    "count": lambda f: (f,).count(3),
    "lists": lambda f: [f] == [3],
    "dicts": lambda f: {"a": f} == {"a": 3},
    "an array less than it": lambda f: np.arange(3) < f,
    "less": lambda f: f < 3,
    "less, turned": lambda f: 3 < f,  # noqa: SIM300
    "at most": lambda f: f <= 3,
    "more": lambda f: f > 3,
    "at least": lambda f: f >= f,
    "sorted": lambda f: sorted([f, same(2)]),
    "max": lambda f: max(f, 3),
    "match": lambda f: _matched(f),
}

ARITHMETIC: dict[str, Callable[[Any], Any]] = {
    **{name: lambda f, do=do: do(f, 2) for name, do in vars(operator).items() if name in ("add", "sub", "mul", "mod")},
    **{f"r{name}": lambda f, do=do: do(2, f) for name, do in vars(operator).items() if name in ("add", "pow", "or_")},
    "iadd": lambda f: operator.iadd(f, 1),
    "matmul": lambda f: np.eye(2) @ f,
    "array plus it": lambda f: np.arange(3) + f,
    "number of NumPy times it": lambda f: np.float64(2) * f,
    "function of NumPy": np.sqrt,
    "reduction of NumPy": np.sum,
    "array plus it, in place": lambda f: operator.iadd(np.zeros(3), f),
    "divmod": lambda f: divmod(f, 3),
    "minus": lambda f: -f,
    "abs": abs,
    "round": round,
    "sum": lambda f: sum([f, same(4)]),
    "sum of NumPy": lambda f: np.sum([f, same(4)]),
    "mean of an array": lambda f: np.array([f, same(4)]).mean(),
    "text plus it": lambda f: "a" + f,
    "int": int,
    "float": float,
    "complex": complex,
    "sqrt": math.sqrt,
    "floor": math.floor,
    "range": range,
    "index": lambda f: [1, 2, 3][f],
    "times a list": lambda f: [1] * f,
    "format": lambda f: f"{f:.2f}",
    "path": os.fspath,
    "open": open,
    "bytes": bytes,
    "with": lambda f: contextlib.ExitStack().enter_context(f),
}

SEVERAL: dict[str, Callable[[Any], Any]] = {
    "len": len,
    "iteration": list,
    "loop": lambda f: [x for x in f],  # noqa: C416
    "indexed": lambda f: f[0],
    "reversed": reversed,
    "searched": lambda f: 3 in f,
    "starred": lambda f: print(*f),
}


def _matched(value: Any) -> bool:
    match value:
        case 3:
            return True
    return False


@pytest.mark.parametrize("use", (COMPARISONS | ARITHMETIC | SEVERAL).values(), ids=COMPARISONS | ARITHMETIC | SEVERAL)
def test_whoever_uses_a_future_as_its_value_is_told(use: Callable[[Any], Any]) -> None:
    future = same(3)
    for _ in range(2):
        with pytest.raises(TypeError, match=r"same#\d+.*wait_on.*result\(\)"):
            use(future)
        future.result()  # that it is done makes no difference


def test_unpacking_and_indexing_hint_at_returns() -> None:
    with pytest.raises(NotAValue, match="returns=N"):
        _a, _b = same((1, 2))  # type: ignore[misc]
    for use in SEVERAL.values():
        with pytest.raises(NotAValue, match="returns=N"):
            use(same([1]))
    with pytest.raises(NotAValue, match="changed"):
        same([1])[0] = 2  # type: ignore[index]


def test_attributes_of_the_value_are_not_the_futures() -> None:
    future: Any = same(np.zeros(3))
    with pytest.raises(AttributeError, match=r"same#\d+.*no attribute 'shape'.*result\(\)"):
        future.shape
    assert not hasattr(future, "shape")
    assert getattr(future, "append", None) is None
    assert not hasattr(future, "_repr_html_")


def test_it_has_no_text_but_its_own() -> None:
    future: Any = same(3)
    assert f"{future}" == str(future) == repr(future)
    # Refused in the words of those who ask.
    for use in (json.dumps, lambda f: ", ".join([f]), "%d".__mod__, lambda f: np.array([f, f]).astype(float)):
        with pytest.raises((TypeError, ValueError)):
            use(future)  # type: ignore[operator]
    assert "same" in pprint.pformat({future: 1, same(2): [future]})


def test_the_same_inside_a_task() -> None:
    @task
    def inside() -> list[str]:
        said = []
        for use in (lambda f: f == 5, lambda f: 5 in [f], lambda f: f + 1, len, bool, lambda f: f"{f:.1f}", sorted):
            try:
                use(same(5))
            except TypeError as error:
                said.append(str(error))
        first = same(1)
        assert first == first
        assert first != same(1)
        assert {first: 1}[first] == 1
        return said

    said = inside().result()
    assert len(said) == 7
    assert all("result()" in one for one in said)


# --- what stays ---------------------------------------------------------------------------------------------------


def test_futures_are_told_apart_and_are_keys() -> None:
    first, second = same(1), same(1)
    assert first == first
    assert first != second
    assert first in [second, first]
    assert first not in [second]
    assert [second, first].index(first) == 1
    assert {first, second, first} == {second, first}
    assert {first: "a", second: "b", 3: "c", None: "d"}[second] == "b"
    assert {first: 1} == {first: 1}
    assert (first, 1) == (first, 1)
    remaining = [first, second]
    remaining.remove(second)
    assert remaining == [first]
    assert sorted([(2, first), (1, second)], key=lambda pair: pair[0])[0][1] is second


def test_futures_of_others_are_other_futures() -> None:
    async def compare() -> None:
        mine = same(1)
        for other in (concurrent.futures.Future[int](), asyncio.get_running_loop().create_future()):
            assert mine != other
            assert other != mine
            assert mine not in [other]
            assert len({mine, other}) == 2

    asyncio.run(compare())


def test_what_is_equal_to_anything_is_equal_to_a_future() -> None:
    future = same(1)
    assert future == ANY
    assert operator.eq(ANY, future)
    assert [future] == [ANY]


def test_the_standard_library_goes_on() -> None:
    done = [same(i) for i in range(4)] + [fail()]
    assert set(concurrent.futures.as_completed(done)) == set(done)
    finished, pending = penstock.wait(done, return_when=concurrent.futures.FIRST_EXCEPTION)
    assert finished | pending == set(done)
    assert all(future.done() for future in done)
    assert copy.copy(done) == done
    done[-1].exception()

    async def together() -> list[Any]:
        return await asyncio.gather(*done[:4])

    assert asyncio.run(together()) == [0, 1, 2, 3]


def test_arrays_may_hold_futures() -> None:
    cells = np.empty((1, 2), dtype=object)
    cells[0, 0], cells[0, 1] = same(1), same(2)
    assert [future.result() for future in cells.ravel()] == [1, 2]
    assert np.array([same(3), same(4)], dtype=object).shape == (2,)


def test_a_row_of_futures_is_not_the_row_of_their_values() -> None:
    mapped = same.map([1, 2])
    with pytest.raises(NotAValue, match="wait_on"):
        mapped == [1, 2]  # noqa: B015
    with pytest.raises(NotAValue, match="wait_on"):
        1 in mapped  # noqa: B015
    assert mapped == mapped
    assert mapped != same.map([1])
    assert wait_on(mapped) == [1, 2]

    @task(returns=...)
    def several() -> Any:
        yield 1

    stream = several()
    with pytest.raises(NotAValue, match="wait_on"):
        stream == [1]  # noqa: B015
    assert stream in [stream]
    assert wait_on(stream) == [1]


# --- how they are shown -------------------------------------------------------------------------------------------


def test_a_future_names_the_function() -> None:
    future: Future[int] = same(1)
    future.result()
    assert repr(future) == f"<Future of task same#{future.task_id}: done>"


@only_workers
def test_a_future_that_is_pending_names_the_function(gate: Gate) -> None:
    @task
    def pass_gate() -> None:
        gate.enter()

    future = pass_gate()
    name = "test_a_future_that_is_pending_names_the_function.pass_gate"
    assert repr(future) == f"<Future of task {name}#{future.task_id}: pending>"
    gate.open()
    future.result()
