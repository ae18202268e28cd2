"""A signal that does not wake the thread that waits is noticed all the same.

Such a signal comes between the last look of the main thread and its wait. A test cannot hit that moment, but there is
a signal that is as silent at any moment: one that another thread takes.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, FIRST_EXCEPTION
from pathlib import Path
from typing import Any

import pytest
from tests.faults.programs import Gate

import penstock
from penstock import INOUT, task, wait_on


class Noticed(Exception):
    """The handler was called."""


@task(returns=1)
def held(gate: Any) -> int:
    gate.hold()
    return 1


@task(series=INOUT)
def extend(series: list[int], gate: Any) -> None:
    gate.hold()
    series.append(1)


@task(part=INOUT)
def change(part: Any, gate: Any) -> None:
    gate.hold()


@task(returns=...)
def numbers(gate: Any) -> Iterator[int]:
    gate.hold()
    yield 1


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    gate = Gate(tmp_path)
    yield gate
    gate.close()


@pytest.fixture
def running() -> Iterator[penstock.Runtime]:
    with penstock.Runtime(cpus=1) as runtime:
        yield runtime


@pytest.fixture
def silently(gate: Gate) -> Iterator[Callable[[Callable[[], Any]], None]]:
    """Check that a wait is ended by a signal that another thread takes while the task is held."""
    waits = threading.Event()

    def notice(number: int, frame: Any) -> None:
        raise Noticed

    def send() -> None:
        gate.wait_reached()
        waits.wait()
        # Mostly the main thread is in its wait by then. If not, it notices before that, which is as good.
        threading.Event().wait(0.3)
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    def check(wait: Callable[[], Any]) -> None:
        sender = threading.Thread(target=send)
        sender.start()
        with pytest.raises(Noticed):
            waits.set()
            wait()
            signal.pause()  # it ended without us: the test fails by its patience
        sender.join()

    before = signal.signal(signal.SIGUSR1, notice)
    yield check
    signal.signal(signal.SIGUSR1, before)


WAITS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "result": (held, lambda future: future.result()),
    "exception": (held, lambda future: future.exception()),
    "wait_on": (held, wait_on),
    "barrier": (held, lambda future: penstock.barrier()),
    "as_completed": (held, lambda future: list(penstock.as_completed([future]))),
    "wait": (held, lambda future: penstock.wait([future])),
    "the first to be done": (held, lambda future: penstock.wait([future], return_when=FIRST_COMPLETED)),
    "the first to fail": (held, lambda future: penstock.wait([future], return_when=FIRST_EXCEPTION)),
    "results": (lambda gate: held.map([gate]), lambda calls: calls.results()),
    "next of a stream": (numbers, lambda stream: next(iter(stream))),
    "end of a stream": (numbers, wait_on),
}


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", WAITS)
def test_waiting_for_a_task(running: penstock.Runtime, gate: Gate, silently: Any, name: str) -> None:
    call, wait = WAITS[name]
    awaited = call(gate)
    silently(lambda: wait(awaited))
    gate.release()


def test_waiting_for_an_object(running: penstock.Runtime, gate: Gate, silently: Any) -> None:
    series: list[int] = []
    extend(series, gate)
    silently(lambda: wait_on(series))
    gate.release()
    assert wait_on(series) == [1]


def test_waiting_for_a_part_of_memory(running: penstock.Runtime, gate: Gate, silently: Any) -> None:
    memory = bytearray(4)
    change(memoryview(memory)[:2], gate)
    silently(lambda: wait_on(memory))
    gate.release()


def test_waiting_for_the_end_of_a_run(gate: Gate, silently: Any) -> None:
    runtime = penstock.Runtime(cpus=1)
    with runtime:
        future = held(gate)
        silently(runtime.stop)
        gate.release()
    assert future.done()


def test_waiting_for_the_end_of_an_executor(gate: Gate, silently: Any) -> None:
    executor = penstock.Executor(max_workers=1)
    executor.submit(type(gate).hold, gate)
    silently(executor.shutdown)
    gate.release()
    executor.shutdown()
