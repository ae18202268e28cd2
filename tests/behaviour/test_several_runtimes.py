"""Several runtimes in one program, one after another and beside each other: what one's tasks update, the others see."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.behaviour.conftest import Script
from tests.behaviour.modes import MODES, Gate, only_workers
from tests.patience import PATIENCE, becomes

import penstock
from penstock import FILE_IN, FILE_INOUT, FILE_OUT, INOUT, task, wait_on


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


def test_strict_mode_tells_of_a_change_that_the_end_would_lose(mode: str, capfd: pytest.CaptureFixture[str]) -> None:
    bag: list[int] = []
    with penstock.Runtime(strict=True, **MODES[mode]):
        push(bag, 1)
        bag.append(2)
    assert "stop: the program changed this list" in capfd.readouterr().err
    assert bag == [2]


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


# --- beside each other --------------------------------------------------------------------------------------------


@task
def length(bag: Any) -> int:
    return len(bag)


@task
def total(array: Any) -> float:
    return float(array.sum())


@task(bag=INOUT)
def push_behind(bag: list[int], value: int, gate: Gate) -> None:
    gate.enter()
    bag.append(value)


@task
def stand_at(gate: Gate) -> int:
    gate.enter()
    return 1


@task(path=FILE_INOUT)
def note(path: str, text: str) -> None:
    with open(path, "a") as file:
        file.write(text)


@task(path=FILE_IN)
def content(path: str) -> str:
    return Path(path).read_text()


@task(path=FILE_OUT)
def not_written(path: str) -> None:
    raise ValueError("not written")


@task(path=FILE_INOUT)
def note_behind(path: str, text: str, gate: Gate) -> None:
    gate.enter()
    with open(path, "a") as file:
        file.write(text)


def opened_when_waited_for(runtime: penstock.Runtime, gate: Gate) -> threading.Thread:
    """Opens a gate once a thread of the program waits for a runtime; what is asked without waiting comes before."""

    def watch() -> None:
        becomes(lambda: runtime.driver.is_awaited)
        gate.open()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


@pytest.fixture
def beside(mode: str) -> Iterator[penstock.Runtime]:
    """A second runtime, which is the current one."""
    with penstock.Runtime(**MODES[mode]) as second:
        yield second


def test_each_sees_what_the_others_tasks_updated(runtime: penstock.Runtime, mode: str) -> None:
    bag: list[int] = []
    table: dict[str, int] = {}
    array, rows = np.zeros(4), np.zeros(4)
    account = Account()
    push(bag, 1)
    put(table, "a")
    increase(array)
    increase(rows[:2])
    account.enter(1)
    with penstock.Runtime(**MODES[mode]):
        assert wait_on(length(bag), length(table), total(array), total(rows)) == [1, 1, 4, 2]
        push(bag, 2)
        increase(rows[1:])
        account.enter(2)
    push(bag, 3)
    account.enter(3)
    assert wait_on(bag) == [1, 2, 3]
    assert rows.tolist() == [1, 2, 1, 1]
    assert wait_on(account).entries == [1, 2, 3]


@only_workers
def test_a_call_waits_for_what_a_task_of_another_updates(runtime: penstock.Runtime, gate: Gate) -> None:
    bag: list[int] = []
    push_behind(bag, 1, gate)
    opener = opened_when_waited_for(runtime, gate)
    with penstock.Runtime(cpus=1):
        push(bag, 2)
        assert length(bag).result() == 2
    opener.join()
    assert bag == [1, 2]


@only_workers
def test_nobody_waits_for_others_that_have_only_futures(runtime: penstock.Runtime, gate: Gate) -> None:
    future = stand_at(gate)
    with penstock.Runtime(cpus=1):
        assert length([1, 2]).result() == 2
    gate.open()
    assert future.result() == 1


def test_a_map_and_a_closure_see_it_too(runtime: penstock.Runtime, mode: str) -> None:
    bag: list[int] = []
    push(bag, 1)
    with penstock.Runtime(**MODES[mode]):
        assert length.map([bag, [1, 2, 3]]).results() == [1, 3]
    push(bag, 2)

    @task
    def of_closure() -> int:
        return len(bag)

    with penstock.Runtime(**MODES[mode]):
        assert of_closure().result() == 2


def test_an_executor_beside_a_runtime(runtime: penstock.Runtime, mode: str) -> None:
    bag: list[int] = []
    rows = np.zeros(4)
    push(bag, 1)
    increase(rows[:2])
    with penstock.Executor(**MODES[mode]) as executor:
        assert executor.submit(len, bag).result() == 1
        assert executor.submit(np.sum, rows).result() == 2
        push(bag, 2)
        assert list(executor.map(len, [bag])) == [2]
        push(bag, 3)
        assert executor.submit(lambda: len(bag)).result() == 3
        executor.submit(push, bag, 4)
        assert length(bag).result() == 4


def test_wait_on_asks_the_other_runtime(runtime: penstock.Runtime, beside: penstock.Runtime, mode: str) -> None:
    bag: list[int] = []
    rows = np.zeros(4)
    with penstock.Executor(**MODES[mode]) as executor:
        executor.submit(push, bag, 1)
        executor.submit(increase, rows[:2])
        assert wait_on([bag])[0] is bag
        assert wait_on(rows).tolist() == [1, 1, 0, 0]
        assert bag == [1]


def test_the_failure_of_another_runtimes_writer_is_raised_by_the_call(runtime: penstock.Runtime, mode: str) -> None:
    bag: list[int] = []
    push(bag, 1)
    spoil(bag)
    with penstock.Runtime(**MODES[mode]):
        with pytest.raises(ValueError, match="spoiled"):
            length(bag)
        assert length(bag).result() == 1


def test_what_another_runtimes_tasks_replaced_is_told_of_once(
    runtime: penstock.Runtime, mode: str, capfd: pytest.CaptureFixture[str]
) -> None:
    array = np.zeros(2)
    turn(array)
    with penstock.Runtime(**MODES[mode]):
        wait_on(length([1]), length([2]))
    assert capfd.readouterr().err.count("1 ndarray") == 1
    assert wait_on(array).shape == (2, 1)


def test_files_that_tasks_of_another_runtime_write(runtime: penstock.Runtime, mode: str, in_folder: Path) -> None:
    Path("notes").touch()
    note("notes", "1")
    with penstock.Runtime(**MODES[mode]):
        assert content("notes").result() == "1"
        note("notes", "2")
        penstock.barrier()
    note("notes", "3")
    assert content("notes").result() == "123"


@only_workers
@pytest.mark.parametrize("how", ["read", "write", "open"])
def test_a_call_waits_for_files_of_another_runtime(
    runtime: penstock.Runtime, gate: Gate, in_folder: Path, how: str
) -> None:
    Path("notes").touch()
    note_behind("notes", "1", gate)
    opener = opened_when_waited_for(runtime, gate)
    with penstock.Runtime(cpus=1):
        if how == "write":
            note("notes", "2")
        elif how == "read":
            assert content("notes").result() == "1"
        else:
            with penstock.open_file("notes") as file:
                assert file.read() == "1"
    opener.join()
    assert Path("notes").read_text() == ("12" if how == "write" else "1")


def test_a_file_that_another_runtime_could_not_write(runtime: penstock.Runtime, mode: str, in_folder: Path) -> None:
    Path("notes").write_text("0")
    not_written("notes")
    with penstock.Runtime(**MODES[mode]):
        with pytest.raises(ValueError, match="not written"):
            content("notes")
        assert content("notes").result() == "0"


def test_a_callback_that_calls_another_runtime_does_not_wait_for_itself(runtime: penstock.Runtime, mode: str) -> None:
    bag: list[int] = []
    lengths: list[Any] = []
    heard = threading.Event()
    with penstock.Executor(**MODES[mode]) as executor:

        def call(_: Any) -> None:
            lengths.append(executor.submit(len, [1, 2]))
            heard.set()

        push(bag, 1)
        length([1]).add_done_callback(call)
        assert heard.wait(PATIENCE)
        assert lengths[0].result() == 2


@pytest.mark.parametrize("mode", ["inline"], indirect=True)
def test_a_runtime_inside_an_inline_task_does_not_wait_for_the_task(runtime: penstock.Runtime) -> None:
    @task(bag=INOUT)
    def nested(bag: list[int]) -> None:
        with penstock.Executor(mode="inline") as executor:
            bag.append(executor.submit(len, [1, 2, 3]).result())

    bag: list[int] = []
    nested(bag)
    assert wait_on(bag) == [3]
