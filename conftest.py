"""For all tests: what is there before a module's tests begin is kept out of the way of the garbage collector.

A check for leaks collects garbage several times around each test. By then a process holds thousands of collected tests,
their reports and all that was imported, none of which goes away: to look through it each time took longer than most
tests. What a test makes is looked through as ever.
"""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(autouse=True, scope="module")
def _what_is_there_stays() -> None:
    gc.collect()
    gc.freeze()
