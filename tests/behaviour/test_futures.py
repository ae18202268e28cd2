"""Futures follow ``concurrent.futures``: what works with the standard library's works with ours, and can be awaited."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from typing import Any

import pytest
from tests.behaviour.modes import Gate, only_workers

import penstock
from penstock import DependencyFailed, Future, TaskCancelled, TaskFailed, task, wait_on

pytestmark = pytest.mark.usefixtures("runtime")


@task(returns=1)
def add(a: int, b: int = 1) -> int:
    return a + b


@task(returns=1)
def fail(message: str) -> Any:
    raise ValueError(message)


@task(returns=1)
def pass_gate(gate: Gate, value: Any = "through") -> Any:
    gate.enter()
    return value


class Odd(Exception):
    """Cannot be pickled by the ordinary rules: its arguments differ from its constructor's."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code


@task(returns=1)
def fail_oddly() -> Any:
    raise Odd(7, "odd")


@task(returns=1)
def process() -> int:
    return os.getpid()


@only_workers
def test_tasks_run_in_other_processes() -> None:
    assert process().result() != os.getpid()


# --- result, exception, done, running, cancelled ------------------------------------------------------------------


def test_a_future_is_one_of_the_standard_library() -> None:
    assert isinstance(add(1), concurrent.futures.Future)


def test_result_waits_and_can_be_asked_again() -> None:
    future = add(1)
    assert future.result() == 2
    assert future.result(timeout=0) == 2
    assert future.done() and not future.running() and not future.cancelled()
    assert future.exception() is None


def test_result_is_the_same_object_each_time() -> None:
    future = task(lambda: [1, 2])()
    assert future.result() is future.result()


@only_workers
def test_result_and_exception_time_out_while_the_task_runs(gate: Gate) -> None:
    future = pass_gate(gate)
    with pytest.raises(TimeoutError):
        future.result(timeout=0.01)
    with pytest.raises(concurrent.futures.TimeoutError):
        future.exception(timeout=0)
    assert not future.done()
    gate.open()
    assert future.result(timeout=60) == "through"


@only_workers
def test_running_is_true_between_start_and_end(gate: Gate, second_gate: Gate) -> None:
    @task(returns=1)
    def pass_both(first: Gate, second: Gate) -> int:
        first.enter()
        second.enter()
        return 1

    future = pass_both(gate, second_gate)
    gate.open()  # the task stands between the gates now
    assert future.running() and not future.done()
    second_gate.open()
    assert future.result() == 1
    assert not future.running() and future.done()


def test_result_raises_what_the_task_raised_with_the_workers_traceback() -> None:
    with pytest.raises(ValueError) as caught:
        fail("wrong").result()
    assert str(caught.value) == "wrong"
    cause = caught.value.__cause__
    assert isinstance(cause, TaskFailed)
    assert "fail" in str(cause) and __file__ in str(cause) and "raise ValueError(message)" in str(cause)


def test_exception_gives_what_the_task_raised() -> None:
    future = fail("wrong")
    error = future.exception()
    assert type(error) is ValueError and error.args == ("wrong",)
    assert future.done()


def test_an_exception_with_a_constructor_of_its_own_keeps_its_type() -> None:
    with pytest.raises(Odd, match="7: odd") as caught:
        fail_oddly().result()
    assert caught.value.code == 7


def test_an_exception_class_local_to_the_test_keeps_its_type() -> None:
    class Mine(Exception):
        pass

    @task(returns=1)
    def raise_mine() -> None:
        raise Mine("it is mine")

    with pytest.raises(Mine, match="it is mine"):
        raise_mine().result()


def test_consumers_of_a_failed_task_name_the_root_and_the_path() -> None:
    root = fail("the root cause")
    middle = add(root)
    end = add(middle)
    with pytest.raises(DependencyFailed) as caught:
        end.result()
    message = str(caught.value)
    assert "the root cause" in message and "fail" in message and "add" in message
    assert isinstance(middle.exception(), DependencyFailed)
    assert isinstance(root.exception(), ValueError)


# --- callbacks ----------------------------------------------------------------------------------------------------


def test_callbacks_are_called_with_the_future_in_order_of_adding() -> None:
    called: list[Any] = []
    both = threading.Event()
    future = add(1)
    future.add_done_callback(lambda done: called.append(("first", done)))
    future.add_done_callback(lambda done: (called.append(("second", done)), both.set()))
    assert both.wait(60)
    assert called == [("first", future), ("second", future)]


def test_a_callback_of_a_future_that_is_done_is_called_at_once() -> None:
    future = add(1)
    future.result()
    called: list[Any] = []
    future.add_done_callback(called.append)
    assert called == [future]


def test_a_callback_that_raises_harms_nobody() -> None:
    event = threading.Event()
    future = add(1)
    future.add_done_callback(lambda done: 1 / 0)
    future.add_done_callback(lambda done: event.set())
    assert event.wait(60)
    assert future.result() == 2
    assert add(2).result() == 3


def test_a_callback_sees_the_result_and_the_exception() -> None:
    seen: list[Any] = []
    done = threading.Semaphore(0)

    def look(future: Any) -> None:
        seen.append(future.exception() or future.result())
        done.release()

    add(1).add_done_callback(look)
    assert done.acquire(timeout=60)
    failing = fail("x")
    failing.add_done_callback(look)
    assert done.acquire(timeout=60)
    assert seen[0] == 2 and isinstance(seen[1], ValueError)


# --- wait and as_completed ----------------------------------------------------------------------------------------

FLAVOURS = pytest.mark.parametrize("library", [penstock, concurrent.futures], ids=["penstock", "standard"])


@FLAVOURS
def test_as_completed_gives_each_future_once(library: Any) -> None:
    futures = [add(i) for i in range(20)]
    found = list(library.as_completed(futures, timeout=60))
    assert sorted(map(id, found)) == sorted(map(id, futures))
    assert sorted(future.result() for future in found) == list(range(1, 21))


@FLAVOURS
@only_workers
def test_as_completed_gives_the_quick_one_first(library: Any, gate: Gate) -> None:
    slow, quick = pass_gate(gate), add(1)
    order = library.as_completed([slow, quick], timeout=60)
    assert next(order) is quick
    gate.open()
    assert next(order) is slow


@FLAVOURS
@only_workers
def test_as_completed_times_out(library: Any, gate: Gate) -> None:
    future = pass_gate(gate)
    with pytest.raises(TimeoutError):
        list(library.as_completed([future], timeout=0.01))
    gate.open()
    future.result()


@FLAVOURS
def test_wait_for_all(library: Any) -> None:
    futures = [add(i) for i in range(5)]
    done, not_done = library.wait(futures, timeout=60)
    assert done == set(futures) and not_done == set()


@FLAVOURS
@only_workers
def test_wait_for_the_first(library: Any, gate: Gate) -> None:
    slow, quick = pass_gate(gate), add(1)
    done, not_done = library.wait([slow, quick], timeout=60, return_when=concurrent.futures.FIRST_COMPLETED)
    assert done == {quick} and not_done == {slow}
    done, not_done = library.wait([slow], timeout=0)
    assert done == set() and not_done == {slow}
    gate.open()
    slow.result()


@FLAVOURS
@only_workers
def test_wait_for_the_first_exception(library: Any, gate: Gate) -> None:
    slow, failing = pass_gate(gate), fail("x")
    done, not_done = library.wait([slow, failing], timeout=60, return_when=concurrent.futures.FIRST_EXCEPTION)
    assert done == {failing} and not_done == {slow}
    gate.open()
    slow.result()
    assert isinstance(failing.exception(), ValueError)


@FLAVOURS
def test_waiting_for_nothing_is_over_at_once(library: Any) -> None:
    assert list(library.as_completed([])) == []
    done, not_done = library.wait([])
    assert not done and not not_done


def test_as_completed_with_failures_gives_them_too() -> None:
    futures = [add(1), fail("x"), add(2)]
    outcomes = [future.exception() for future in penstock.as_completed(futures)]
    assert sum(error is None for error in outcomes) == 2


# --- asyncio ------------------------------------------------------------------------------------------------------


def test_a_future_can_be_awaited() -> None:
    async def main() -> Any:
        return await add(1), await add(2)

    assert asyncio.run(main()) == (2, 3)


def test_await_raises_what_the_task_raised() -> None:
    async def main() -> Any:
        await fail("in a task")

    with pytest.raises(ValueError, match="in a task"):
        asyncio.run(main())


def test_gather_and_wrap_future() -> None:
    async def awaited(future: Any) -> Any:
        return await future

    async def main() -> Any:
        wrapped = [asyncio.wrap_future(add(i)) for i in range(3)]
        return await asyncio.gather(*wrapped, *(awaited(add(i)) for i in range(3)))

    assert asyncio.run(main()) == [1, 2, 3, 1, 2, 3]


@only_workers
def test_awaiting_leaves_the_event_loop_free(gate: Gate) -> None:
    async def main() -> Any:
        slow = asyncio.ensure_future(asyncio.wrap_future(pass_gate(gate)))
        quick = await add(1)
        assert not slow.done()
        await asyncio.get_running_loop().run_in_executor(None, gate.open)
        return quick, await slow

    assert asyncio.run(main()) == (2, "through")


@only_workers
def test_await_with_a_timeout(gate: Gate) -> None:
    async def main() -> None:
        future = pass_gate(gate)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), 0.01)
        gate.open()
        future.result()

    asyncio.run(main())


# --- cancel -------------------------------------------------------------------------------------------------------


@only_workers
def test_cancel_of_a_task_that_waits(gate: Gate) -> None:
    first = pass_gate(gate, 1)
    second = add(first)
    third = add(second)
    assert second.cancel()
    assert second.cancelled() and second.done() and not second.running()
    with pytest.raises(concurrent.futures.CancelledError):
        second.result()
    with pytest.raises(TaskCancelled):
        second.exception()
    with pytest.raises((TaskCancelled, DependencyFailed)):
        third.result()
    gate.open()
    assert first.result() == 1


@only_workers
def test_cancel_as_in_the_standard_library_does_not_touch_a_running_task(gate: Gate, second_gate: Gate) -> None:
    @task(returns=1)
    def pass_both(first: Gate, second: Gate) -> int:
        first.enter()
        second.enter()
        return 1

    future = pass_both(gate, second_gate)
    gate.open()
    assert future.cancel() is False
    second_gate.open()
    assert future.result() == 1 and not future.cancelled()


@only_workers
def test_penstock_cancel_ends_a_running_task(gate: Gate) -> None:
    @task(returns=1)
    def pass_and_hang(gate: Gate) -> None:
        gate.enter()
        threading.Event().wait()

    future = pass_and_hang(gate)
    gate.open()
    assert penstock.cancel(future)
    with pytest.raises(TaskCancelled):
        future.result(timeout=60)
    assert future.cancelled()
    assert add(1).result() == 2


@only_workers
def test_cancel_of_several(gate: Gate) -> None:
    first = pass_gate(gate, 1)
    rest = [add(first) for _ in range(5)]
    assert penstock.cancel(*rest)
    assert all(future.cancelled() for future in rest)
    gate.open()
    assert first.result() == 1


def test_cancel_of_a_finished_task_says_no() -> None:
    future = add(1)
    future.result()
    assert future.cancel() is False
    assert penstock.cancel(future) is False
    assert future.result() == 2 and not future.cancelled()


@only_workers
def test_a_callback_of_a_cancelled_task_is_called(gate: Gate) -> None:
    first = pass_gate(gate, 1)
    second = add(first)
    event = threading.Event()
    second.add_done_callback(lambda future: event.set())
    second.cancel()
    assert event.wait(60)
    gate.open()
    first.result()


# --- the rest -----------------------------------------------------------------------------------------------------


def test_repr_tells_the_state() -> None:
    future, failing = add(1), fail("x")
    future.result()
    failing.exception()
    assert "done" in repr(future) or "finished" in repr(future)
    assert "failed" in repr(failing) or "ValueError" in repr(failing)
    assert repr(future) != repr(failing)


@only_workers
def test_repr_of_a_pending_future_does_not_wait(gate: Gate) -> None:
    future = pass_gate(gate)
    assert "pending" in repr(future) or "running" in repr(future)
    gate.open()
    future.result()


def test_a_future_has_no_truth_value_and_says_what_to_do() -> None:
    future = add(1)
    with pytest.raises(penstock.PenstockError, match="wait_on"):
        bool(future)
    future.result()


def test_a_future_as_a_key() -> None:
    futures = {add(i): i for i in range(5)}
    for future in penstock.as_completed(futures):
        assert future.result() == futures[future] + 1


def test_a_future_waited_for_by_many_threads() -> None:
    future: Future[int] = add(1)
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda _: future.result(60), range(8))) == [2] * 8


def test_tasks_called_by_many_threads() -> None:
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        futures = list(threads.map(add, range(200)))
    assert wait_on(futures) == list(range(1, 201))


def test_objects_updated_by_many_threads() -> None:
    """Each thread has its own objects; the runtime is theirs together."""

    @task(bag=penstock.INOUT)
    def push(bag: list[Any], value: Any) -> None:
        bag.append(value)

    def program(number: int) -> list[Any]:
        bags: list[list[Any]] = [[], []]
        for i in range(20):
            push(bags[i % 2], add(i, number))
            push(bags[0], len(wait_on(bags[1])))
        return list(wait_on(bags))

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        found = [thread.result(timeout=60) for thread in [threads.submit(program, i) for i in range(4)]]
    assert [bags[1] for bags in found] == [[i + number for i in range(1, 20, 2)] for number in range(4)]


def test_concurrent_futures_of_others_are_dependencies_too() -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        theirs = threads.submit(lambda: 41)
        assert wait_on([theirs, add(1)]) == [41, 2]


@FLAVOURS
@only_workers
def test_an_exception_that_is_there_already_ends_the_wait(library: Any, gate: Gate) -> None:
    failing, slow = fail("x"), pass_gate(gate)
    assert isinstance(failing.exception(), ValueError)
    done, not_done = library.wait([slow, failing], timeout=60, return_when=concurrent.futures.FIRST_EXCEPTION)
    assert done == {failing} and not_done == {slow}
    gate.open()
    slow.result()
