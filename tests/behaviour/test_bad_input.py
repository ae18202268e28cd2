"""Every misuse is an error at the line that made it, and its message names what is wrong."""

from __future__ import annotations

import copy
import datetime
import enum
import traceback
import uuid
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock import (
    COLLECTION_IN,
    COLLECTION_INOUT,
    FILE_IN,
    INOUT,
    OUT,
    CallError,
    ConstraintError,
    DefinitionError,
    ReturnsMismatch,
    constraint,
    task,
    wait_on,
)

pytestmark = pytest.mark.usefixtures("runtime")


def line_of(caught: pytest.ExceptionInfo[BaseException]) -> str:
    """The line of this file at which the exception was raised: the last frame of ours."""
    frames = [frame for frame in traceback.extract_tb(caught.tb) if frame.filename == __file__]
    return str(frames[-1].line)


# --- at the decorator ---------------------------------------------------------------------------------------------


def test_an_unknown_parameter_suggests_the_nearest_one() -> None:
    with pytest.raises(DefinitionError) as caught:

        @task(totl=INOUT)
        def merge_parts(total: Any, part: Any) -> None: ...

    message = str(caught.value)
    assert "totl" in message and "merge_parts" in message and "'total'" in message


def test_an_unknown_option_suggests_the_nearest_one() -> None:
    with pytest.raises(DefinitionError, match="'retries'"):

        @task(retrys=2)
        def never(total: Any) -> None: ...


def test_out_on_a_missing_parameter_names_it() -> None:
    with pytest.raises(DefinitionError) as caught:

        @task(result=OUT)
        def compute_all(data: Any) -> None: ...

    assert "result" in str(caught.value) and "compute_all" in str(caught.value)


@pytest.mark.parametrize("written", ["INOUT", 5, None, {"type": "IN"}, {"depth": 2}, {"type": INOUT, "dept": 1}])
def test_what_is_no_direction_is_an_error(written: Any) -> None:
    with pytest.raises(DefinitionError, match="data"):

        @task(data=written)
        def never(data: Any) -> None: ...


@pytest.mark.parametrize("written", [-1, 1.5, "two", (), (1, 2), [int]])
def test_what_is_no_number_of_returns_is_an_error(written: Any) -> None:
    with pytest.raises(DefinitionError, match="returns"):

        @task(returns=written)
        def never() -> None: ...


@pytest.mark.parametrize(
    "options",
    [
        {"priority": "high"},
        {"retries": -1},
        {"retries": "two"},
        {"timeout": 0},
        {"timeout": -5},
        {"timeout": "soon"},
        {"on_failure": "explode"},
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_errors_that_name_them(options: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError) as caught:

        @task(**options)
        def badly_declared() -> None: ...

    assert next(iter(options)) in str(caught.value) and "badly_declared" in str(caught.value)


def test_an_unknown_on_failure_lists_the_known_ones() -> None:
    with pytest.raises(DefinitionError) as caught:

        @task(on_failure="explode")
        def never() -> None: ...

    assert all(word in str(caught.value) for word in ("retry", "fail", "ignore", "cancel_successors"))


def test_target_direction_on_a_plain_function_is_an_error() -> None:
    with pytest.raises(DefinitionError, match="target_direction"):

        @task(target_direction=INOUT)
        def never(data: Any) -> None: ...


@pytest.mark.parametrize("thing", [5, "text", None, [], object()])
def test_only_functions_can_be_tasks(thing: Any) -> None:
    with pytest.raises(DefinitionError):
        task()(thing)


def test_a_class_and_a_task_cannot_be_decorated() -> None:
    with pytest.raises(DefinitionError, match="class|Thing"):

        @task
        class Thing: ...

    with pytest.raises(DefinitionError, match="twice|once|already"):
        task(task(abs_of))


def abs_of(x: int) -> int:
    return abs(x)


def test_a_constraint_must_stand_above_the_task() -> None:
    with pytest.raises(DefinitionError, match="above @task"):

        @task
        @constraint(computing_units=1)  # type: ignore[arg-type]
        def never() -> None: ...


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [("computing_unit", "computing_units"), ("memory_sise", "memory_size"), ("ProcesorName", "processor_name")],
)
def test_an_unknown_constraint_suggests_the_nearest_one(name: str, suggestion: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        constraint(**{name: 1})
    assert name in str(caught.value) and repr(suggestion) in str(caught.value)


def test_a_constraint_given_twice_in_two_spellings_is_an_error() -> None:
    with pytest.raises(DefinitionError, match="computing_units"):
        constraint(computing_units=1, ComputingUnits=2)


@pytest.mark.parametrize("value", [0, -1, "many", 1.5, None])
def test_a_value_that_is_no_number_of_units_is_an_error_at_the_decorator(value: Any) -> None:
    with pytest.raises((DefinitionError, ConstraintError), match="computing_units"):

        @constraint(computing_units=value)
        @task
        def never() -> None: ...


# --- at the call --------------------------------------------------------------------------------------------------


@constraint(computing_units=100_000)
@task(returns=1)
def needs_many_units() -> int:
    return 1


@constraint(memory_size="900TB")
@task(returns=1)
def needs_much_memory() -> int:
    return 1


@constraint(processor_name="abacus")
@task(returns=1)
def needs_an_abacus() -> int:
    return 1


def test_a_constraint_no_machine_can_meet_names_the_largest_at_the_call(runtime: Any) -> None:
    with pytest.raises(ConstraintError) as caught:
        needs_many_units()  # this line
    message = str(caught.value)
    assert "needs_many_units" in message and "100000" in message.replace(",", "").replace("_", "")
    assert "computing" in message and "largest" in message
    assert line_of(caught) == "needs_many_units()  # this line"


def test_memory_no_machine_has_names_what_there_is() -> None:
    with pytest.raises(ConstraintError) as caught:
        needs_much_memory()
    message = str(caught.value)
    assert "needs_much_memory" in message and "memory" in message and "largest" in message


def test_a_processor_no_machine_has_is_named() -> None:
    with pytest.raises(ConstraintError) as caught:
        needs_an_abacus()
    assert "abacus" in str(caught.value) and "needs_an_abacus" in str(caught.value)


def test_an_impossible_constraint_in_a_map_is_an_error_too() -> None:
    @constraint(computing_units=100_000)
    @task(returns=1)
    def too_much(x: int) -> int:
        return x

    with pytest.raises(ConstraintError, match="too_much"):
        too_much.map([1, 2, 3]).results()


def test_after_an_impossible_call_the_runtime_goes_on() -> None:
    with pytest.raises(ConstraintError):
        needs_many_units()
    assert task(abs_of)(-3).result() == 3


@task(bag=INOUT, returns=1)
def add_to(bag: Any, value: Any, extra: int = 0) -> Any:
    bag.append(value)


def test_calls_that_do_not_fit_the_signature_name_the_task_at_the_call() -> None:
    for call in (
        lambda: add_to(),
        lambda: add_to([]),
        lambda: add_to([], 1, 2, 3),
        lambda: add_to([], 1, nothing=1),
        lambda: add_to([], 1, bag=[]),
    ):
        with pytest.raises(TypeError, match="add_to") as caught:
            call()
        assert line_of(caught).startswith("lambda: add_to(")


def test_inout_of_a_value_that_cannot_change_is_an_error_at_the_call() -> None:
    for value in (5, "text", 1.5, None, b"bytes", True):
        with pytest.raises(CallError) as caught:
            add_to(value, 1)
        assert "bag" in str(caught.value) and "add_to" in str(caught.value)


@task(path=FILE_IN, returns=1)
def read_config(path: Any) -> str:
    return Path(path).read_text()


def test_a_file_that_does_not_exist_and_that_no_task_produces(tmp_path: Path) -> None:
    with pytest.raises(CallError) as caught:
        read_config(tmp_path / "absent.toml")  # here
    message = str(caught.value)
    assert "absent.toml" in message and "path" in message and "read_config" in message
    assert line_of(caught) == 'read_config(tmp_path / "absent.toml")  # here'


def test_a_future_as_a_path_is_an_error_at_the_call() -> None:
    future = task(abs_of)(1)
    with pytest.raises(CallError, match="path"):
        read_config(future)
    future.result()


@task(c=COLLECTION_INOUT)
def update_all(c: Any) -> None: ...


@task(c=COLLECTION_IN(depth=3), returns=1)
def look_deep(c: Any) -> Any:
    return c


def test_a_cycle_in_a_collection_is_an_error_at_the_call() -> None:
    ring: list[Any] = []
    ring.append(ring)
    for call in (update_all, look_deep):
        with pytest.raises(CallError) as caught:
            call(ring)
        message = str(caught.value)
        assert "cycle" in message and "'c'" in message and call.__name__ in message


@task(returns=3)
def two_of_three() -> Any:
    return 1, 2


def test_a_returns_mismatch_names_task_and_numbers() -> None:
    futures = two_of_three()
    with pytest.raises(ReturnsMismatch) as caught:
        wait_on(futures)
    message = str(caught.value)
    assert "two_of_three" in message and "3" in message and "2" in message


def test_a_shared_object_as_inout_names_both() -> None:
    bag = penstock.share([1])
    with pytest.raises(CallError) as caught:
        add_to(bag, 2)
    assert "share" in str(caught.value) and "bag" in str(caught.value)


# --- later --------------------------------------------------------------------------------------------------------


def test_a_future_cannot_be_pickled_by_the_program_and_says_what_to_do() -> None:
    import pickle

    future = task(abs_of)(1)
    with pytest.raises(TypeError, match="result"):
        pickle.dumps(future)
    future.result()


def test_set_result_is_refused() -> None:
    future = task(abs_of)(1)
    with pytest.raises(penstock.PenstockError):
        future.set_result(5)
    assert future.result() == 1


@pytest.mark.parametrize("wrong", [5, "text", None])
def test_cancel_of_something_that_is_no_future_is_an_error(wrong: Any) -> None:
    with pytest.raises(TypeError):
        penstock.cancel(wrong)


def test_open_file_and_delete_file_of_something_that_is_no_path() -> None:
    for function in (penstock.open_file, penstock.delete_file):
        with pytest.raises(TypeError):
            function(5.5)


@task(value=INOUT)
def double(value: Any) -> None:
    value += value


@pytest.mark.parametrize(
    "value",
    [
        7,
        "seven",
        (1, (2, "three")),
        frozenset({1}),
        np.float64(7),
        np.datetime64("2020-01-01"),
        Decimal(7),
        Fraction(7, 2),
        datetime.date(2020, 1, 1),
        datetime.timedelta(1),
        Path("seven"),
        uuid.UUID(int=7),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_can_never_change_cannot_be_updated(value: Any) -> None:
    with pytest.raises(CallError, match="'value' of task double is declared INOUT, but .* can never change; return it"):
        double(value)


class Setting:
    """A class whose attributes a task would change."""

    number = 0


class Colour(enum.Enum):
    """An enumeration with methods that are tasks."""

    RED = 1

    @task
    def shown(self) -> str:
        return self.name

    @task
    def named(this) -> str:
        return this.name


class Meta(type):
    """Classes with a task as a method."""

    @task
    def shown(self) -> str:
        return self.__name__


class Made(metaclass=Meta):
    """Has a method that is its class's, and one that is its own."""

    @classmethod
    @task
    def called(cls) -> str:
        return cls.__name__


@pytest.mark.parametrize("direction", [INOUT, OUT], ids=repr)
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (Setting, "a class"),
        (Colour.RED, "a member of an enumeration"),
        (Colour, "a class"),
        (abs_of, "a function"),
        (len, "a function"),
        (datetime, "a module"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_each_process_has_of_its_own_cannot_be_updated(direction: Any, value: Any, kind: str) -> None:
    @task(value=direction)
    def change(value: Any) -> None:
        value.number = 1

    with pytest.raises(CallError, match=f"is declared {direction!r}, but .* is {kind}, of which"):
        change(value)


def test_methods_of_what_each_process_has_of_its_own_are_tasks() -> None:
    assert wait_on(Colour.RED.shown(), Colour.RED.named()) == ["RED", "RED"]
    assert wait_on(Made.shown(), Made.called()) == ["Made", "Made"]


@pytest.mark.parametrize(
    ("value", "changed"), [(([1],), [1, 1]), (np.zeros(1, dtype=[("a", "i4")])[0], 1)], ids=["tuple", "record"]
)
def test_what_only_looks_like_a_value_can_be_updated(value: Any, changed: Any) -> None:
    @task(value=INOUT)
    def change(value: Any) -> None:
        if isinstance(value, tuple):
            value[0].append(1)
        else:
            value["a"] = 1

    value = copy.deepcopy(value)  # it is brought up to date, and there is a run in each mode
    change(value)
    assert wait_on(value)[0] == changed
