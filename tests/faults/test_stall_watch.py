"""A run that stands still says why: on standard error and in its log, again and again, and never without a reason."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.behaviour.modes import Gate
from tests.faults import programs
from tests.faults.layers import layer, start
from tests.patience import eventually
from tests.unit.engine_rig import BOOM, Rig, call, spec

import penstock
from penstock import FILE_OUT, constraint, io, task
from penstock.executors.forkserver import Exited, ForkServer
from penstock.executors.node import NodeExecutor
from penstock.model.events import Provided, Warmed
from penstock.model.tasks import OnFailure
from penstock.model.waits import DATA, PAUSE, UNITS, Wait

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(autouse=True)
def _ended_at_once() -> Iterator[None]:
    """What a failed test left waiting must not hold up the next."""
    yield
    penstock.stop(abort=True)


@constraint(storage_bw="auto")
@io
@task(path=FILE_OUT)
def save(path: str | Path) -> None:
    Path(path).write_bytes(bytes(1000))


def test_tasks_that_wait_for_workers_which_never_start_are_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(NodeExecutor, "warm", lambda executor, executors: asked.append(executors))
    disk = layer("disk", tmp_path / "disk", bandwidth="40MB/s")
    runtime = start(disk, cpus=1, io_executors=4, stall=0.05, run_dir=tmp_path / "run", tuner="published")
    for number in range(8):
        save(tmp_path / "disk" / str(number))
    said: list[str] = []

    def is_said_twice() -> bool:
        said.extend(line for line in capfd.readouterr().err.splitlines() if "nothing has moved" in line)
        return len(said) >= 2

    eventually(is_said_twice)
    assert asked and len(said) >= 2
    assert "8 save wait for a learning phase on disk (which waits for I/O workers of" in said[0]
    runtime.driver.post(Warmed(runtime.machine.hostname))
    penstock.barrier()
    penstock.stop()
    lines = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    stuck = [line for line in lines if "stuck" in line.values()]
    assert len(stuck) >= 2
    assert stuck[0]["waiting"][0][:3] == ["save", 8, "a learning phase on disk"]
    assert stuck[1]["seconds"] >= 2 * 0.05


def test_workers_whose_setup_does_not_end_are_explained(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    gate = Gate(tmp_path / "gate")
    with penstock.Runtime(cpus=1, stall=0.05, setup=gate.enter):
        future = nap(0)
        said: list[str] = []

        def is_said() -> bool:
            said.extend(line for line in capfd.readouterr().err.splitlines() if "nothing has moved" in line)
            return bool(said)

        try:
            eventually(is_said)
        finally:
            gate.release_everybody()
        assert "1 nap waits for a worker process to start" in said[0]
        future.result()


@task
def held(gate: Any) -> None:
    gate.hold()


@pytest.mark.parametrize("end", ["killed", "cancelled"])
def test_a_worker_whose_end_the_fork_server_does_not_tell_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], end: str
) -> None:
    """As when the fork server is stopped; a test that stopped it would depend on nobody else continuing it."""
    real = ForkServer.notices
    monkeypatch.setattr(
        ForkServer, "notices", lambda server: [one for one in real(server) if not isinstance(one, Exited)]
    )
    gate = programs.Gate(tmp_path)
    with contextlib.closing(gate):
        runtime = penstock.start(cpus=2, stall=0.05)
        executor: Any = runtime.driver.executor
        futures = [held(gate), held(gate)]  # one goes on: to the engine, tasks run
        gate.wait_reached(2)
        eventually(lambda: all(seat.active.pid for seat in executor._seats[:2]))
        capfd.readouterr()
        if end == "killed":
            os.kill(executor._seats[0].active.pid, signal.SIGKILL)
        else:
            penstock.cancel(futures[0])
        said: list[str] = []

        def is_said_twice() -> bool:
            said.extend(line for line in capfd.readouterr().err.splitlines() if "nobody has told" in line)
            return len(said) >= 2

        eventually(is_said_twice)
        assert "1 held waits for the fork server to say that a worker process has ended" in said[0]
        assert f"kill -CONT {executor._forkserver.pid}" in said[0]
        penstock.stop(abort=True)


@task
def nap(seconds: float) -> None:
    import time

    time.sleep(seconds)


@task(retries=1, retry_delay=0.5)
def fails_once(path: str) -> None:
    if not Path(path).exists():
        Path(path).touch()
        raise ValueError("not yet")


def test_tasks_that_run_or_pause_and_idle_programs_are_no_stall(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with penstock.Runtime(cpus=1, stall=0.05):
        nap(0).result()
        capfd.readouterr()  # that the worker had yet to start
        nap(0.4)
        nap(0.2)
        penstock.barrier()
        nap.__wrapped__(0.2)  # the program itself
        fails_once(str(tmp_path / "tried")).result()
    assert "nothing has moved" not in capfd.readouterr().err


# --- the reasons ------------------------------------------------------------------------------------------------------


def test_the_reasons_name_who_holds_what_is_waited_for() -> None:
    rig = Rig(lanes=1)
    rig.submit(call(1, spec("runs")), call(2, spec("ready")), call(3, spec("ready")))
    rig.submit(call(4, spec("needs"), slots=(102,)))
    assert rig.engine.waits() == [
        Wait("ready", 2, UNITS, "held by runs × 1"),
        Wait("needs", 1, DATA, "made by ready"),
    ]


def test_pauses_and_promises_are_reasons_too() -> None:
    rig = Rig(lanes=1)
    rig.submit(call(1, spec("tried", on_failure=OnFailure.RETRY, retries=1, retry_delay=9.0)))
    rig.fail(1, BOOM)
    rig.tell(Provided(500, None))
    rig.submit(call(2, spec("needs"), slots=(500,)))
    assert {wait.function: wait.reason for wait in rig.engine.waits()} == {
        "tried": PAUSE,
        "needs": "data that the program has promised",
    }
    assert [wait.words for wait in rig.engine.waits()][1] == "1 needs waits for data that the program has promised"
