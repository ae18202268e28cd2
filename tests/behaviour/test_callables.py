"""What can be made a task besides functions written in Python: built-in functions, methods of built-in types, more."""

from __future__ import annotations

import copy
import datetime
import decimal
import functools
import math
import operator
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.behaviour.decorated import counted, doubled, plain_of_wrapped

from penstock import IN, INOUT, CallError, DefinitionError, Runtime, task, wait_on


class Scale:
    """Callable, and with methods of each kind."""

    def __init__(self, factor: int = 2) -> None:
        self.factor = factor

    def __call__(self, value: int) -> int:
        return value * self.factor

    def method(self, value: int) -> int:
        return value * self.factor

    @classmethod
    def of_class(cls, value: int) -> int:
        return value

    @staticmethod
    def static(value: int) -> int:
        return value


def three(a: int, b: int = 2, *, c: int = 3) -> tuple[int, int, int]:
    return a, b, c


WORK: dict[str, tuple[Callable[..., Any], tuple[Any, ...], Any]] = {
    "built-in": (len, ([1, 2],), 2),
    "built-in of unknown signature": (max, (1, 3, 2), 3),
    "built-in with a keyword": (functools.partial(sorted, reverse=True), ([1, 2],), [2, 1]),
    "of a module written in C": (math.sqrt, (4,), 2.0),
    "print": (print, ("printed",), None),
    "method of str": (str.upper, ("a",), "A"),
    "method of str, two arguments": (str.join, (",", ["a", "b"]), "a,b"),
    "operator of int": (int.__add__, (1, 2), 3),
    "method of tuple": (tuple.count, ((1, 1), 1), 2),
    "method of float": (float.is_integer, (2.0,), True),
    "method of object": (object.__format__, (1, ""), "1"),
    "method of date": (datetime.date.isoformat, (datetime.date(2020, 1, 2),), "2020-01-02"),
    "method of decimal": (decimal.Decimal.sqrt, (decimal.Decimal(4),), decimal.Decimal(2)),
    "method of path": (Path.with_suffix, (Path("a.b"), ".c"), Path("a.c")),
    "method of a scalar of numpy": (np.generic.item, (np.float64(2),), 2.0),
    "class method of int": (int.from_bytes, (b"a", "big"), 97),
    "method of an object": (",".join, (["a", "b"],), "a,b"),
    "operator of an object": ((1).__add__, (2,), 3),
    "method of a dict": ({"a": 1}.get, ("a",), 1),
    "method of a pattern": (re.compile("a").findall, ("aba",), ["a", "a"]),
    "numpy function": (np.sum, ([1, 2],), 3),
    "ufunc": (np.add, (1, 2), 3),
    "method of a ufunc": (np.add.reduce, ([1, 2],), 3),
    "method of arrays": (np.ndarray.sum, (np.ones(2),), 2.0),
    "partial": (functools.partial(three, 1, c=5), (4,), (1, 4, 5)),
    "partial of a built-in": (functools.partial(max, 4), (1,), 4),
    "itemgetter": (operator.itemgetter(1), ([4, 5],), 5),
    "methodcaller": (operator.methodcaller("upper"), ("a",), "A"),
    "callable object": (Scale(3), (2,), 6),
    "bound method": (Scale(3).method, (2,), 6),
    "method of a class": (Scale.method, (Scale(3), 2), 6),
    "class method": (Scale.of_class, (2,), 2),
    "static method": (Scale.static, (2,), 2),
}


@pytest.mark.parametrize("name", WORK)
def test_it_works(runtime: Runtime, name: str) -> None:
    function, args, expected = WORK[name]
    assert task(function)(*args).result() == expected


def test_many_calls_of_a_method(runtime: Runtime) -> None:
    assert wait_on(list(task(str.upper).map(["a", "b"]))) == ["A", "B"]


@pytest.mark.parametrize(
    ("method", "own", "args", "expected"),
    [
        (list.append, [1], (2,), [1, 2]),
        (list.sort, [2, 1], (), [1, 2]),
        (set.add, {1}, (2,), {1, 2}),
        (dict.update, {1: 1}, ({2: 2},), {1: 1, 2: 2}),
        (bytearray.extend, bytearray(b"a"), (b"b",), bytearray(b"ab")),
    ],
)
def test_a_method_updates_its_object(runtime: Runtime, method: Any, own: Any, args: Any, expected: Any) -> None:
    own = copy.copy(own)
    task(method)(own, *args)
    assert wait_on(own) is own
    assert own == expected


def test_a_method_of_arrays_updates_its_array(runtime: Runtime) -> None:
    array = np.array([3, 1, 2])
    task(np.ndarray.sort)(array)
    assert wait_on(array).tolist() == [1, 2, 3]
    frozen = np.array([3, 1, 2])
    task(self=IN)(np.ndarray.sum)(frozen)
    task(self=INOUT)(np.ndarray.fill)(frozen, 5)
    assert wait_on(frozen).tolist() == [5, 5, 5]


@pytest.mark.parametrize(
    ("what", "says"),
    [
        (Scale, "decorate a function that calls it"),
        (int, "decorate a function that calls it"),
        (property(three), "not <property"),
        ("three", "not 'three'"),
        (functools.partialmethod(three, 1), "not functools.partialmethod"),
        (task(three), "a task already"),
    ],
)
def test_what_cannot_be_a_task_is_refused_at_once(what: Any, says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        task(what)


def test_a_parameter_that_nobody_knows_is_refused_at_once() -> None:
    with pytest.raises(DefinitionError, match="neither a parameter of max"):
        task(value=INOUT)(max)


def test_too_many_arguments_are_refused_at_the_call(runtime: Runtime) -> None:
    with pytest.raises(CallError, match="too many positional arguments"):
        task(math.sqrt)(1, 2)


def test_a_decorated_function_of_a_module_is_not_undressed(runtime: Runtime) -> None:
    assert doubled(3) == 6
    assert task(doubled)(3).result() == 6
    assert task(plain_of_wrapped)(3).result() == 3
    assert task(counted)(3).result() == 3


WRAPPED = """
import functools
import penstock
from penstock import task

@functools.lru_cache(maxsize=3, typed=True)
def helper(x):
    return x if x < 2 else helper(x - 1) + helper(x - 2)

@task
def use(x):
    return helper(x), helper.cache_parameters()

@task
@functools.cache
def itself(x):
    return helper(x)

@functools.singledispatch
def kind(x):
    return "other"

@kind.register
def _(x: int):
    return "number"

class Box:
    @functools.cached_property
    def full(self):
        return helper(5)
    @functools.lru_cache
    def method(self, x):
        return x

@task
def boxed():
    box = Box()
    return box.full, vars(box)["full"], box.method(1), kind(1), kind("a")

with penstock.Runtime({settings}):
    kind("first")
    assert use(10).result() == (55, {"maxsize": 3, "typed": True})
    assert itself(10).result() == 55
    assert boxed().result() == (5, 5, 1, "number", "other")
    assert task(kind)(1).result() == "number"
    assert task(helper)(6).result() == 8
"""


@pytest.mark.parametrize("settings", ["cpus=1", "mode='inline'", "cpus=1, strict=True"])
def test_what_functools_wraps_in_the_main_program(script: Any, settings: str) -> None:
    script(WRAPPED.replace("{settings}", settings))
