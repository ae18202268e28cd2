"""What a function that travels by value takes along is as of each call, wherever the function holds it.

Each program is run as it is and with plain functions in the place of tasks: both print the same.
"""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from penstock import INOUT, Runtime, task, wait_on

pytestmark = pytest.mark.usefixtures("runtime")


class Settings:
    def __init__(self) -> None:
        self.level = 1
        self.steps = [1]


def in_a_closure(settings: Settings) -> Callable[[], Any]:
    return lambda: (settings.level, settings.steps[-1])


def in_a_function_in_a_closure(settings: Settings) -> Callable[[], Any]:
    def inner() -> int:
        return settings.level

    def middle() -> int:
        return inner()

    return lambda: middle()


def in_a_default(settings: Settings) -> Callable[[], Any]:
    def default(here: Settings = settings, *, there: list[int] = settings.steps) -> Any:
        return here.level, there[-1]

    return default


def in_a_partial(settings: Settings) -> Callable[[], Any]:
    return functools.partial(lambda here, there: (here.level, there[-1]), settings, there=settings.steps)


def in_a_bound_method(settings: Settings) -> Callable[[], Any]:
    class Reader:
        def __init__(self) -> None:
            self.settings = settings

        def read(self) -> int:
            return self.settings.level

    return Reader().read


def in_a_callable_object(settings: Settings) -> Callable[[], Any]:
    class Reader:
        kept = settings

        def __call__(self) -> int:
            return self.kept.level

    return Reader()


def in_a_method_of_a_class(settings: Settings) -> Callable[[], Any]:
    class Reader:
        @property
        def level(self) -> int:
            return settings.level

    return lambda: Reader().level


def in_a_table_of_functions(settings: Settings) -> Callable[[], Any]:
    table = {"level": [lambda: settings.level]}
    return lambda: table["level"][0]()


def in_a_decorator(settings: Settings) -> Callable[[], Any]:
    def with_level(function: Callable[[], int]) -> Callable[[], Any]:
        @functools.wraps(function)
        def both() -> Any:
            return function(), settings.level

        return both

    return with_level(lambda: 3)


def in_an_instance_of_a_local_class(settings: Settings) -> Callable[[], Any]:
    class Holder:
        pass

    holder: Any = Holder()
    holder.settings, holder.act = settings, lambda: settings.level
    return lambda: (holder.settings.level, holder.act())


def in_an_attribute_of_a_function(settings: Settings) -> Callable[[], Any]:
    def inner() -> int:
        return 0

    vars(inner)["settings"] = settings
    return lambda: vars(inner)["settings"].level


def beside_what_only_cloudpickle_sends(settings: Settings) -> Callable[[], Any]:
    table: dict[str, Any] = {"a module": math, "a view": memoryview(b"abc"), "keys": {1: 2}.keys(), "it": settings}
    return lambda: (table["it"].level, table["it"].steps[-1])


def in_an_abstract_class(settings: Settings) -> Callable[[], Any]:
    class Reader(abc.ABC):
        kept = settings

        @abc.abstractmethod
        def read(self) -> int: ...

    return lambda: Reader.kept.level


def in_a_class_inside_a_class(settings: Settings) -> Callable[[], Any]:
    class Outer:
        class Inner:
            kept = settings

    return lambda: Outer.Inner.kept.level


def in_an_attribute_that_is_called(settings: Settings) -> Callable[[], Any]:
    class Reader:
        def __init__(self) -> None:
            self.kept = settings

        def __call__(self) -> int:
            return self.kept.level

    class Model:
        read = Reader()

    return lambda: Model.read()


def in_an_attribute_that_is_asked(settings: Settings) -> Callable[[], Any]:
    class Field:
        def __init__(self) -> None:
            self.kept = settings

        def __get__(self, instance: Any, owner: Any) -> int:
            return self.kept.level

    class Model:
        level = Field()

    return lambda: Model.level


PLACES = [
    in_a_closure,
    in_a_function_in_a_closure,
    in_a_default,
    in_a_partial,
    in_a_bound_method,
    in_a_callable_object,
    in_a_method_of_a_class,
    in_a_table_of_functions,
    in_a_decorator,
    in_an_instance_of_a_local_class,
    in_an_attribute_of_a_function,
    beside_what_only_cloudpickle_sends,
    in_an_abstract_class,
    in_a_class_inside_a_class,
    in_an_attribute_that_is_called,
    in_an_attribute_that_is_asked,
]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_what_the_program_changes_is_seen_by_the_next_call(place: Callable[[Settings], Any]) -> None:
    settings = Settings()
    plain = place(settings)
    called, seen, good = task(plain), [], []
    for level in (1, 2, 3):
        settings.level = level
        settings.steps.append(level)
        good.append(plain())
        seen.append(called())
    assert wait_on(seen) == good


def test_methods_that_the_program_replaces_are_seen_by_the_next_call() -> None:
    class Gate:
        def opens(self) -> int:
            return 1

    def look() -> Any:
        return Gate().opens(), hasattr(Gate, "closes")

    def opens_later(self: Gate) -> int:
        return 2

    called, seen, good = task(look), [], []
    for change in ({}, {"opens": opens_later}, {"opens": lambda self: 3}, {"closes": property(Gate.opens)}):
        for name, method in change.items():
            setattr(Gate, name, method)
        good.append(look())
        seen.append(called())
    assert wait_on(seen) == good
    assert good == [(1, False), (2, False), (3, False), (3, True)]


def test_attributes_that_the_program_gives_a_function_are_seen_by_the_next_call() -> None:
    def inner() -> int:
        return 0

    def look() -> Any:
        return dict(vars(inner))

    called, seen, good = task(look), [], []
    for change in ({}, {"level": 1}, {"level": 2}, {"level": [3]}, {"other": 4}):
        vars(inner).update(change)
        good.append(look())
        seen.append(called())
    vars(inner).clear()
    assert wait_on([*seen, called()]) == [*good, {}]


def test_functions_that_the_program_makes_over_are_seen_by_the_next_call() -> None:
    def inner(step: int = 1, *, wide: int = 1) -> Any:
        return "old", step, wide

    def look() -> Any:
        return inner()

    called, seen, good = task(look), [], []
    other = (lambda step, *, wide: ("new", step, wide)).__code__
    for name, part in {"": None, "__defaults__": (2,), "__kwdefaults__": {"wide": 2}, "__code__": other}.items():
        if name:
            setattr(inner, name, part)
        good.append(look())
        seen.append(called())
    assert wait_on(seen) == good
    assert good[-1] == ("new", 2, 2)


@task(steps=INOUT)
def extend(steps: list[int], step: int) -> None:
    steps.append(step)


@pytest.mark.parametrize(
    "place",
    [in_a_closure, in_a_default, in_a_partial, in_a_callable_object, beside_what_only_cloudpickle_sends],
    ids=lambda place: place.__name__,
)
def test_what_tasks_change_is_seen_by_the_next_call(place: Callable[[Settings], Any]) -> None:
    settings = Settings()
    plain = place(settings)
    called, seen, good = task(plain), [], []
    for step in (7, 8, 9):
        extend(settings.steps, step)
        seen.append(called())
        good.append(plain())  # which the call has brought up to date
    assert settings.steps == [1, 7, 8, 9]
    assert wait_on(seen) == good


def test_parts_of_an_array_that_tasks_change_are_seen_by_the_next_call() -> None:
    array = np.zeros(4)
    middle = array[1:3]

    @task(part=INOUT)
    def increase(part: Any) -> None:
        part += 1

    @task
    def total() -> tuple[float, float]:
        return float(array.sum()), float(middle.sum())

    seen = []
    for part in (array, array[:2], middle):
        increase(part)
        seen.append(total())
    assert wait_on(seen) == [(4.0, 2.0), (6.0, 3.0), (8.0, 5.0)]


def test_items_of_a_map_see_what_tasks_change() -> None:
    steps = [1]
    extend(steps, 2)
    assert list(task(lambda item: item + len(steps)).map(range(3)).results()) == [2, 3, 4]


def test_a_failure_of_the_task_that_was_to_change_it_is_raised_at_the_call() -> None:
    steps: list[int] = []

    @task(steps=INOUT)
    def fail(steps: list[int]) -> None:
        raise ValueError("not now")

    fail(steps)
    count = task(lambda: len(steps))
    with pytest.raises(ValueError, match="not now"):
        count()
    assert count().result() == 0


def test_strict_mode_names_a_default_that_a_task_changes(mode: str) -> None:
    def collect(value: int, into: list[int] = []) -> int:  # noqa: B006
        into.append(value)
        return len(into)

    with Runtime(cpus=1, strict=True, mode="inline" if mode == "inline" else "parallel"):
        error = task(collect)(1).exception()
    assert "collect" in str(error) and "changed" in str(error)
