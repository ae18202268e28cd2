"""For all tests: histories that repeat themselves, test modules that are compiled once, and what is there before a
module's tests begin kept out of the way of the garbage collector.

A check for leaks collects garbage several times around each test. By then a process holds thousands of collected tests,
their reports and all that was imported, none of which goes away: to look through it each time took longer than most
tests. What a test makes is looked through as ever.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Generator

import pytest
from hypothesis import settings

# Loaded by `make test`: it says what a change has broken, the same thing each time. Others try new histories each time.
# Without a deadline: on a busy machine 200 ms pass while a process is not even running.
settings.register_profile("repeatable", derandomize=True, deadline=None)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """pytest keeps the test modules as it has compiled them, also where Python is told to write no bytecode.

    Compiling takes two thirds of the time of a collection. What the tests start is told as ever.
    """
    told, sys.dont_write_bytecode = sys.dont_write_bytecode, False
    try:
        return (yield)
    finally:
        sys.dont_write_bytecode = told


@pytest.fixture(autouse=True, scope="module")
def _what_is_there_stays() -> None:
    gc.collect()
    gc.freeze()
