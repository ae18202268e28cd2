"""A defect of our own that ends the control thread: nobody waits for ever for what it would have said."""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import pytest
from tests.patience import eventually

from penstock import PenstockError, Runtime, TaskFailed, task
from penstock.executors.node import NodeExecutor
from penstock.model.events import Event, Finished


@task(returns=1)
def double(x: int) -> int:
    return 2 * x


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_who_waits_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = NodeExecutor.collect

    def breaks(executor: NodeExecutor, ready: list[tuple[int, int]]) -> Iterator[Event]:
        for event in plain(executor, ready):
            yield event
            if type(event) is Finished:
                raise RuntimeError("as the test wants it")

    monkeypatch.setattr(NodeExecutor, "glance", lambda _: [])  # not in the thread that waits
    monkeypatch.setattr(NodeExecutor, "collect", breaks)
    left: list[int] = []
    with pytest.raises(PenstockError, match="a thread of Penstock ended"), Runtime(cpus=1):
        first, second = double(1), double(2)
        assert first.result(60) == 2, "its end was known, and only not said"
        with pytest.raises(TaskFailed, match="a thread of Penstock ended with RuntimeError: as the test wants it"):
            second.result(60)
        with pytest.raises(PenstockError):
            double(3).result(60)
        left = [process.pid for process in psutil.Process().children(recursive=True)]
        assert left
    eventually(lambda: not any(map(psutil.pid_exists, left)))
