"""``penstock.Executor`` where a ``concurrent.futures.Executor`` is expected."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import gc
import math
import multiprocessing
import operator
import os
import pickle
import sys
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import pytest
from tests.behaviour.modes import MODES, Gate, only_workers

import penstock


@pytest.fixture(scope="module")
def executor(mode: str) -> Iterator[penstock.Executor]:
    with penstock.Executor(**MODES[mode]) as executor:
        yield executor


def square(x: int) -> int:
    return x * x


def describe(*args: Any, **kwargs: Any) -> Any:
    return args, kwargs


def fail(message: str = "bad") -> Any:
    raise LookupError(message)


def invert(x: int) -> float:
    return 1 / x


def pass_gate(gate: Gate) -> str:
    gate.enter()
    return "through"


class Adder:
    def __init__(self, amount: int) -> None:
        self.amount = amount

    def __call__(self, x: int) -> int:
        return x + self.amount

    def add(self, x: int) -> int:
        return x + self.amount


def test_it_is_an_executor(executor: penstock.Executor) -> None:
    assert isinstance(executor, concurrent.futures.Executor)
    future = executor.submit(square, 3)
    assert isinstance(future, concurrent.futures.Future)
    assert future.result() == 9


def test_arguments_reach_the_function(executor: penstock.Executor) -> None:
    assert executor.submit(describe, 1, 2, a=3).result() == ((1, 2), {"a": 3})
    assert executor.submit(describe, fn=1, self=2).result() == ((), {"fn": 1, "self": 2})


@pytest.mark.parametrize(
    ("function", "args", "expected"),
    [
        (math.sqrt, (16,), 4.0),
        (operator.add, (1, 2), 3),
        (functools.partial(pow, 2), (5,), 32),
        (lambda x: x + 1, (1,), 2),
        (Adder(5), (1,), 6),
        (Adder(5).add, (1,), 6),
        (str.upper, ("a",), "A"),
        (dict, ([("a", 1)],), {"a": 1}),
        (int, ("12",), 12),
    ],
    ids=["builtin", "operator", "partial", "lambda", "instance", "bound", "method", "dict", "class"],
)
def test_any_callable_can_be_submitted(
    executor: penstock.Executor, function: Any, args: tuple[Any, ...], expected: Any
) -> None:
    assert executor.submit(function, *args).result() == expected


def test_a_task_can_be_submitted(executor: penstock.Executor) -> None:
    assert executor.submit(penstock.task(square), 4).result() == 16


def test_an_unhashable_callable_can_be_submitted(executor: penstock.Executor) -> None:
    class Unhashable(Adder):
        __hash__ = None  # type: ignore[assignment]

    assert executor.submit(Unhashable(2), 1).result() == 3


def test_a_callable_changed_between_two_calls_arrives_changed(executor: penstock.Executor) -> None:
    adder = Adder(1)
    first = executor.submit(adder, 0)
    adder.amount = 2
    second = executor.submit(adder, 0)
    assert (first.result(), second.result()) == (1, 2)


def test_exceptions_come_back(executor: penstock.Executor) -> None:
    future = executor.submit(fail, "lost")
    with pytest.raises(LookupError, match="lost"):
        future.result()
    assert isinstance(future.exception(), LookupError)


def test_map_keeps_the_order(executor: penstock.Executor) -> None:
    assert list(executor.map(square, range(50))) == [i * i for i in range(50)]


def test_map_of_several_iterables_ends_with_the_shortest(executor: penstock.Executor) -> None:
    assert list(executor.map(operator.add, [1, 2, 3], (10, 20))) == [11, 22]


def test_map_of_nothing(executor: penstock.Executor) -> None:
    assert list(executor.map(square, [])) == []


def test_map_takes_a_chunk_size(executor: penstock.Executor) -> None:
    assert list(executor.map(square, range(20), chunksize=7)) == [i * i for i in range(20)]


def test_map_raises_at_the_item_that_failed(executor: penstock.Executor) -> None:
    results = executor.map(invert, [1, 2, 0, 4])
    assert [next(results), next(results)] == [1.0, 0.5]
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_map_submits_before_the_first_result_is_asked_for(executor: penstock.Executor) -> None:
    taken = []

    def numbers() -> Iterator[int]:
        for i in range(3):
            taken.append(i)
            yield i

    results = executor.map(square, numbers())
    assert taken == [0, 1, 2]
    assert list(results) == [0, 1, 4]


@only_workers
def test_map_times_out(executor: penstock.Executor, gate: Gate) -> None:
    results = executor.map(pass_gate, [gate], timeout=0.01)
    with pytest.raises(TimeoutError):
        next(results)
    gate.open()


def test_nothing_is_accepted_after_shutdown(mode: str) -> None:
    executor = penstock.Executor(**MODES[mode])
    future = executor.submit(square, 2)
    executor.shutdown()
    assert future.result() == 4
    with pytest.raises(RuntimeError):
        executor.submit(square, 2)
    with pytest.raises(RuntimeError):
        executor.map(square, [2])
    executor.shutdown()


def test_leaving_the_context_waits_for_what_was_submitted(mode: str) -> None:
    with penstock.Executor(**MODES[mode]) as executor:
        futures = [executor.submit(square, i) for i in range(20)]
    assert all(future.done() for future in futures)
    assert [future.result() for future in futures] == [i * i for i in range(20)]


def test_a_failure_nobody_looks_at_does_not_break_the_context(mode: str) -> None:
    # as with ProcessPoolExecutor, only result() and exception() tell
    with penstock.Executor(**MODES[mode]) as executor:
        future = executor.submit(fail)
    assert isinstance(future.exception(), LookupError)


@only_workers
def test_shutdown_can_cancel_what_has_not_started(mode: str, gate: Gate) -> None:
    executor = penstock.Executor(max_workers=1)
    running = executor.submit(pass_gate, gate)
    waiting = [executor.submit(square, i) for i in range(50)]
    executor.shutdown(wait=False, cancel_futures=True)
    gate.open()
    executor.shutdown(wait=True)
    assert running.result() == "through"
    assert waiting[-1].cancelled()
    assert all(future.done() for future in waiting)


@only_workers
def test_shutdown_without_waiting_still_finishes_what_was_submitted(mode: str, gate: Gate) -> None:
    executor = penstock.Executor(max_workers=1)
    future = executor.submit(pass_gate, gate)
    executor.shutdown(wait=False)
    assert not future.done()
    gate.open()
    assert future.result(60) == "through"
    executor.shutdown()


@only_workers
def test_max_workers_is_the_number_of_processes(mode: str) -> None:
    with penstock.Executor(max_workers=1) as executor:
        assert len(set(executor.map(lambda _: os.getpid(), range(20)))) == 1


def test_without_settings_it_uses_the_current_runtime(mode: str) -> None:
    with penstock.Runtime(**MODES[mode]) as runtime:
        executor = penstock.Executor()
        assert executor.submit(square, 3).result() == 9
        executor.shutdown()
        assert penstock.task(square)(4).result() == 16
        assert runtime is not None


def test_run_in_executor_of_asyncio(executor: penstock.Executor) -> None:
    async def main() -> Any:
        loop = asyncio.get_running_loop()
        with pytest.raises(LookupError, match="lost"):
            await loop.run_in_executor(executor, fail, "lost")
        return await asyncio.gather(*(loop.run_in_executor(executor, square, i) for i in range(5)))

    assert asyncio.run(main()) == [0, 1, 4, 9, 16]


def test_wait_and_as_completed_of_the_standard_library(executor: penstock.Executor) -> None:
    futures = {executor.submit(square, i): i for i in range(10)}
    for future in concurrent.futures.as_completed(futures, timeout=60):
        assert future.result() == futures[future] ** 2
    done, not_done = concurrent.futures.wait(futures)
    assert done == set(futures) and not not_done


def test_the_caller_may_change_arguments_after_submitting(executor: penstock.Executor) -> None:
    numbers = [1, 2]
    future = executor.submit(sum, numbers)
    numbers.append(100)
    assert future.result() == 3
    assert executor.submit(sum, numbers).result() == 103


def test_an_argument_that_cannot_be_pickled_is_an_error(executor: penstock.Executor, mode: str) -> None:
    import threading

    with pytest.raises(TypeError):
        executor.submit(describe, threading.Lock()).result()
    assert executor.submit(square, 2).result() == 4


def test_what_the_function_raises_about_its_arguments_is_in_the_future(executor: penstock.Executor) -> None:
    future = executor.submit(square)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        future.result()


# --- as ProcessPoolExecutor does it -------------------------------------------------------------------------------


class Unpicklable:
    def __reduce__(self) -> Any:
        raise pickle.PicklingError("not this one")


def pass_or_square(x: Any) -> Any:
    return pass_gate(x) if isinstance(x, Gate) else square(x)


def make(kind: Any) -> Any:
    return kind()


def die() -> None:
    os._exit(3)


def leave(status: int) -> None:
    sys.exit(status)


def change(array: Any) -> Any:
    array += 1
    return array


class Counted:
    """Weakly referable, unlike lists."""


def counted(_: int) -> Counted:
    return Counted()


@pytest.mark.parametrize("number", [0, -1])
def test_a_number_of_workers_that_is_none(number: int) -> None:
    with pytest.raises(ValueError, match="max_workers must be greater than 0"):
        penstock.Executor(number)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"max_workers": "2"}, TypeError),
        ({"max_workers": 1.5}, TypeError),
        ({"initializer": 3}, TypeError),
        ({"mp_context": "spawn"}, TypeError),
        ({"max_tasks_per_child": "2"}, TypeError),
        ({"max_tasks_per_child": 0}, ValueError),
        ({"max_tasks_per_child": 2, "mp_context": multiprocessing.get_context("fork")}, ValueError),
        ({"no_such_setting": 2}, penstock.ConfigError),
    ],
)
def test_arguments_that_are_refused_at_once(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        penstock.Executor(**arguments)


def test_a_chunk_size_that_is_none(executor: penstock.Executor) -> None:
    with pytest.raises(ValueError, match="chunksize must be >= 1"):
        executor.map(square, [1], chunksize=0)


@only_workers
def test_contexts_of_multiprocessing_are_taken(mode: str) -> None:
    for method in ("fork", "spawn", "forkserver"):
        with penstock.Executor(1, multiprocessing.get_context(method)) as executor:
            assert executor.submit(square, 3).result() == 9


@only_workers
def test_functions_may_change_their_arguments(mode: str) -> None:
    numpy = pytest.importorskip("numpy")
    with penstock.Executor(1) as executor:
        for size in (3, 100_000):
            array = numpy.zeros(size)
            assert executor.submit(change, array).result().sum() == size
            assert next(executor.map(change, [array], chunksize=2)).sum() == size
            assert array.sum() == 0


def test_methods_get_a_copy_of_their_object(executor: penstock.Executor) -> None:
    adder = Adder(1)
    assert executor.submit(Adder.add, adder, 1).result() == 2
    adder.amount = 5
    assert executor.submit(Adder.add, adder, 1).result() == 6


@only_workers
def test_map_keeps_no_result_that_was_given(mode: str) -> None:
    with penstock.Executor(1) as executor:
        for chunksize in (1, 4):
            for one in executor.map(counted, range(8), chunksize=chunksize):
                seen = weakref.ref(one)
                del one
                gc.collect()
                assert seen() is None


@only_workers
def test_a_map_that_is_given_up_cancels_the_rest(mode: str, gate: Gate) -> None:
    with penstock.Executor(1) as executor:
        results = executor.map(pass_or_square, [2, gate, *range(50)])
        assert next(results) == 4
        results.close()  # type: ignore[attr-defined]
        last = executor.submit(square, 3)
        gate.open()
        assert last.result(60) == 9


@only_workers
def test_what_cannot_be_pickled_is_told_by_the_future(mode: str) -> None:
    with penstock.Executor(1) as executor:
        with pytest.raises(pickle.PicklingError):
            executor.submit(describe, Unpicklable()).result()
        with pytest.raises(pickle.PicklingError):
            executor.submit(make, Unpicklable).result()
        assert executor.submit(square, 2).result() == 4


@only_workers
def test_a_process_that_dies_breaks_the_executor(mode: str) -> None:
    with penstock.Executor(1) as executor:
        with pytest.raises(BrokenProcessPool):
            executor.submit(die).result(60)
        with pytest.raises(BrokenProcessPool):
            executor.submit(square, 2)
        with pytest.raises(BrokenProcessPool):
            executor.map(square, [2])


@only_workers
def test_what_is_pending_breaks_too(mode: str, gate: Gate) -> None:
    executor = penstock.Executor(2)
    running = executor.submit(pass_gate, gate)
    dying = executor.submit(die)
    waiting = [executor.submit(square, i) for i in range(10)]
    for future in (dying, running):
        with pytest.raises(BrokenProcessPool):
            future.result(60)
    concurrent.futures.wait(waiting, 60)
    for future in waiting:  # those that another process was given are done
        error = future.exception(0)
        assert error is None or isinstance(error, BrokenProcessPool)
    executor.shutdown()


@only_workers
def test_an_exit_reaches_whoever_asks(mode: str) -> None:
    with penstock.Executor(1) as executor:
        with pytest.raises(SystemExit) as caught:
            executor.submit(leave, 4).result()
        assert caught.value.code == 4
        assert executor.submit(square, 2).result() == 4
    with penstock.Runtime(cpus=1), pytest.raises(penstock.TaskFailed, match=r"sys\.exit"):
        penstock.task(leave)(4).result()  # who waits for a task need not end with it


@only_workers
def test_an_executor_after_the_program_has_stopped_its_runtime(mode: str) -> None:
    with penstock.Runtime(cpus=1):
        pass
    with penstock.Executor() as executor:
        assert executor.submit(square, 3).result() == 9


@only_workers
def test_the_traceback_of_the_worker_is_told(mode: str) -> None:
    with penstock.Executor(1) as executor:
        error = executor.submit(fail, "lost").exception()
    assert error is not None and "raise LookupError(message)" in str(error.__cause__)


started: list[str] = []


def begin(word: str, _: Any = None) -> None:
    started.append(word)


def begun() -> list[str]:
    return started


def test_an_initializer(mode: str) -> None:
    started.clear()
    if mode == "simulated":
        pytest.skip("no process is set up there")
    with penstock.Executor(**MODES[mode], initializer=begin, initargs=("ready",)) as executor:
        assert [executor.submit(begun).result() for _ in range(5)] == [["ready"]] * 5


@only_workers
def test_an_initializer_that_fails_breaks_the_executor(mode: str) -> None:
    executor = penstock.Executor(1, initializer=fail, initargs=("no database",))
    future = executor.submit(square, 2)
    with pytest.raises(BrokenProcessPool, match="no database"):
        future.result(60)
    with pytest.raises(BrokenProcessPool):
        executor.submit(square, 2)
    executor.shutdown()


@only_workers
def test_an_initializer_that_ends_its_process_breaks_the_executor(mode: str) -> None:
    executor = penstock.Executor(2, initializer=os._exit, initargs=(3,))
    assert isinstance(executor.submit(square, 2).exception(), BrokenProcessPool)
    with pytest.raises(BrokenProcessPool):
        executor.submit(square, 2)
    executor.shutdown()


@only_workers
def test_processes_are_replaced_after_some_calls(mode: str) -> None:
    with penstock.Executor(1, max_tasks_per_child=3) as executor:
        processes = [executor.submit(os.getpid).result() for _ in range(7)]
    assert [processes.count(number) for number in dict.fromkeys(processes)] == [3, 3, 1]


@only_workers
def test_futures_are_true_and_equal_only_to_themselves(mode: str) -> None:
    with penstock.Executor(1) as executor:
        future, other = executor.submit(square, 2), executor.submit(square, 2)
        assert future
        assert future != 4 and future != other and future == future and 4 not in [future]


@only_workers
def test_futures_of_several_executors_are_waited_for_together(mode: str, gate: Gate) -> None:
    with penstock.Executor(1) as executor, concurrent.futures.ThreadPoolExecutor(1) as threads:
        held = executor.submit(pass_gate, gate)
        done, left = concurrent.futures.wait(
            [held, threads.submit(square, 2)], 60, return_when=concurrent.futures.FIRST_COMPLETED
        )
        assert len(done) == 1 and left == {held}
        gate.open()
        assert set(concurrent.futures.as_completed([held, threads.submit(square, 3)], 60)) >= {held}


@only_workers
def test_a_callback_may_shut_the_executor_down(mode: str) -> None:
    executor = penstock.Executor(1)
    told = threading.Event()

    def shut(_: Any) -> None:
        executor.shutdown()
        told.set()

    executor.submit(square, 2).add_done_callback(shut)
    assert told.wait(60)
    executor.shutdown()
