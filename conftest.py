"""For all tests: histories that repeat themselves, and what is there before a module's tests begin kept out of the way
of the garbage collector.

A check for leaks collects garbage several times around each test. By then a process holds thousands of collected tests,
their reports and all that was imported, none of which goes away: to look through it each time took longer than most
tests. What a test makes is looked through as ever.
"""

from __future__ import annotations

import gc

import pytest
from hypothesis import settings

# Loaded by `make test`: it says what a change has broken, the same thing each time. Others try new histories each time.
settings.register_profile("repeatable", derandomize=True)


@pytest.fixture(autouse=True, scope="module")
def _what_is_there_stays() -> None:
    gc.collect()
    gc.freeze()
