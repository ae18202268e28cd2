"""Finalisers and signal handlers run anywhere, also in the middle of our own work: a call there is made, or told of."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from tests.behaviour.modes import only_workers

from penstock import PenstockError, barrier, task, wait_on

pytestmark = pytest.mark.usefixtures("runtime")


@task(returns=1)
def same(value: int) -> int:
    return value


class Caller:
    """Calls a task when it is collected, and waits for it."""

    done = 0

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        assert same(1).result() == 1
        Caller.done += 1


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What finalisers raise."""
    raised: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: raised.append(unraisable.exc_value))
    threshold = gc.get_threshold()
    yield raised
    gc.set_threshold(*threshold)


@only_workers
def test_tasks_called_by_finalisers_are_done_or_told_of(told: list[Any]) -> None:
    Caller.done = 0
    same(0).result()
    gc.collect()
    gc.set_threshold(25)  # it collects all the time, wherever objects are made
    results = []
    for number in range(300):
        Caller()
        results.append(same(number))
    assert wait_on(results) == list(range(300))
    gc.set_threshold(700)
    gc.collect()
    barrier()
    assert Caller.done + len(told) == 300 and told
    assert all(isinstance(error, PenstockError) and "finaliser" in str(error) for error in told)


@only_workers
def test_tasks_called_by_signal_handlers_are_done_or_refused_by_that_name() -> None:
    refused: list[PenstockError] = []

    def handle(*_: Any) -> None:
        try:
            assert same(1).result() == 1
        except PenstockError as error:
            refused.append(error)
        else:
            signal.setitimer(signal.ITIMER_REAL, 0.0001)

    before = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0001)
        while not refused:
            assert same(0).result() == 0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert "signal handler" in str(refused[0])
