"""A defect of our own, in the control thread or in another: nobody waits for ever for what it would have said."""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import pytest
from tests.patience import eventually

from penstock import PenstockError, Runtime, TaskFailed, barrier, task
from penstock.engine.engine import Engine
from penstock.executors.node import NodeExecutor
from penstock.model.commands import Command
from penstock.model.events import Event, Finished, Submitted


@task(returns=1)
def double(x: int) -> int:
    return 2 * x


@task
def fail_to_call() -> None:
    """The engine fails when it is called."""


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
    with pytest.raises(PenstockError, match="error inside Penstock"), Runtime(cpus=1):
        first, second = double(1), double(2)
        assert first.result(60) == 2, "its end was known, and only not said"
        with pytest.raises(TaskFailed, match="error inside Penstock, RuntimeError: as the test wants it"):
            second.result(60)
        with pytest.raises(PenstockError):
            double(3).result(60)
        left = [process.pid for process in psutil.Process().children(recursive=True)]
        assert left
    eventually(lambda: not any(map(psutil.pid_exists, left)))


def test_who_waits_is_told_of_a_defect_in_the_programs_own_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Engine.handle

    def breaks(engine: Engine, event: Event, now: float) -> list[Command]:
        answer = plain(engine, event, now)
        if type(event) is Submitted and event.call.spec.name == "fail_to_call":
            raise RuntimeError("as the test wants it")
        return answer

    monkeypatch.setattr(Engine, "handle", breaks)
    with pytest.raises(PenstockError, match="error inside Penstock"), Runtime(cpus=1):
        first = double(1)
        with pytest.raises(RuntimeError, match="as the test wants it"):
            fail_to_call()  # the engine has launched it, and nobody will ever carry that out
        with pytest.raises(PenstockError, match="error inside Penstock"):
            barrier()
        with pytest.raises(PenstockError):
            double(first).result(60)
