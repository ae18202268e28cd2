"""``@io``: tasks that need no computing unit, run in a pool of their own, and overlap with those that compute."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.behaviour.conftest import Script
from tests.behaviour.modes import Gate, only_workers
from tests.behaviour.storage_programs import LITTLE, Turnstile, double, layer, noop_io, pass_through, run
from tests.patience import becomes

import penstock
from penstock import (
    FILE_IN,
    FILE_OUT,
    INOUT,
    IO,
    ConfigError,
    ConstraintError,
    DefinitionError,
    barrier,
    constraint,
    io,
    task,
    wait_on,
)

passing = io(task(returns=1)(pass_through))
computing = task(returns=1)(pass_through)


@io
@task
def fail() -> None:
    raise ValueError("the disk is upside down")


@io
@task(returns=1)
def pid() -> int:
    return os.getpid()


@task
def stand_at(gate: Gate) -> None:
    gate.enter()


# --- spellings ----------------------------------------------------------------------------------------------------


def no_brackets(function: Callable[..., Any]) -> Any:
    @io
    @task(returns=1)
    def decorated(x: int) -> Any:
        return function(x)

    return decorated


def brackets(function: Callable[..., Any]) -> Any:
    @io()
    @task(returns=1)
    def decorated(x: int) -> Any:
        return function(x)

    return decorated


def capitals(function: Callable[..., Any]) -> Any:
    @IO()
    @task(returns=1)
    def decorated(x: int) -> Any:
        return function(x)

    return decorated


def below_a_constraint(function: Callable[..., Any]) -> Any:
    @constraint(storageBW=0.001, storageSize=0.001)
    @IO()
    @task(returns=1)
    def decorated(x: int) -> Any:
        return function(x)

    return decorated


SPELLINGS = pytest.mark.parametrize("spelling", [no_brackets, brackets, capitals, below_a_constraint])


@SPELLINGS
def test_every_spelling_makes_a_task_that_gives_what_its_body_gives(
    spelling: Any, mode: str, runtime: penstock.Runtime
) -> None:
    function = spelling(double)
    assert wait_on([function(i) for i in range(5)]) == [0, 2, 4, 6, 8]


@only_workers
@SPELLINGS
def test_every_spelling_makes_a_task_that_needs_no_computing_unit(spelling: Any, mode: str, gate: Gate) -> None:
    with run(cpus=1):
        stand_at(gate)
        assert spelling(double)(4).result(60) == 8
        gate.open()


@pytest.mark.usefixtures("runtime")
@pytest.mark.parametrize("decorated", [io(task(double)), io(task()(double)), IO(task(double)), IO()(task(double))])
def test_a_task_without_options_too(decorated: Any) -> None:
    assert decorated(3).result() == 6


def test_a_marked_task_keeps_its_name_and_its_text() -> None:
    assert noop_io.__name__ == "noop_io"
    assert io(task(task)).__doc__ == task.__doc__


@pytest.mark.parametrize("wrong", [double, 5, "ssd", None.__class__])
def test_what_is_not_a_task_is_refused_with_the_right_order(wrong: Any) -> None:
    with pytest.raises(DefinitionError, match="@task"):
        io(wrong)
    with pytest.raises(DefinitionError, match="@task"):
        IO()(wrong)


def test_options_are_refused() -> None:
    with pytest.raises(TypeError):
        io(executors=4)  # type: ignore[call-arg]


@pytest.mark.usefixtures("runtime")
def test_methods_and_defaults_and_maps() -> None:
    class Writer:
        def __init__(self) -> None:
            self.base = 10

        @io
        @task(returns=1, target_direction=penstock.IN)
        def add(self, x: int, y: int = 1) -> int:
            return self.base + x + y

        @io
        @staticmethod
        @task(returns=1)
        def alone(x: int) -> int:
            return x

    writer = Writer()
    assert wait_on(writer.add(1), writer.add(1, y=5), Writer.alone(3)) == [12, 16, 3]
    assert io(task(returns=1)(double)).map(range(50)).results() == [2 * i for i in range(50)]


# --- they are tasks like any other --------------------------------------------------------------------------------


@pytest.mark.usefixtures("runtime")
def test_futures_files_and_objects_flow_through_them(tmp_path: Path) -> None:
    @task(returns=1)
    def compute(x: int) -> list[int]:
        return [x] * 3

    @io
    @task(path=FILE_OUT)
    def save(values: list[int], path: Any) -> None:
        Path(path).write_text(" ".join(map(str, values)))

    @io
    @task(path=FILE_IN, returns=1)
    def load(path: Any) -> list[int]:
        return [int(word) for word in Path(path).read_text().split()]

    @task(returns=1)
    def total(values: list[int]) -> int:
        return sum(values)

    for i in range(4):
        save(compute(i), tmp_path / f"{i}")
    assert wait_on([total(load(tmp_path / f"{i}")) for i in range(4)]) == [0, 3, 6, 9]


@pytest.mark.usefixtures("runtime")
def test_without_storage_constraints_a_file_is_written_where_it_is_told(tmp_path: Path) -> None:
    @io
    @task(path=FILE_OUT, returns=1)
    def save(path: Any) -> str:
        Path(path).write_text("x")
        return os.path.realpath(path)

    assert Path(save(tmp_path / "a").result()).is_relative_to(os.path.realpath(tmp_path))
    barrier()
    assert (tmp_path / "a").is_file() and not (tmp_path / "a").is_symlink()
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.usefixtures("runtime")
def test_an_object_they_update_is_a_new_version() -> None:
    @io
    @task(values=INOUT)
    def extend(values: list[int], path: str) -> None:
        values.append(len(values))

    values: list[int] = []
    for _ in range(3):
        extend(values, "x")
    assert wait_on(values) == [0, 1, 2]


@pytest.mark.usefixtures("runtime")
def test_a_failure_speaks_and_reaches_those_that_depend_on_it() -> None:
    after = io(task(returns=1)(double))(fail())
    with pytest.raises(penstock.DependencyFailed, match="upside down"):
        after.result()
    with pytest.raises(ValueError, match="upside down"):
        fail().result()


@pytest.mark.usefixtures("runtime")
def test_retries_and_ignored_failures(tmp_path: Path) -> None:
    @io
    @task(returns=1, retries=2)
    def third_time(count: str) -> int:
        Path(count).write_text((Path(count).read_text() if os.path.exists(count) else "") + "x")
        if len(Path(count).read_text()) < 3:
            raise OSError("not yet")
        return 3

    @io
    @task(returns=1, on_failure="ignore")
    def ignored() -> int:
        raise OSError("never mind")

    assert third_time(str(tmp_path / "count")).result() == 3
    assert ignored().result() is None


@only_workers
@pytest.mark.usefixtures("runtime")
def test_a_task_that_kills_its_worker_fails_and_the_pool_goes_on(mode: str) -> None:
    @io
    @task
    def die() -> None:
        os.kill(os.getpid(), 9)

    with pytest.raises(penstock.WorkerDied, match="die"):
        die().result(60)
    assert io(task(returns=1)(double))(4).result(60) == 8


@only_workers
@pytest.mark.usefixtures("runtime")
def test_a_timeout_ends_it(mode: str, gate: Gate) -> None:
    @io
    @task(timeout=0.2)
    def too_long(gate: Gate) -> None:
        gate.enter()

    with pytest.raises(penstock.TaskTimeout, match="too_long"):
        too_long(gate).result(60)
    noop_io().result(60)


# --- overlap ------------------------------------------------------------------------------------------------------


@only_workers
def test_they_run_while_every_computing_unit_is_busy(mode: str, tmp_path: Path) -> None:
    with run(cpus=2), Turnstile(tmp_path) as door:
        held = [computing(door, "compute") for _ in range(2)]
        door.arrivals(2)
        assert wait_on([io(task(returns=1)(double))(i) for i in range(20)]) == [2 * i for i in range(20)]
        assert not any(future.done() for future in held)
        door.let_go(2)


@only_workers
def test_computing_goes_on_while_every_io_executor_is_busy(mode: str, tmp_path: Path) -> None:
    with run(cpus=2, io_executors=2), Turnstile(tmp_path) as door:
        held = [passing(door, "io") for _ in range(4)]
        assert door.arrivals(2) == ["io", "io"]
        assert wait_on([task(returns=1)(double)(i) for i in range(20)]) == [2 * i for i in range(20)]
        assert not any(future.done() for future in held)
        door.let_go(4)


@only_workers
def test_the_units_of_computing_tasks_stay_limited(mode: str, tmp_path: Path) -> None:
    """Tasks that do I/O come on top of the computing units; they do not add to them."""
    with run(cpus=1, io_executors=3), Turnstile(tmp_path) as door:
        for _ in range(3):
            passing(door, "io")
        assert door.arrivals(3) == ["io"] * 3
        for _ in range(3):
            computing(door, "compute")
        assert door.arrivals(1) == ["compute"]
        door.let_go(3)  # whoever takes it: at no time does a second one compute
        door.let_go(3)
        barrier()


@only_workers
def test_what_a_task_is_writing_stays_as_it_was_while_the_program_computes_on(mode: str, tmp_path: Path) -> None:
    @io
    @task(returns=1)
    def checkpoint(block: list[int], door: Turnstile) -> list[int]:
        door.passing()
        return block

    @task(block=INOUT)
    def scale(block: list[int]) -> None:
        block[:] = [10 * x for x in block]

    with run(cpus=1), Turnstile(tmp_path) as door:
        block = [1, 2]
        saved = []
        for _ in range(3):
            scale(block)
            saved.append(checkpoint(block, door))
        assert wait_on(block) == [1000, 2000]
        assert not any(future.done() for future in saved)
        door.let_go(3)
        assert wait_on(saved) == [[10, 20], [100, 200], [1000, 2000]]


# --- the pool -----------------------------------------------------------------------------------------------------


@only_workers
@pytest.mark.parametrize("executors", [1, 3])
def test_io_executors_limit_how_many_run_at_once(mode: str, tmp_path: Path, executors: int) -> None:
    with run(cpus=1, io_executors=executors), Turnstile(tmp_path) as door:
        calls = [passing(door) for _ in range(3 * executors)]
        door.arrivals(executors)
        for _ in range(2 * executors):
            door.let_go()
            door.arrivals(1)  # one comes for each that goes
        door.let_go(executors)
        assert max(wait_on(calls)) == executors


@only_workers
def test_sixteen_run_at_once_unless_told_otherwise(mode: str, tmp_path: Path) -> None:
    with run(cpus=1), Turnstile(tmp_path) as door:
        calls = [passing(door) for _ in range(18)]
        door.arrivals(16)
        door.let_go(18)
        assert max(wait_on(calls)) == 16


@only_workers
def test_tasks_with_and_without_storage_constraints_share_the_executors(mode: str, tmp_path: Path) -> None:
    limited = constraint(**LITTLE)(io(task(returns=1)(pass_through)))
    with run(io_executors=2, storage=[layer(tmp_path, "ssd", 100)]), Turnstile(tmp_path) as door:
        calls = [function(door) for _ in range(3) for function in (limited, passing)]
        door.arrivals(2)
        for _ in range(4):
            door.let_go()
            door.arrivals(1)
        door.let_go(2)
        assert max(wait_on(calls)) == 2


@only_workers
def test_surplus_tasks_go_in_the_order_of_their_calls(mode: str, tmp_path: Path) -> None:
    with run(io_executors=1), Turnstile(tmp_path) as door:
        for i in range(10):
            passing(door, str(i))
        door.let_go(10)
        assert door.arrivals(10) == [str(i) for i in range(10)]


@only_workers
def test_a_task_that_waits_for_an_executor_can_be_cancelled(mode: str, tmp_path: Path) -> None:
    with run(io_executors=1), Turnstile(tmp_path) as door:
        passing(door, "first")
        door.arrivals(1)
        waiting = passing(door, "second")
        assert waiting.cancel()
        passing(door, "third")
        door.let_go(2)
        assert door.arrivals(1) == ["third"]


@only_workers
def test_workers_start_on_demand_and_are_used_again(mode: str) -> None:
    def processes() -> set[int]:
        return {process.pid for process in psutil.Process().children(recursive=True)}

    with run(cpus=1, io_executors=8):
        wait_on(task(returns=1)(double)(1))
        before = processes()
        pids = {pid().result() for _ in range(10)}  # never two at once
        assert len(pids) == 1
        assert processes() - before == pids


@only_workers
def test_workers_are_not_those_that_compute(mode: str) -> None:
    with run(cpus=1):
        assert pid().result() != task(returns=1)(os.getpid)().result()


CPUS = sorted(os.sched_getaffinity(0))


def cpus_of_this_process() -> list[int]:
    return sorted(os.sched_getaffinity(0))


affinity = io(task(returns=1)(cpus_of_this_process))
affinity_on_layer = constraint(**LITTLE)(io(task(returns=1)(cpus_of_this_process)))


@only_workers
@pytest.mark.skipif(len(CPUS) < 2, reason="pinning shows only where there are two CPUs")
def test_workers_are_pinned_to_the_cpus_of_the_device_while_they_serve_it(mode: str, tmp_path: Path) -> None:
    for cpu in CPUS[:2]:
        with run(io_executors=1, storage=[layer(tmp_path, "ssd", 100, cpus=[cpu])]):
            assert affinity().result() == CPUS
            assert affinity_on_layer().result() == [cpu]
            assert affinity().result() == CPUS
            assert affinity_on_layer().result() == [cpu]


@only_workers
def test_a_device_without_cpus_pins_nobody(mode: str, tmp_path: Path) -> None:
    with run(storage=[layer(tmp_path, "ssd", 100)]):
        assert affinity_on_layer().result() == CPUS


@pytest.mark.parametrize("wrong", [0, -1, "many", 1.5])
def test_a_number_of_executors_that_makes_no_sense_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="io_executors"):
        run(io_executors=wrong)


def test_other_constraints_are_met_too(mode: str) -> None:
    with run(mode, memory="1GB"):
        needs_memory = constraint(memory_size="2GB")(io(task(returns=1)(double)))
        with pytest.raises(ConstraintError, match="memory"):
            needs_memory(1)
        assert constraint(memory_size="1GB")(io(task(returns=1)(double)))(1).result() == 2


def test_a_task_called_inside_a_task_of_io_runs_there(mode: str) -> None:
    @io
    @task(returns=1)
    def inner(x: int) -> int:
        return 2 * x

    @io
    @task(returns=1)
    def outer(x: int) -> int:
        return int(wait_on(inner(x))) + 1

    with run(mode, io_executors=1):
        assert outer(3).result(60) == 7


@only_workers
def test_stop_waits_for_them(mode: str, tmp_path: Path) -> None:
    with run(io_executors=1), Turnstile(tmp_path) as door:
        futures = [passing(door) for _ in range(3)]
        stopper = threading.Thread(target=penstock.stop)
        door.arrivals(1)
        stopper.start()
        door.let_go(3)
        stopper.join(60)
        assert not stopper.is_alive() and all(future.done() for future in futures)


# --- settings of a program ----------------------------------------------------------------------------------------

PROGRAM = """
import os, sys
from penstock import io, task, wait_on
sys.path.insert(0, os.environ["TESTS"])
from pathlib import Path
from tests.behaviour.storage_programs import Turnstile, pass_through

passing = io(task(returns=1)(pass_through))
with Turnstile(Path(os.getcwd())) as door:
    calls = [passing(door) for _ in range(6)]
    door.arrivals(2)
    for _ in range(4):
        door.let_go()
        door.arrivals(1)
    door.let_go(2)
    print("peak", max(wait_on(calls)))
"""
TESTS = str(Path(__file__).parents[2])


def test_executors_from_the_environment(script: Script) -> None:
    assert "peak 2" in script(PROGRAM, PENSTOCK_IO_EXECUTORS="2", TESTS=TESTS).stdout


def test_executors_from_the_description_of_the_machine(script: Script) -> None:
    (script.folder / "penstock.toml").write_text("[resources]\nio_executors = 2\n")
    assert "peak 2" in script(PROGRAM, TESTS=TESTS).stdout


@pytest.mark.parametrize("option", ["--io-executors", "--io_executors"])
def test_executors_from_the_command_line(tmp_path: Path, option: str) -> None:
    import subprocess
    import sys

    (tmp_path / "app.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli", "run", f"{option}=2", "app.py"],
        cwd=tmp_path,
        env=os.environ | {"TESTS": TESTS},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0 and "peak 2" in done.stdout, done.stderr


@only_workers
def test_idle_workers_go(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.executors.node._IDLE", 0.2)  # seconds
    with run(cpus=1, io_executors=4):
        first = pid().result()
        assert psutil.pid_exists(first)
        assert becomes(lambda: not psutil.pid_exists(first))
