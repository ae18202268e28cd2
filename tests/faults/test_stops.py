"""A run is stopped while something else happens to it, or fails to start: nothing is left, and all are told why."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.faults.programs import Gate, TaskSide

import penstock
from penstock import RuntimeStopped, task
from penstock.executors import disposable, forkserver, node
from penstock.runtime import session
from penstock.runtime.arguments import Arguments

if TYPE_CHECKING:
    from penstock import Runtime  # workers import this module, and need no engine


@task
def hold(gate: TaskSide) -> None:
    gate.hold()


@task
def total(array: Any) -> float:
    return float(np.sum(array))


def in_a_thread(action: Callable[[], object]) -> tuple[threading.Thread, list[Any]]:
    """Start a thread; it leaves what its action gave, or raised, in the list."""
    outcome: list[Any] = []

    def act() -> None:
        try:
            outcome.append(action())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    return thread, outcome


@pytest.fixture
def _main_program_removes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guardian leaves the directories to the main program."""
    close = forkserver.ForkServer.close
    monkeypatch.setattr(forkserver.ForkServer, "close", lambda self, remove=True: close(self, remove=False))


# --- several threads ----------------------------------------------------------------------------------------------


def test_two_threads_that_stop_a_run_end_it_once(runtime: Runtime, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = []
    stop = runtime.driver.stop
    monkeypatch.setattr(runtime.driver, "stop", lambda show: (ends.append(1), stop(show)))
    hold(gate)
    gate.wait_reached()
    waits = threading.Event()
    wait_until = runtime.driver.wait_until
    monkeypatch.setattr(runtime.driver, "wait_until", lambda reached: (waits.set(), wait_until(reached)))
    thread, outcome = in_a_thread(runtime.stop)
    assert waits.wait(60)
    penstock.stop(abort=True)
    thread.join(60)
    assert isinstance(outcome[0], RuntimeStopped)
    assert ends == [1]


def test_stop_returns_only_when_the_end_that_another_thread_brings_about_is_complete(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go = threading.Event(), threading.Event()
    stop = runtime.driver.stop
    monkeypatch.setattr(runtime.driver, "stop", lambda show: (begun.set(), go.wait(60), stop(show)))
    first, _ = in_a_thread(runtime.stop)
    assert begun.wait(60)
    second, outcome = in_a_thread(lambda: (runtime.stop(), os.path.exists(runtime.directories.memory_dir)))
    second.join(0.1)
    assert second.is_alive()
    go.set()
    second.join(60)
    first.join(60)
    assert outcome == [(None, False)]


def test_a_callback_may_stop_the_run_that_is_being_stopped(runtime: Runtime, gate: Gate) -> None:
    future = hold(gate)
    gate.wait_reached()
    called = []
    future.add_done_callback(lambda done: (penstock.stop(abort=True), called.append(done)))
    penstock.stop(abort=True)
    assert called == [future]


@pytest.mark.parametrize("argument", [np.ones(4), np.ones(100_000)], ids=["small", "large"])
def test_a_call_that_began_before_the_run_was_stopped_is_refused(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, argument: Any
) -> None:
    assert total(np.ones(4)).result() == 4
    packs, go = threading.Event(), threading.Event()
    pack = Arguments.pack
    monkeypatch.setattr(Arguments, "pack", lambda self, *rest: (packs.set(), go.wait(60), pack(self, *rest))[2])
    thread, outcome = in_a_thread(lambda: total(argument))
    assert packs.wait(60)
    penstock.stop()
    go.set()
    thread.join(60)
    assert isinstance(outcome[0], RuntimeStopped), outcome


def test_a_call_that_comes_while_the_last_runtime_goes_starts_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    class Stack(list[penstock.Runtime]):
        def remove(self, runtime: Runtime) -> None:
            super().remove(runtime)
            thread, outcome = in_a_thread(session.current)
            thread.join(0.5)  # it must wait for the end of this very step
            calls.append((thread, outcome))

    monkeypatch.setattr(session, "_stack", Stack())
    monkeypatch.setattr(session, "_was_stopped", False)
    penstock.start(cpus=1)
    penstock.stop()
    ((thread, outcome),) = calls
    thread.join(60)
    assert isinstance(outcome[0], RuntimeStopped), outcome


# --- files that appear while directories are removed -----------------------------------------------------------------


@pytest.mark.usefixtures("_main_program_removes")
def test_a_file_that_appears_while_its_directory_is_removed_is_removed_too(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = Path(runtime.directories.memory_dir)
    late: list[Path] = []
    rmdir = os.rmdir

    def rmdir_after_a_file(path: Any, **options: Any) -> None:
        if not late and os.path.basename(os.fsdecode(path)) == memory.name:
            late.append(memory / "s1")
            late[0].touch()
        rmdir(path, **options)

    monkeypatch.setattr(os, "rmdir", rmdir_after_a_file)
    penstock.stop()
    assert late and not memory.exists()


def test_links_that_another_process_removes_meanwhile_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "penstock-1"
    run.mkdir()
    beside = tmp_path / ".penstock-1-file"
    beside.mkdir()
    (run / "a").symlink_to(beside)
    (run / "b").symlink_to(beside)
    readlink = os.readlink

    def readlink_of_one(path: Any) -> Any:
        if os.path.basename(path) == b"a":
            raise FileNotFoundError(path)
        return readlink(path)

    monkeypatch.setattr(os, "readlink", readlink_of_one)
    disposable.remove_directories([os.fsencode(run)])
    assert list(tmp_path.iterdir()) == []


# --- starts and ends that fail half-way -----------------------------------------------------------------------------


@pytest.fixture
def _no_fork_server(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(node, "ForkServer", refuse)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where runs make their temporary directories; nothing may be left there."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    yield tmp_path
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("temporary")
def test_a_start_that_cannot_make_its_directories_leaves_none() -> None:
    with pytest.raises(penstock.ConfigError, match="spill_dir: cannot"):
        penstock.start(cpus=1, spill_dir="/proc")


@pytest.mark.parametrize("mode", ["parallel", "inline"])
def test_a_spill_dir_that_does_not_exist_is_refused_and_not_made(temporary: Path, mode: str) -> None:
    with pytest.raises(penstock.ConfigError, match=f"spill_dir: there is no directory {temporary}/none; make it"):
        penstock.start(cpus=1, mode=mode, spill_dir=temporary / "none")


def test_a_spill_dir_that_is_the_run_dir_is_made_with_it(tmp_path: Path) -> None:
    with penstock.Runtime(cpus=1, run_dir=tmp_path / "run", spill_dir=tmp_path / "run", keep_run_dir="never"):
        assert (tmp_path / "run").is_dir()
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("temporary", "_no_fork_server")
def test_a_start_without_a_fork_server_leaves_nothing() -> None:
    with pytest.raises(BlockingIOError, match="no more processes"):
        penstock.start(cpus=1)


@pytest.mark.usefixtures("temporary")
def test_a_start_that_an_observer_breaks_off_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(runtime: Runtime) -> None:
        raise LookupError("not today")

    monkeypatch.setattr(session, "on_start", [refuse])
    with pytest.raises(LookupError, match="not today"):
        penstock.start(cpus=1)
    assert session.running() is None


@pytest.mark.one_in(2)
@pytest.mark.usefixtures("temporary", "_main_program_removes")
@pytest.mark.parametrize("step", ["keep", "draining", "driver", "save", "log"])
def test_an_end_that_fails_at_one_step_takes_the_others(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = penstock.start(cpus=1)
    future = total(np.ones(4))
    future.result()

    def refuse(*_: object, **__: object) -> None:
        raise LookupError("at this step")

    if step == "keep":
        monkeypatch.setattr(runtime, "stored", [type("Keeper", (), {"keep": refuse})()])
    elif step == "driver":
        monkeypatch.setattr(runtime.driver, "_drain", refuse)
    else:
        part = {"draining": runtime._recorder, "save": runtime.tuning, "log": runtime.log}[step]
        monkeypatch.setattr(part, {"log": "append"}.get(step, step), refuse)
    with pytest.raises(LookupError, match="at this step"):
        penstock.stop()
    assert session.running() is None


@pytest.mark.usefixtures("temporary")
def test_an_interrupt_while_the_end_waits_for_a_callback_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = penstock.start(cpus=1)
    control = runtime.driver._thread
    assert control is not None
    join = control.join

    def interrupted(timeout: float | None = None) -> None:
        join()
        raise KeyboardInterrupt

    monkeypatch.setattr(control, "join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        penstock.stop()
