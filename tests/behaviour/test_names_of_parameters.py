"""A parameter may be called anything: what a decorator says of it is told from the decorator's own options."""

from __future__ import annotations

import inspect
import itertools
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    COLLECTION_INOUT,
    FILE_IN,
    FILE_OUT,
    IN,
    INOUT,
    DefinitionError,
    Depth,
    Type,
    constraint,
    io,
    program,
    task,
    wait_on,
)
from penstock.api import options
from penstock.api.task import Task

pytestmark = pytest.mark.usefixtures("runtime")

OPTIONS = sorted({*options._OPTIONS, *inspect.signature(program).parameters} - {"options", "command"})
OTHERS = ["args", "kwargs", "self", "cls", "name", "path", "map", "function", "command", "declaration", "body", "task"]
#: of a function's own that no decorator means anything by
NAMES = [*OPTIONS, *OTHERS, "with_options", "label", "runtime", "place", "where", "value", "mode", "io", "mpi"]


def appender(name: str) -> Any:
    """``def append(NAME): NAME.append(1)``"""
    scope: dict[str, Any] = {}
    exec(f"def append({name}): {name}.append(1)", scope)
    return scope["append"]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("by_keyword", [False, True])
def test_a_parameter_of_any_name_has_its_direction(name: str, by_keyword: bool) -> None:
    append: Task[..., Any] = task(**{name: INOUT})(appender(name))
    items = [0]
    append(**{name: items}) if by_keyword else append(items)
    assert wait_on(items) == [0, 1]


@pytest.mark.parametrize("name", OPTIONS)
def test_the_dictionary_form_is_a_direction_too(name: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"def fill({name}):\n  for part in {name}:\n    part.append(1)", scope)
    fill = task(**{name: {Type: COLLECTION_INOUT, Depth: 1}})(scope["fill"])
    parts: list[list[int]] = [[], [0]]
    fill(parts)
    assert wait_on(parts) == [[1], [0, 1]]


@pytest.mark.parametrize("name", ["timeout", "size", "stdout", "returns", "success", "sizes", "name", "cls", "path"])
def test_a_program_has_parameters_of_any_name(name: str, tmp_path: Path) -> None:
    scope: dict[str, Any] = {}
    exec(f"def copy(source, {name}): ...", scope)
    copy = program(f"cp {{source}} {{{name}}}", **{"source": FILE_IN, name: FILE_OUT})(scope["copy"])
    (tmp_path / "a").write_text("text")
    assert copy(tmp_path / "a", **{name: tmp_path / "b"}).result() == 0
    assert (tmp_path / "b").read_text() == "text"


def test_what_is_no_direction_is_the_option_also_where_a_parameter_has_its_name() -> None:
    @constraint(computing_units=1)
    @task(timeout=30, returns=2, priority=1)
    def three(timeout: int, returns: int, priority: int) -> tuple[int, int]:
        return timeout + returns, priority

    a, b = three(1, 2, priority=3)  # type: ignore[misc]
    assert wait_on([a, b]) == [3, 3]
    assert three.declaration.timeout == 30


def test_in_is_a_direction_like_the_others() -> None:
    @io
    @task(size=IN, retries=IN)
    def both(size: int, retries: int) -> int:
        return size + retries

    assert both(1, retries=2).result() == 3
    assert both.declaration.retries is None
    assert both.declaration.size is None


@pytest.mark.parametrize("name", sorted(set(OPTIONS) - {"target_direction"}))
@pytest.mark.parametrize("decorator", [task, lambda **written: program("true", **written)])
def test_a_direction_for_which_there_is_no_parameter_is_refused(name: str, decorator: Any) -> None:
    def other() -> None: ...

    with pytest.raises(DefinitionError, match=f"{name}.* parameter"):
        decorator(**{name: INOUT})(other)


def test_a_decorator_is_the_same_for_every_function_under_it() -> None:
    pair = task(returns=2)

    @pair
    def first() -> tuple[int, int]:
        return 1, 2

    @pair
    def second() -> tuple[int, int]:
        return 3, 4

    assert wait_on([*first(), *second()]) == [1, 2, 3, 4]  # type: ignore[misc]


class Holder:
    def __init__(self) -> None:
        self.items: list[int] = []

    @task(size=INOUT, timeout=20)
    def push(self, size: list[int], timeout: int) -> None:
        size.append(timeout)
        self.items.append(timeout)


def test_a_method_has_parameters_of_any_name() -> None:
    holder, items = Holder(), [1]
    holder.push(items, timeout=2)
    assert wait_on(items) == [1, 2]
    assert wait_on(holder).items == [2]


class Tally:
    def __init__(self) -> None:
        self.count = 0

    @task
    def add(this, number: int) -> int:
        this.count += number
        return this.count

    @task(this=IN)
    def look(this) -> int:
        return this.count

    @staticmethod
    @task
    def sum(first: int, second: int) -> int:
        return first + second

    @classmethod
    @task
    def name(kind, mark: str) -> str:
        return kind.__name__ + mark


def test_a_method_calls_its_object_what_it_likes() -> None:
    tally = Tally()
    tally.add(1)
    tally.add.with_options(priority=1)(2)
    assert wait_on(tally.look()) == 3
    assert (wait_on(tally).count, wait_on(tally.sum(1, 2)), wait_on(tally.name("!"))) == (3, 3, "Tally!")


# --- keywords that meet the names of other parameters --------------------------------------------------------------


@task(kwargs=INOUT)
def extend(first: Any, /, **kwargs: Any) -> None:
    for items in kwargs.values():
        items.append(first)


@pytest.mark.parametrize("names", list(itertools.combinations(["first", "kwargs", "self", "class"], 2)))
def test_a_keyword_of_any_name_is_one_of_the_keywords(names: tuple[str, str]) -> None:
    given: dict[str, list[int]] = {name: [0] for name in names}
    extend(5, **given)
    assert wait_on(given) == {name: [0, 5] for name in names}


@task(first=INOUT)
def push(first: list[int], /, **kwargs: Any) -> None:
    first.append(kwargs["first"])


def test_a_positional_parameter_is_not_the_keyword_of_its_name() -> None:
    items = [0]
    push(items, first=7)
    assert wait_on(items) == [0, 7]


@task(args=INOUT)
def push_all(*args: list[int], **kwargs: int) -> None:
    for one in args:
        one.append(kwargs["args"])


def test_further_arguments_are_not_the_keyword_of_their_name() -> None:
    a, b = [1], [2]
    push_all(a, b, args=3)
    assert wait_on([a, b]) == [[1, 3], [2, 3]]


def test_a_direction_that_a_default_could_never_have_is_refused() -> None:
    with pytest.raises(DefinitionError, match="items.*remove the /"):

        @task(items=INOUT)
        def push_one(items: list[int] = [], /) -> None:  # noqa: B006
            items.append(1)


def test_attributes_of_a_function_do_not_hide_those_of_its_task() -> None:
    def double(x: int) -> int:
        return 2 * x

    double.map = double.declaration = 3  # type: ignore[attr-defined]
    double.colour = "red"  # type: ignore[attr-defined]
    doubled = task(double)
    assert doubled.map([1, 2]).results() == [2, 4]
    assert doubled.colour == "red"  # type: ignore[attr-defined]
