"""When virtual time may pass for a program of several threads."""

from __future__ import annotations

import itertools
import threading
import time
from types import SimpleNamespace

import pytest

from penstock.runtime import simulated_threads
from penstock.runtime.simulated_threads import ProgramThreads


def test_a_machine_that_stands_still_does_not_let_time_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread still calls something at each look, and each look takes a second."""
    stalling = SimpleNamespace(
        monotonic=itertools.count().__next__, sleep=time.sleep, process_time=lambda: 0.0, perf_counter=time.perf_counter
    )
    monkeypatch.setattr(simulated_threads, "time", stalling)
    calls, over = itertools.count(), threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    try:
        assert ProgramThreads(lambda: min(next(calls), 30)).settle_down()[0] == 30
    finally:
        over.set()
        other.join()


def test_a_thread_that_never_rests_does_not_keep_time_from_passing() -> None:
    calls, over = itertools.count(), threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    try:
        ProgramThreads(lambda: next(calls)).settle_down()
    finally:
        over.set()
        other.join()
