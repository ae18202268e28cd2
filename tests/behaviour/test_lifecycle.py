"""Starting and stopping: ``with Runtime``, ``start``, ``stop``, and what a call does in between and after."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest
from tests.behaviour.modes import MODES

import penstock
from penstock import INOUT, ConfigError, PenstockError, RuntimeStopped, task, wait_on


@task(returns=1)
def add(a: int, b: int = 1) -> int:
    return a + b


@task(returns=1)
def process() -> int:
    return os.getpid()


@task(returns=1)
def fail() -> Any:
    raise ValueError("nobody looked")


@task(bag=INOUT)
def push(bag: list[int], value: int) -> None:
    bag.append(value)


def test_a_context_runs_tasks_and_ends(mode: str) -> None:
    with penstock.Runtime(**MODES[mode]) as runtime:
        assert isinstance(runtime, penstock.Runtime)
        assert add(1).result() == 2
    with pytest.raises(RuntimeStopped):
        add(1)


def test_leaving_the_context_finishes_what_was_called(mode: str) -> None:
    with penstock.Runtime(**MODES[mode]):
        futures = [add(i) for i in range(20)]
    assert [future.result() for future in futures] == list(range(1, 21))


def test_leaving_the_context_raises_a_failure_nobody_looked_at(mode: str) -> None:
    with pytest.raises(ValueError, match="nobody looked"), penstock.Runtime(**MODES[mode]):
        fail()


def test_an_exception_of_the_program_goes_through_the_context(mode: str) -> None:
    with pytest.raises(KeyError, match="the program's"), penstock.Runtime(**MODES[mode]):
        fail()
        raise KeyError("the program's")


def test_contexts_one_after_another(mode: str) -> None:
    for i in range(3):
        with penstock.Runtime(**MODES[mode]):
            assert add(i).result() == i + 1


def test_a_context_inside_another(mode: str) -> None:
    with penstock.Runtime(**MODES[mode]):
        outer = add(1)
        with penstock.Runtime(**MODES[mode]):
            assert add(5).result() == 6
        assert outer.result() == 2
        assert add(2).result() == 3


def test_the_inner_context_is_the_current_one(mode: str) -> None:
    with penstock.Runtime(mode="inline"):
        assert process().result() == os.getpid()
        with penstock.Runtime(cpus=1):
            assert process().result() != os.getpid()
        assert process().result() == os.getpid()


def test_values_of_one_runtime_as_arguments_of_another(mode: str) -> None:
    with penstock.Runtime(**MODES[mode]):
        outer = add(1)
        with penstock.Runtime(**MODES[mode]):
            assert add(outer.result()).result() == 3


def test_start_and_stop(mode: str) -> None:
    runtime = penstock.start(**MODES[mode])
    assert isinstance(runtime, penstock.Runtime)
    assert add(1).result() == 2
    with pytest.raises(PenstockError, match="already"):
        penstock.start()
    penstock.stop()
    with pytest.raises(RuntimeStopped, match="start"):
        add(1)
    penstock.stop()
    penstock.start(**MODES[mode])
    assert add(2).result() == 3
    penstock.stop()


def test_stop_waits_and_raises_a_failure_nobody_looked_at(mode: str) -> None:
    penstock.start(**MODES[mode])
    future = add(1)
    fail()
    with pytest.raises(ValueError, match="nobody looked"):
        penstock.stop()
    assert future.done() and future.result() == 2
    with pytest.raises(RuntimeStopped):
        add(1)


def test_a_call_after_stop_names_what_to_do_and_leaves_its_arguments_alone(mode: str) -> None:
    penstock.start(**MODES[mode])
    penstock.stop()
    bag = [1]
    with pytest.raises(RuntimeStopped) as caught:
        push(bag, 2)
    assert "start" in str(caught.value) and "stopped" in str(caught.value)
    assert bag == [1] and wait_on(bag) is bag
    with pytest.raises(RuntimeStopped):
        add.map([1, 2])


def test_an_object_of_a_stopped_runtime_is_an_ordinary_one(mode: str) -> None:
    bag = [1]
    with penstock.Runtime(**MODES[mode]):
        push(bag, 2)
        wait_on(bag)
    with penstock.Runtime(**MODES[mode]):
        push(bag, 3)
        assert wait_on(bag) == [1, 2, 3]


def test_the_same_task_in_several_runtimes(mode: str) -> None:
    offset = 1

    @task(returns=1)
    def shifted(x: int) -> int:
        return x + offset

    with penstock.Runtime(**MODES[mode]):
        assert shifted(1).result() == 2
    offset = 10
    with penstock.Runtime(**MODES[mode]):
        assert shifted(1).result() == 11


def test_a_runtime_used_from_a_thread(mode: str) -> None:
    with penstock.Runtime(**MODES[mode]):
        found: list[int] = []
        thread = threading.Thread(target=lambda: found.append(add(1).result()))
        thread.start()
        thread.join(60)
        assert found == [2]


def test_settings_that_make_no_sense_are_errors_that_name_them(mode: str) -> None:
    for settings, named in [
        ({"cpus": 0}, "cpus"),
        ({"cpus": "many"}, "cpus"),
        ({"mode": "sideways"}, "mode"),
        ({"cpu": 2}, "cpus"),
        ({"scheduler": "best"}, "best"),
        ({"memory": "lots"}, "memory"),
    ]:
        with pytest.raises(ConfigError, match=named):
            penstock.Runtime(**settings)


def test_wait_on_and_barrier_without_a_runtime(mode: str) -> None:
    numbers = [1]
    assert wait_on(numbers) is numbers
    penstock.barrier()
    penstock.delete_object(numbers)
