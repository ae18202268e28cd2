"""Processes of the I/O pool end in the middle of a write: what their attempts held comes back, what they left goes.

Each attempt that ends holds all the bandwidth of the only layer, and all its room: if anything of that were lost, the
task that waits behind it would wait for ever.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.faults import storage_tasks as tasks
from tests.faults.layers import assert_given_back, assert_home, layer, names_in, remains, start
from tests.faults.programs import Gate, Tally
from tests.patience import eventually

import penstock
from penstock.errors import TaskCancelled, TaskTimeout, WorkerDied
from penstock.executors import mover
from penstock.runtime import housekeeping


@pytest.fixture(autouse=True)
def _ended_at_once() -> Iterator[None]:
    """What a failed test left waiting must not hold up the next."""
    yield
    penstock.stop(abort=True)


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    return tmp_path / "disk"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    return home


@pytest.fixture
def runtime(disk: Path) -> penstock.Runtime:
    """One layer, with room for one task at a time, and one I/O executor."""
    return start(layer("disk", disk, capacity="12MB"), io_executors=1)


def finished_run(runtime: penstock.Runtime, disk: Path, home: Path, *names: str) -> None:
    """Everything was given back; after the run the layer is empty, and only these files are at home."""
    penstock.barrier()
    assert_given_back(runtime)
    # Of what the run works with, only its lock is there.
    assert {Path(path).name for path in remains(disk) if "/work/" in path} <= {"owner"}
    penstock.stop()
    assert remains(disk) == []
    assert names_in(home) == sorted(names)


# --- one attempt ends ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", tasks.ENDS)
def test_attempt_whose_process_ended_is_repeated_and_the_next_task_runs(
    runtime: penstock.Runtime, disk: Path, home: Path, tally: Tally, end: str
) -> None:
    tasks.end_once(home / "first", 1, end, tally)
    second = tasks.write_alone(home / "second", 2)
    second.result(timeout=60)
    finished_run(runtime, disk, home, "first", "second")
    assert tally.count() == 2
    assert_home(home / "first", 1)
    assert_home(home / "second", 2)


@pytest.mark.parametrize("end", tasks.ENDS)
def test_task_whose_every_process_ends_leaves_the_old_file_and_nothing_else(
    runtime: penstock.Runtime, disk: Path, home: Path, tally: Tally, end: str
) -> None:
    (home / "first").write_text("old")
    failing = tasks.end_always(home / "first", 1, end, tally)
    second = tasks.write_alone(home / "second", 2)
    with pytest.raises(WorkerDied, match="end_always"):
        failing.result(timeout=60)
    second.result(timeout=60)
    finished_run(runtime, disk, home, "first", "second")
    assert tally.count() == 3
    assert (home / "first").read_text() == "old"
    assert_home(home / "second", 2)


def test_kill_from_outside_in_the_middle_of_a_write(
    runtime: penstock.Runtime, disk: Path, home: Path, tmp_path: Path, gate: Gate
) -> None:
    notes = tmp_path / "notes"
    first = tasks.hold_half(home / "first", 1, str(notes), gate)
    second = tasks.write_alone(home / "second", 2)
    gate.wait_reached()
    assert [path for path in remains(disk) if path.endswith("/first")]  # half of it is there
    assert not (home / "first").exists()
    os.kill(int(notes.read_text()), signal.SIGKILL)
    first.result(timeout=60)
    second.result(timeout=60)
    finished_run(runtime, disk, home, "first", "second")
    assert_home(home / "first", 1)


def test_kill_of_the_fork_server_in_the_middle_of_a_write(
    runtime: penstock.Runtime, disk: Path, home: Path, tmp_path: Path, gate: Gate
) -> None:
    notes = tmp_path / "notes"
    first = tasks.hold_half(home / "first", 1, str(notes), gate)
    second = tasks.write_alone(home / "second", 2)
    gate.wait_reached()
    parent = psutil.Process(int(notes.read_text())).parent()
    assert parent is not None and parent.pid != os.getpid()
    parent.kill()
    first.result(timeout=60)
    second.result(timeout=60)
    finished_run(runtime, disk, home, "first", "second")
    assert_home(home / "first", 1)


def test_timeout_in_the_middle_of_a_write(runtime: penstock.Runtime, disk: Path, home: Path) -> None:
    first = tasks.take_too_long(home / "first", 1)
    second = tasks.write_alone(home / "second", 2)
    with pytest.raises(TaskTimeout):
        first.result(timeout=60)
    second.result(timeout=60)
    finished_run(runtime, disk, home, "second")


def test_cancel_in_the_middle_of_a_write(
    runtime: penstock.Runtime, disk: Path, home: Path, tmp_path: Path, gate: Gate
) -> None:
    first = tasks.hold_half(home / "first", 1, str(tmp_path / "notes"), gate)
    second = tasks.write_alone(home / "second", 2)
    gate.wait_reached()
    assert penstock.cancel(first)
    with pytest.raises(TaskCancelled):
        first.result(timeout=60)
    second.result(timeout=60)
    finished_run(runtime, disk, home, "second")


def test_many_deaths_among_many_writes(disk: Path, home: Path, tmp_path: Path) -> None:
    runtime = start(layer("disk", disk, capacity="35MB"), io_executors=3)
    tallies = [Tally(tmp_path / f"tally-{number}") for number in range(12)]
    for number, tally in enumerate(tallies):
        if number % 3:
            tasks.write(home / f"{number}", number)
        else:
            tasks.end_once(home / f"{number}", number, "killed", tally)
    finished_run(runtime, disk, home, *map(str, range(12)))
    assert [tally.count() for tally in tallies] == [2, 0, 0] * 4
    for number in range(12):
        assert_home(home / f"{number}", number)


# --- between the file and the word that it is there ---------------------------------------------------------------


@pytest.mark.parametrize("moves", ["1", "2"])
def test_process_killed_when_files_were_complete_but_nobody_told(
    disk: Path, home: Path, monkeypatch: pytest.MonkeyPatch, moves: str
) -> None:
    monkeypatch.setenv(tasks.DEADLY_MOVE, moves)
    runtime = start(layer("disk", disk), io_executors=1)
    with pytest.raises(WorkerDied):
        tasks.write_two(home / "first", home / "second", 1).result(timeout=60)
    finished_run(runtime, disk, home)


def test_remains_of_a_dead_attempt_are_not_those_of_the_next(
    disk: Path, home: Path, tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Remains are removed after whatever else there is to do, and the next attempt may be quicker than that."""
    naming, goes_on, link = threading.Event(), threading.Event(), mover.link

    def slow_link(source: str, name: str) -> None:
        naming.set()
        assert goes_on.wait(60)
        link(source, name)

    monkeypatch.setattr(housekeeping, "link", slow_link)
    runtime = start(layer("disk", disk), io_executors=2)
    tasks.write(home / "first", 1)
    assert naming.wait(60)
    tasks.end_once(home / "second", 2, "killed", tally)
    eventually(lambda: not runtime.driver.engine.unfinished)
    goes_on.set()
    finished_run(runtime, disk, home, "first", "second")
    assert tally.count() == 2
    assert_home(home / "second", 2)


@pytest.mark.parametrize("mode", ["parallel", "inline"])
def test_task_that_makes_one_of_two_files_leaves_none(disk: Path, home: Path, mode: str) -> None:
    runtime = start(layer("disk", disk), mode=mode)
    with pytest.raises(penstock.TaskError, match="did not create .*second"):
        tasks.write_one_of_two(home / "first", home / "second", 1).result(timeout=60)
    finished_run(runtime, disk, home)


# --- while a constraint is learned --------------------------------------------------------------------------------

TUNERS = pytest.mark.parametrize("tuner", ["adaptive", "published"])


@pytest.mark.parametrize("deaths", [1, 4])
def test_epoch_closes_though_processes_of_its_tasks_end(disk: Path, home: Path, tally: Tally, deaths: int) -> None:
    runtime = start(layer("disk", disk), io_executors=4, tuner="published")
    learn = tasks.learn.with_options(retries=deaths)  # all of them may meet the same task
    futures = [learn(home / f"{number}", number, deaths, tally) for number in range(12)]
    penstock.wait(futures, timeout=60)
    penstock.barrier()
    tuners = list(runtime.driver.engine.state.tuners.values())
    finished_run(runtime, disk, home, *map(str, range(12)))
    assert tally.count() == 12 + deaths
    assert len(tuners) == 1
    # 10, 20, 40, 80 MB/s of 100, and at most four at a time: only tasks that succeeded count.
    assert [epoch.tasks for epoch in tuners[0].learner.epochs] == [4, 4, 2, 1]
    assert not tuners[0].learning
    for number in range(12):
        assert_home(home / f"{number}", number)


@TUNERS
def test_learning_function_whose_every_process_ends_makes_way_for_others(
    disk: Path, home: Path, tally: Tally, tuner: str
) -> None:
    runtime = start(layer("disk", disk), io_executors=2, tuner=tuner)
    failing = [tasks.learn(home / f"{number}", number, 1000, tally) for number in range(2)]
    others = [tasks.write_alone(home / f"other-{number}", number) for number in range(2)]
    for future in failing:
        with pytest.raises(WorkerDied):
            future.result(timeout=60)
    penstock.wait(others, timeout=60)
    finished_run(runtime, disk, home, "other-0", "other-1")


@TUNERS
def test_cancelled_instances_do_not_keep_an_epoch_open(disk: Path, home: Path, tally: Tally, tuner: str) -> None:
    runtime = start(layer("disk", disk), io_executors=4, tuner=tuner)
    futures = [tasks.learn(home / f"{number}", number, 0, tally) for number in range(6)]
    penstock.cancel(*futures[2:])
    other = tasks.write_alone(home / "other", 7)
    other.result(timeout=60)
    penstock.wait(futures, timeout=60)
    penstock.barrier()
    assert_given_back(runtime)
    done = [number for number, future in enumerate(futures) if not future.cancelled() and not future.exception()]
    finished_run(runtime, disk, home, "other", *map(str, done))
