"""Collections and their elements: random programs end as they would end if every task ran at its call.

A program has a few lists and arrays that several containers share: lists, a tuple, a dict, an array of objects, nested
ones. Steps write elements and containers through tasks, read them, put other objects into containers, and wait for some
of it. Each program runs twice, with plain functions and with tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import penstock
from penstock import COLLECTION_IN, COLLECTION_INOUT, COLLECTION_OUT, IN, INOUT, task, wait_on

#: one array rides inside messages, the other lives in shared memory
SIZES = (3, 20_000)


def parts(container: Any) -> list[Any]:
    return list(container.values()) if isinstance(container, dict) else list(container)


def shown(obj: Any) -> Any:
    """An object of a program as a value that can be compared."""
    if isinstance(obj, np.ndarray) and obj.dtype != object:
        return ["array", obj.size, float(obj[0]), float(obj.sum())]
    if isinstance(obj, dict):
        return {key: shown(part) for key, part in obj.items()}
    if isinstance(obj, list | tuple | np.ndarray):
        return [type(obj).__name__, *map(shown, obj)]
    return obj


def push_into(obj: Any, value: Any) -> None:
    """Change an object where it is."""
    if isinstance(obj, np.ndarray) and obj.dtype != object:
        obj[0] += value
    elif isinstance(obj, list):
        obj.append(value)


def push_all(container: Any, depth: int, value: int) -> None:
    for part in parts(container):
        if depth > 1 and (isinstance(part, list | tuple | dict)):
            push_all(part, depth - 1, value)
        else:
            push_into(part, value)


# --- the tasks ----------------------------------------------------------------------------------------------------


@task(element=INOUT)
def push(element: Any, value: Any) -> None:
    push_into(element, value)


@task(c=COLLECTION_INOUT)
def push_flat(c: Any, value: int) -> None:
    push_all(c, 1, value)


@task(c=COLLECTION_INOUT(depth=2))
def push_nested(c: Any, value: int) -> None:
    push_all(c, 2, value)


@task(c=COLLECTION_INOUT(depth=3))
def push_deep(c: Any, value: int) -> None:
    push_all(c, 3, value)


@task(first=INOUT, c=COLLECTION_INOUT, second=COLLECTION_INOUT)
def push_three(first: Any, c: Any, second: Any, value: int) -> None:
    push_into(first, value)
    push_all(c, 1, value + 1)
    push_all(second, 1, value + 2)


@task(c=COLLECTION_IN, returns=1)
def look(c: Any) -> Any:
    return shown(c)


@task(c=COLLECTION_IN(depth=3), returns=1)
def look_deep(c: Any) -> Any:
    return shown(c)


@task(c=IN, returns=1)
def look_plain(c: Any) -> Any:
    return shown(c)


@task(returns=1)
def same_objects(c: Any, d: Any) -> list[tuple[int, int]]:
    """Which elements are one object: aliases must be the same inside a task as outside."""
    return [(i, j) for i, a in enumerate(parts(c)) for j, b in enumerate(parts(d)) if a is b]


@task(returns=1)
def made(value: int) -> list[int]:
    return [value]


@task(c=COLLECTION_INOUT)
def replace_one(c: Any, index: int, value: int) -> None:
    c[index] = [{"was": shown(c[index])}, [shown(c[index]), value], value, (value,)][value % 4]


@task(c=COLLECTION_INOUT)
def swap(c: Any, i: int, j: int) -> None:
    c[i], c[j] = c[j], c[i]


@task(c=COLLECTION_OUT)
def fill(c: Any, value: int) -> None:
    for index in range(len(c)):
        c[index] = [index, value]


@task(c=COLLECTION_INOUT)
def count(c: Any, value: int) -> None:
    for key in c if isinstance(c, dict) else range(len(c)):
        c[key] += value


@task(c=COLLECTION_INOUT)
def grow_rows(c: Any, value: int) -> None:
    for row in c:
        row.append([value])


@task(c=INOUT)
def add_row(c: Any, value: int) -> None:
    c.append([[value]])


# --- a program ----------------------------------------------------------------------------------------------------


class Program:
    """The objects of a program. Plain, the functions themselves are called."""

    def __init__(self, *, plain: bool) -> None:
        self.plain = plain
        a, b, c, d = self.lists = [[i] for i in range(4)]
        small, large = self.arrays = [np.arange(float(size)) for size in SIZES]
        cells = np.empty((2, 2), dtype=object)
        cells[0, 0], cells[0, 1], cells[1, 0], cells[1, 1] = a, d, large, a
        #: one level each
        self.flat: list[Any] = [[a, b, small], (b, c, large), {"x": c, "y": a, "z": small}, [d, a, a]]
        self.cells = cells
        #: containers of containers, which share all of it
        self.nested: list[Any] = [[self.flat[0], self.flat[1]], {"k": self.flat[2], "l": (d, large)}]
        self.deep: list[Any] = [self.nested[0], [(a, b), self.flat[3]]]
        #: elements that only their container knows
        self.own: list[Any] = [[0], [1], [2]]
        self.rows: list[Any] = [[[0], [1]], [[2]]]
        self.numbers: Any = [1, 2]
        self.prices: dict[str, Any] = {"p": 1, "q": 2}
        self.values: list[Any] = []

    def call(self, function: Any, *args: Any) -> Any:
        return function.__wrapped__(*args) if self.plain else function(*args)

    def bring(self, obj: Any) -> Any:
        return obj if self.plain else wait_on(obj)

    def element(self, index: int) -> Any:
        everything = [*self.lists, *self.arrays]
        return everything[index % len(everything)]

    def container(self, index: int) -> Any:
        return self.flat[index % len(self.flat)]

    def any_container(self, index: int) -> Any:
        everything = [*self.flat, self.cells, *self.nested, self.deep, self.own, self.rows, self.numbers, self.prices]
        return everything[index % len(everything)]

    def put(self, index: int, place: int, obj: Any) -> None:
        """The program itself puts another object into a list or dict."""
        container = [self.flat[0], self.flat[2], self.flat[3], self.own][index % 4]
        if isinstance(container, dict):
            container["xyz"[place % 3]] = obj
        else:
            container[place % len(container)] = obj

    def change(self, index: int, value: int) -> None:
        push_into(self.bring(self.element(index)), value)

    def finish(self) -> Any:
        whole = [self.lists, self.arrays, self.flat, self.cells, self.nested, self.deep]
        whole += [self.own, self.rows, self.numbers, self.prices]
        found = [shown(self.bring(each)) for each in whole]
        aliases = [[i for i, part in enumerate(parts(c)) if part is self.lists[0]] for c in self.flat]
        if not self.plain:
            penstock.barrier()
        return found, aliases, [shown(self.bring(value)) for value in self.values]


STEPS: dict[str, Callable[[Program, int, int, int], Any]] = {
    "push": lambda p, i, j, k: p.call(push, p.element(i), k),
    "push flat": lambda p, i, j, k: p.call(push_flat, p.container(i), k),
    "push cells": lambda p, i, j, k: p.call(push_deep, [p.cells], k),
    "push nested": lambda p, i, j, k: p.call(push_nested, p.nested[i % 2], k),
    "push deep": lambda p, i, j, k: p.call(push_deep, p.deep, k),
    "push three": lambda p, i, j, k: p.call(push_three, p.element(i), p.container(i), p.container(j), k),
    "push a slice": lambda p, i, j, k: p.call(push_flat, parts(p.container(i))[:2], k),
    "look": lambda p, i, j, k: p.values.append(p.call(look, p.any_container(i))),
    "look deep": lambda p, i, j, k: p.values.append(p.call(look_deep, p.any_container(i))),
    "look plain": lambda p, i, j, k: p.values.append(
        p.call(look_plain, {"it": p.any_container(i), "el": p.element(j)})
    ),
    "same objects": lambda p, i, j, k: p.values.append(p.call(same_objects, p.container(i), p.container(j))),
    "put an element": lambda p, i, j, k: p.put(i % 3, j, p.element(k)),
    "put a new list": lambda p, i, j, k: p.put(i, j, [k]),
    "put a future": lambda p, i, j, k: p.put(i, j, p.call(made, k)),
    "replace": lambda p, i, j, k: p.call(replace_one, p.own, i % 3, k),
    "swap": lambda p, i, j, k: p.call(swap, p.own, i % 3, j % 3),
    "fill": lambda p, i, j, k: p.call(fill, p.own, k),
    "push own": lambda p, i, j, k: p.call(push_flat, p.own, k),
    "count": lambda p, i, j, k: p.call(count, p.numbers if i % 2 else p.prices, k),
    "grow rows": lambda p, i, j, k: p.call(grow_rows, p.rows, k),
    "add a row": lambda p, i, j, k: p.call(add_row, p.rows, k),
    "push rows": lambda p, i, j, k: p.call(push_nested, p.rows, k),
    "wait for a container": lambda p, i, j, k: p.bring(p.any_container(i)),
    "wait for an element and change it": lambda p, i, j, k: p.change(i, k),
    "barrier": lambda p, i, j, k: None if p.plain else penstock.barrier(),
}
Step = tuple[str, int, int, int]
SMALL = st.integers(0, 11)
PROGRAMS = st.lists(st.tuples(st.sampled_from(sorted(STEPS)), SMALL, SMALL, SMALL), min_size=1, max_size=25)


def outcome(steps: list[Step], *, plain: bool) -> Any:
    program = Program(plain=plain)
    for name, i, j, k in steps:
        STEPS[name](program, i, j, k)
    return program.finish()


@pytest.fixture(
    scope="module",
    params=[{"cpus": 2}, {"mode": "inline"}, {"mode": "inline", "strict": True}],
    ids=["workers", "inline", "strict"],
)
def runtime(request: pytest.FixtureRequest) -> Iterator[penstock.Runtime]:
    with penstock.Runtime(**request.param) as runtime:
        yield runtime


@pytest.mark.one_in(3)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=PROGRAMS)
@example(steps=[("grow rows", 0, 0, 1), ("push rows", 0, 0, 2), ("add a row", 0, 0, 3), ("push rows", 0, 0, 4)])
@example(steps=[("replace", 0, 0, 0), ("wait for a container", 8, 0, 0), ("push own", 0, 0, 5)])
def test_a_program_of_tasks_ends_as_the_plain_program(runtime: penstock.Runtime, steps: list[Step]) -> None:
    assert outcome(steps, plain=False) == outcome(steps, plain=True)


def test_every_step_is_tried() -> None:
    """Each step alone, so that a step which fails is seen under its own name."""
    with penstock.Runtime(mode="inline"):
        for name in STEPS:
            steps = [(name, 1, 2, 3), ("look deep", 7, 0, 0), (name, 0, 1, 2), (name, 3, 0, 4)]
            assert outcome(steps, plain=False) == outcome(steps, plain=True), name
