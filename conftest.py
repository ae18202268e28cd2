"""For all tests: what was collected is kept out of the way of the garbage collector.

A check for leaks collects garbage several times around each test. By then a process holds thousands of collected tests
and their modules, which never go away: to look through them each time took longer than most tests.
"""

from __future__ import annotations

import gc


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
