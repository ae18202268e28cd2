"""Random programs whose writers fail: objects and errors are those of a model that knows what the program knows."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock import INOUT, OUT, task, wait_on

OBJECTS = 3
_objects = st.integers(0, OBJECTS - 1)
_steps = st.one_of(
    st.tuples(
        st.sampled_from(["add", "spoil", "ignore", "fill", "overfill", "read", "look", "wait"]), _objects, _objects
    ),
    st.tuples(st.just("copy"), _objects, _objects),
    st.tuples(st.just("barrier"), st.just(0), st.just(0)),
)


@task(xs=INOUT)
def add(xs: list[int], x: int) -> None:
    xs.append(x)


@task(xs=INOUT)
def spoil(xs: list[int]) -> None:
    xs.append(-1)
    raise ValueError("spoiled")


@task(xs=INOUT, on_failure="ignore")
def ignore(xs: list[int]) -> None:
    xs.append(-1)
    raise ValueError("ignored")


@task(xs=OUT)
def fill(xs: list[int], x: int, fails: bool) -> None:
    xs[:] = [x]
    if fails:
        raise ValueError("not filled")


@task(ys=INOUT)
def copy(ys: list[int], xs: list[int]) -> None:
    ys.extend(xs[-2:])


@task
def read(xs: list[int]) -> list[int]:
    return xs


class Model:
    """What the program should find: values, and the failures before each that it does not know of, newest last."""

    def __init__(self) -> None:
        self.values: list[list[int]] = [[] for _ in range(OBJECTS)]
        self.unknown: list[list[int]] = [[] for _ in range(OBJECTS)]
        self.roots = 0

    def know(self, root: int) -> None:
        for failures in self.unknown:
            failures[:] = [one for one in failures if one != root]

    def fail(self, number: int, root: int | None = None) -> int:
        if root is None:
            self.roots += 1
            root = self.roots
        self.unknown[number].append(root)
        return root


class Program:
    """The same steps in truth."""

    def __init__(self) -> None:
        self.model = Model()
        self.objects: list[Any] = [[] for _ in range(OBJECTS)]
        self.futures: list[tuple[int, Any]] = []

    def step(self, kind: str, number: int, other: int, x: int) -> None:
        getattr(self, kind)(number, other, x)

    def _update(self, number: int, future: Any, value: list[int], *, fails: bool, reads: tuple[int, ...]) -> None:
        model = self.model
        blocked = [model.unknown[one][-1] for one in reads if model.unknown[one]]
        if blocked:
            model.fail(number, blocked[0])
        elif fails:
            self.futures.append((model.fail(number), future))
        else:
            # What is only written needs nothing of what failed before.
            model.values[number] = value
            model.unknown[number] = []

    def add(self, number: int, other: int, x: int) -> None:
        future = add(self.objects[number], x)
        self._update(number, future, [*self.model.values[number], x], fails=False, reads=(number,))

    def spoil(self, number: int, other: int, x: int) -> None:
        self._update(number, spoil(self.objects[number]), [], fails=True, reads=(number,))

    def ignore(self, number: int, other: int, x: int) -> None:
        future = ignore(self.objects[number])
        self._update(number, future, self.model.values[number], fails=False, reads=(number,))

    def fill(self, number: int, other: int, x: int) -> None:
        self._update(number, fill(self.objects[number], x, False), [x], fails=False, reads=())

    def overfill(self, number: int, other: int, x: int) -> None:
        self._update(number, fill(self.objects[number], x, True), [], fails=True, reads=())

    def copy(self, number: int, other: int, x: int) -> None:
        unknown = self.model.unknown
        both = bool(unknown[number] and unknown[other])
        if number == other or (both and unknown[number][-1] != unknown[other][-1]):
            return  # which of two failures is met first depends on time
        future = copy(self.objects[number], self.objects[other])
        value = [*self.model.values[number], *self.model.values[other][-2:]]
        self._update(number, future, value, fails=False, reads=(number, other))

    def read(self, number: int, other: int, x: int) -> None:
        future = read(self.objects[number])
        if self.model.unknown[number]:
            assert isinstance(future.exception(), penstock.DependencyFailed)
            self.model.know(self.model.unknown[number][-1])
        else:
            assert future.result() == self.model.values[number]

    def look(self, number: int, other: int, x: int) -> None:
        if self.futures:
            root, future = self.futures.pop()
            assert isinstance(future.exception(), ValueError)
            self.model.know(root)

    def wait(self, number: int, other: int, x: int) -> None:
        if self.model.unknown[number]:
            with pytest.raises((ValueError, penstock.DependencyFailed)):
                wait_on(self.objects[number])
            self.model.know(self.model.unknown[number][-1])
        else:
            assert wait_on(self.objects[number]) == self.model.values[number]

    def barrier(self, number: int, other: int, x: int) -> None:
        with contextlib.suppress(ValueError):
            penstock.barrier()
        for failures in self.model.unknown:
            failures.clear()
        self.futures.clear()

    def end(self) -> None:
        self.barrier(0, 0, 0)
        assert [wait_on(obj) for obj in self.objects] == self.model.values


@pytest.fixture(scope="module", params=["workers", "inline"])
def runtime(request: pytest.FixtureRequest) -> Any:
    settings_ = {"cpus": 2} if request.param == "workers" else {"mode": "inline"}
    with penstock.Runtime(**settings_) as started:
        yield started


@pytest.mark.one_in(2)
@settings(max_examples=40, deadline=None)
@given(steps=st.lists(_steps, max_size=25))
def test_objects_are_what_the_program_may_expect(runtime: Any, steps: list[tuple[str, int, int]]) -> None:
    program = Program()
    try:
        for x, (kind, number, other) in enumerate(steps):
            program.step(kind, number, other, x)
        program.end()
    finally:
        with contextlib.suppress(ValueError):
            penstock.barrier()  # what an example that failed has left is not the next one's
