"""Threads that the body of a task starts are inside the task: tasks that they call run on the spot."""

from __future__ import annotations

import asyncio
import io
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.behaviour.modes import Gate

import penstock
from penstock import INOUT, ready_value, task, wait_on

pytestmark = pytest.mark.usefixtures("runtime")

only_inline = pytest.mark.parametrize("mode", ["inline"], indirect=True)

#: seconds after which a thread is taken to wait for ever
_LIMIT = 60


@task(returns=1)
def square(number: int) -> int:
    return number * number


def in_thread(body: Callable[[], Any]) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(body()), daemon=True)
    thread.start()
    thread.join(_LIMIT)
    if thread.is_alive():
        raise TimeoutError("the thread waits for ever")
    return found[0]


@task(returns=1)
def by_thread(number: int) -> Any:
    return in_thread(lambda: wait_on(square(number)))


@task(returns=1)
def by_thread_of_thread(number: int) -> Any:
    return in_thread(lambda: in_thread(lambda: square(number).result()))


@task(returns=1)
def by_pool(number: int) -> Any:
    pool = ThreadPoolExecutor(2)
    try:
        futures = [pool.submit(lambda: wait_on(square(number))) for _ in range(4)]
        return {future.result(_LIMIT) for future in futures}.pop()
    finally:
        pool.shutdown(wait=False)


@task(returns=1)
async def by_event_loop(number: int) -> Any:
    return await asyncio.wait_for(asyncio.to_thread(lambda: wait_on(square(number))), _LIMIT)


@pytest.mark.parametrize("caller", [by_thread, by_thread_of_thread, by_pool, by_event_loop])
def test_a_body_waits_for_its_thread_which_waits_for_a_task(caller: Any) -> None:
    assert wait_on(caller(3)) == 9
    assert wait_on(square(4)) == 16


def test_a_thread_of_a_body_hands_over_outputs() -> None:
    @task(returns=...)
    def numbers() -> None:
        in_thread(lambda: ready_value(1))
        ready_value(2)

    assert wait_on(numbers()) == [1, 2]


@task(returns=1, total=INOUT)
def add(total: list[int], number: int) -> int:
    total[0] += number
    return total[0]


class _Program:
    """A pool whose threads start with their first jobs."""

    pool: ThreadPoolExecutor


@task(returns=1)
def by_pool_of_program(number: int) -> Any:
    return _Program.pool.submit(lambda: wait_on(square(number))).result(_LIMIT)


@only_inline
def test_a_thread_that_outlives_its_body_is_the_programs_own() -> None:
    """Its calls are ordered with those of the program, and see what these have written."""
    with ThreadPoolExecutor(1) as _Program.pool:
        assert wait_on(by_pool_of_program(2)) == 4
        total = [0]
        add(total, 1)
        later = _Program.pool.submit(lambda: add(total, 10)).result(_LIMIT)
        assert isinstance(later, penstock.Future)
        assert wait_on(total) == [11]


@task(returns=1)
def between(gate: Gate, second: Gate) -> str:
    gate.enter()
    second.enter()
    return "over"


@only_inline
def test_other_threads_of_the_program_are_not_inside_a_body_that_happens_to_run(gate: Gate, second_gate: Gate) -> None:
    found: list[Any] = []
    busy = threading.Thread(target=lambda: wait_on(between(gate, second_gate)))
    busy.start()
    gate.open()
    other = threading.Thread(target=lambda: found.append(square(3)))
    other.start()
    second_gate.open()
    busy.join(_LIMIT)
    other.join(_LIMIT)
    assert isinstance(found[0], penstock.Future) and found[0].result() == 9


class _Heard(io.StringIO):
    """Standard error that says when something was written."""

    def __init__(self) -> None:
        super().__init__()
        self.something = threading.Event()

    def write(self, text: str) -> int:
        written = super().write(text)
        self.something.set()
        return written


def test_a_thread_that_waits_long_for_its_turn_says_so(
    gate: Gate, second_gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = _Heard()
    with penstock.Runtime(mode="inline", stall=0.01):
        busy = threading.Thread(target=lambda: wait_on(between(gate, second_gate)))
        monkeypatch.setattr(sys, "stderr", heard)
        busy.start()
        gate.open()
        other = threading.Thread(target=lambda: square(3), name="other")
        other.start()
        assert heard.something.wait(_LIMIT)
        second_gate.open()
        busy.join(_LIMIT)
        other.join(_LIMIT)
    assert "a call in thread other has waited 10 ms for task between#" in heard.getvalue()


def test_starting_threads_is_as_it_was_after_the_run() -> None:
    before = threading.Thread.start
    with penstock.Runtime(mode="inline"), penstock.Runtime(mode="inline"):
        pass
    assert threading.Thread.start is before
