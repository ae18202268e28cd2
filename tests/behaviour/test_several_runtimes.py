"""Several runtimes in one program, one after another and beside each other: what one's tasks update, the others see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.behaviour.conftest import Script
from tests.behaviour.modes import MODES

import penstock
from penstock import INOUT, ArgumentChanged, task, wait_on


class Account:
    """An ordinary object, and a method that changes it."""

    def __init__(self) -> None:
        self.entries: list[int] = []

    @task
    def enter(self, amount: int) -> None:
        self.entries.append(amount)


@task(bag=INOUT)
def push(bag: list[int], value: int) -> None:
    bag.append(value)


@task(table=INOUT)
def put(table: dict[str, int], key: str) -> None:
    table[key] = len(table)


@task(array=INOUT)
def increase(array: Any) -> None:
    array += 1


@task(account=INOUT)
def credit(account: Account, amount: int) -> None:
    account.entries.append(amount)


@task(bag=INOUT)
def spoil(bag: list[int]) -> None:
    bag.append(-1)
    raise ValueError("spoiled")


@task(array=INOUT)
def turn(array: Any) -> None:
    array.shape = (2, 1)


# --- one after another --------------------------------------------------------------------------------------------


def test_what_tasks_updated_is_the_programs_after_stop(mode: str) -> None:
    bag: list[int] = []
    table: dict[str, int] = {}
    array, large = np.zeros(3), np.zeros(100_000)
    instance, own = Account(), Account()
    alias = bag
    penstock.start(**MODES[mode])
    push(bag, 1)
    put(table, "a")
    increase(array)
    increase(large)
    credit(instance, 5)
    own.enter(7)
    penstock.stop()
    assert alias == [1]
    assert table == {"a": 0}
    assert array.tolist() == [1, 1, 1]
    assert large.min() == large.max() == 1
    assert instance.entries == [5]
    assert own.entries == [7]


def test_the_next_runtime_goes_on_where_the_last_one_ended(mode: str) -> None:
    bag: list[int] = []
    with penstock.Runtime(**MODES[mode]):
        push(bag, 1)
        push(bag, 2)
    with penstock.Runtime(**MODES[mode]):
        push(bag, 3)
        assert wait_on(bag) == [1, 2, 3]


def test_an_object_inside_others_is_given_back_too(mode: str) -> None:
    holder: dict[str, list[int]] = {"bag": []}
    with penstock.Runtime(**MODES[mode]):
        push(holder["bag"], 1)
    assert holder == {"bag": [1]}


def test_an_object_whose_writer_failed_is_what_it_was_before(mode: str) -> None:
    bag: list[int] = []
    untouched: list[int] = [0]
    with pytest.raises(ValueError, match="spoiled"), penstock.Runtime(**MODES[mode]):
        push(bag, 1)
        spoil(bag)
        push(bag, 2)  # which fails with it
        spoil(untouched)
    assert bag == [1]
    assert untouched == [0]


def test_after_an_exception_of_the_program_objects_stay_as_they_are(mode: str) -> None:
    bag: list[int] = []
    with pytest.raises(KeyError), penstock.Runtime(**MODES[mode]):
        push(bag, 1)
        raise KeyError
    assert bag == []
    penstock.start(**MODES[mode])
    push(bag, 1)
    penstock.stop(abort=True)
    assert bag == []


def test_a_shared_object_and_one_that_is_gone_need_nothing(mode: str) -> None:
    with penstock.Runtime(**MODES[mode]):
        shared = penstock.share([1])
        push([1], 2)
    assert shared == [1]


def test_what_cannot_be_brought_up_to_date_is_told_of(mode: str, capfd: pytest.CaptureFixture[str]) -> None:
    arrays = [np.zeros(2), np.zeros(2)]
    with penstock.Runtime(**MODES[mode]):
        for array in arrays:
            turn(array)
    told = [line for line in capfd.readouterr().err.splitlines() if "wait_on" in line]
    assert len(told) == 1
    assert "2 ndarray" in told[0]
    assert Path(__file__).name in told[0]
    assert [array.shape for array in arrays] == [(2,), (2,)]


def test_what_cannot_be_loaded_is_told_of_and_the_rest_comes_back(mode: str, capfd: pytest.CaptureFixture[str]) -> None:
    broken, bag = Unloadable(), [1]
    with penstock.Runtime(**MODES[mode]):
        arm(broken)
        push(bag, 2)
    assert "Unloadable" in capfd.readouterr().err
    assert bag == [1, 2]


class Unloadable:
    """Something that a task makes so that the program cannot have it."""

    armed = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state.get("armed"):
            raise RuntimeError("not here")
        self.__dict__.update(state)

    def __getstate__(self) -> dict[str, Any]:
        return {"armed": self.armed}


@task(one=INOUT)
def arm(one: Unloadable) -> None:
    one.armed = True


def test_strict_mode_refuses_changes_that_the_end_would_lose(mode: str) -> None:
    bag: list[int] = []
    with pytest.raises(ArgumentChanged, match="stop"), penstock.Runtime(strict=True, **MODES[mode]):
        push(bag, 1)
        bag.append(2)


def test_at_the_end_of_the_program_nothing_is_loaded(script: Script) -> None:
    done = script("""
from penstock import INOUT, task

class Telling:
    def __setstate__(self, state):
        import os
        if os.getpid() == state["pid"]:
            print("loaded")
        self.__dict__.update(state)

@task(one=INOUT)
def touch(one):
    one.touched = True

if __name__ == "__main__":
    import os
    one = Telling()
    one.pid = os.getpid()
    touch(one)
""")
    assert done.stdout == ""


def test_an_executor_gives_back_what_its_tasks_updated(mode: str) -> None:
    bag: list[int] = []
    with penstock.Executor(**MODES[mode]) as executor:
        executor.submit(push, bag, 1)
    assert bag == [1]
