"""A deadline that comes up just when the control thread goes to sleep."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import penstock
from penstock import TaskTimeout, task


class Between:
    """The lock of a driver; once, ``act`` is done right after the control thread let go of it to fall asleep."""

    def __init__(self, lock: Any, act: Any) -> None:
        self._lock, self._act = lock, act
        self.asked = False
        self.done = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lock, name)

    def __enter__(self) -> None:
        self._lock.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._lock.__exit__(*error)
        if self.asked and self._act is not None and threading.current_thread().name == "penstock-control":
            act, self._act = self._act, None
            act()
            self.done.set()


def test_a_deadline_that_comes_as_the_control_thread_falls_asleep_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    @task(timeout=0.2, retries=0)
    def late() -> None:
        time.sleep(30)

    futures: list[Any] = []
    with penstock.Runtime(cpus=1) as runtime:
        driver: Any = runtime.driver
        between = Between(driver.lock, lambda: futures.append(late()))
        task(abs)(1).result()  # the worker is there, and has nothing more to say

        def asked(now: float) -> None:
            between.asked = True  # and nothing else is due

        monkeypatch.setattr(driver, "lock", between)
        monkeypatch.setattr(driver.executor, "end_idle", asked)
        driver.wake()
        assert between.done.wait(60)
        with pytest.raises(TaskTimeout):
            futures[0].result(timeout=60)
