"""MPI tasks: results, admission, what ranks see, how they share inputs, and worlds that serve several tasks."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.mpi_here import needs_mpi
from tests.patience import becomes

import penstock
from penstock import (
    COLLECTION_IN,
    FILE_IN,
    FILE_INOUT,
    FILE_OUT,
    INOUT,
    SCATTER,
    CallError,
    ConstraintError,
    DefinitionError,
    ReturnsMismatch,
    SerializationError,
    constraint,
    io,
    mpi,
    task,
    wait_on,
)
from penstock.executors.node import NodeExecutor
from penstock.executors.worlds import KeptWorld
from penstock.observe import records
from penstock.observe.log import read_log

pytestmark = needs_mpi


@pytest.fixture(scope="module")
def _eight_units() -> Iterator[penstock.Runtime]:
    # More units than the machine has: ranks are processes, and the kernel lets them take turns.
    with penstock.Runtime(cpus=8) as runtime:
        yield runtime


@pytest.fixture
def runtime(_eight_units: penstock.Runtime) -> Iterator[penstock.Runtime]:
    yield _eight_units
    penstock.barrier()


# --- results ----------------------------------------------------------------------------------------------------------


@task(returns=int)
def ten() -> int:
    return 10


@mpi(runner="mpiexec", processes=4)
@task(returns=list)
def rank_times(seed: int) -> Any:
    from mpi4py import MPI

    return MPI.COMM_WORLD.Get_rank() * seed


@mpi(processes=2)
@task(returns=list)
def sums_of(values: list[int]) -> Any:
    return mpi.comm().allreduce(sum(values)), mpi.comm().Get_size()


def test_the_result_is_the_list_of_what_the_ranks_return(runtime: penstock.Runtime) -> None:
    assert wait_on(rank_times(ten())) == [0, 10, 20, 30]


def test_an_mpi_task_takes_the_list_of_another(runtime: penstock.Runtime) -> None:
    assert wait_on(sums_of(rank_times(1))) == [(12, 2), (12, 2)]


def test_a_sequential_task_takes_the_list_too(runtime: penstock.Runtime) -> None:
    assert wait_on(task(sum)(rank_times(2))) == 12


@mpi(processes=3)
@task(returns=3)
def one_each() -> Any:
    return "abc"[mpi.comm().rank]


@mpi(processes=3)
@task(returns=2)
def too_few() -> int:
    return 1


@mpi(processes=2)
@task(returns=0)
def nothing() -> None:
    return None


def test_as_many_returns_as_ranks_are_a_future_each(runtime: penstock.Runtime) -> None:
    first, *rest = one_each()
    assert wait_on(first) == "a" and wait_on(rest) == ["b", "c"]


def test_another_number_of_returns_is_an_error(runtime: penstock.Runtime) -> None:
    futures = too_few()
    with pytest.raises(ReturnsMismatch, match="returns=2 but its 3 ranks"):
        wait_on(futures[0])


def test_a_task_may_return_nothing(runtime: penstock.Runtime) -> None:
    assert wait_on(nothing()) is None


@mpi(processes=2)
@task(returns=list)
def large_arrays(size: int) -> Any:
    return np.full(size, mpi.comm().rank, dtype=float)


def test_large_results_come_back_whole(runtime: penstock.Runtime) -> None:
    for attempt in range(3):
        size = 100_000 + attempt
        first, second = wait_on(large_arrays(size))
        assert first.shape == second.shape == (size,)
        assert first.sum() == 0 and second.sum() == size


@mpi(processes=2)
@task(returns=list)
def half_unpicklable() -> Any:
    return threading.Lock() if mpi.comm().rank == 1 else None


def test_what_cannot_be_pickled_names_the_rank(runtime: penstock.Runtime) -> None:
    future = half_unpicklable()
    with pytest.raises(SerializationError, match=r"rank 1 of 2: the value .* cannot be pickled"):
        wait_on(future)


# --- ranks and their surroundings -------------------------------------------------------------------------------------


@constraint(computing_units=2)
@mpi(processes=3, scale_by_cpu=True)
@task(returns=list)
def scaled() -> Any:
    return mpi.comm().Get_size(), os.environ["OMP_NUM_THREADS"]


@constraint(computing_units=2)
@mpi(processes=3)
@task(returns=list)
def threaded() -> Any:
    return mpi.comm().Get_size(), os.environ["OMP_NUM_THREADS"]


def test_scaled_by_units_there_are_more_ranks(runtime: penstock.Runtime) -> None:
    assert wait_on(scaled()) == [(6, "1")] * 6


def test_not_scaled_each_rank_has_more_threads(runtime: penstock.Runtime) -> None:
    assert wait_on(threaded()) == [(3, "2")] * 3


@mpi(processes=2)
@task(returns=list)
def surroundings() -> Any:
    names = ("PENSTOCK_HOSTNAMES", "PENSTOCK_NUM_NODES", "COMPSS_HOSTNAMES", "COMPSS_NUM_NODES")
    internal = [name for name in os.environ if "INTERNAL" in name]
    return [os.environ[name] for name in names], os.getcwd(), sys.argv, sys.path, os.environ.get("PYTHONPATH"), internal


def test_ranks_find_what_a_worker_finds_and_the_names_of_nodes(runtime: penstock.Runtime) -> None:
    host = runtime.machine.hostname
    usual = (os.getcwd(), sys.argv, [str(entry) for entry in sys.path], os.environ.get("PYTHONPATH"), [])
    assert wait_on(surroundings()) == [([host, "1", host, "1"], *usual)] * 2


@mpi(processes=2)
@task(returns=list)
def initialised_again() -> Any:
    from mpi4py import MPI

    MPI.Init()
    MPI.Init_thread()
    return MPI.Is_initialized()


def test_a_program_may_initialise_mpi_itself(runtime: penstock.Runtime) -> None:
    assert wait_on(initialised_again()) == [True, True]


def test_a_world_cannot_be_asked_for_outside(runtime: penstock.Runtime) -> None:
    with pytest.raises(CallError, match="no MPI world here"):
        mpi.comm()
    with pytest.raises(CallError, match="no MPI world here"):
        mpi.discard_world()


def test_functions_of_a_main_program_become_ranks(tmp_path: Path, script: Any) -> None:
    done = script(
        """
import penstock
from penstock import mpi, task, wait_on

FACTOR = 7

class Part:
    def __init__(self, rank):
        self.rank = rank

@mpi(processes=2)
@task(returns=list)
def parts():
    print("from a rank")
    return Part(FACTOR * mpi.comm().rank)

print([part.rank for part in wait_on(parts())])
"""
    )
    assert sorted(done.stdout.splitlines()) == ["[0, 7]", "from a rank", "from a rank"]


# --- admission --------------------------------------------------------------------------------------------------------


@mpi(processes=3)
@task(returns=list)
def three_meet(folder: Path, others: int) -> Any:
    return meet(folder, mpi.comm(), others)


@mpi(processes=5)
@task(returns=list)
def five_meet(folder: Path, others: int) -> Any:
    return meet(folder, mpi.comm(), others)


def meet(folder: Path, comm: Any, others: int) -> int:
    """Say that this rank runs, and wait until so many do."""
    (folder / f"{comm.size}-{comm.rank}").touch()
    until = time.monotonic() + 60
    while len(list(folder.iterdir())) < others and time.monotonic() < until:
        time.sleep(0.005)
    return len(list(folder.iterdir()))


def test_tasks_of_different_sizes_run_side_by_side(runtime: penstock.Runtime, tmp_path: Path) -> None:
    first, second = three_meet(tmp_path, 8), five_meet(tmp_path, 8)
    assert wait_on([first, second]) == [[8] * 3, [8] * 5]


@mpi(processes=5)
@task(returns=list)
def interval() -> Any:
    began = time.monotonic()
    time.sleep(0.1)
    return began, time.monotonic()


def test_a_task_never_starts_with_fewer_units_than_ranks(runtime: penstock.Runtime) -> None:
    """Of eight units, five are one task's: the next waits for its end."""
    (first, second) = sorted(wait_on([interval(), interval()]))
    assert max(end for _, end in first) <= min(began for began, _ in second)


@mpi(processes=9)
@task(returns=list)
def nine() -> int:
    return 0


@mpi(processes="$RANKS_OF_A_TEST")
@task(returns=list)
def as_many_as_the_environment_says() -> int:
    return int(mpi.comm().size)


def test_more_ranks_than_units_are_refused_at_the_call(runtime: penstock.Runtime) -> None:
    with pytest.raises(ConstraintError, match="nine requires 9 processes at once.*room for 8"):
        nine()


def test_the_number_may_come_from_the_environment(runtime: penstock.Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConstraintError, match="the environment has no RANKS_OF_A_TEST"):
        as_many_as_the_environment_says()
    monkeypatch.setenv("RANKS_OF_A_TEST", "many")
    with pytest.raises(ConstraintError, match="'many'.*not a whole number"):
        as_many_as_the_environment_says()
    monkeypatch.setenv("RANKS_OF_A_TEST", "2")
    assert wait_on(as_many_as_the_environment_says()) == [2, 2]


@mpi(processes=2, runner="no-such-runner")
@task(returns=list)
def unstartable() -> int:
    return 0


@mpi(processes=2, runner="/bin/false")
@task(returns=list)
def started_by_false() -> int:
    return 0


def test_a_missing_runner_is_named_at_the_call(runtime: penstock.Runtime) -> None:
    with pytest.raises(ConstraintError, match="its runner 'no-such-runner' was found neither"):
        unstartable()


def test_a_runner_that_starts_nothing_is_told_of(runtime: penstock.Runtime) -> None:
    future = started_by_false()
    with pytest.raises(penstock.TaskFailed, match="/bin/false ended with status 1 before its ranks had reported"):
        wait_on(future)


def test_a_runner_of_another_mpi_is_told_of(runtime: penstock.Runtime, tmp_path: Path) -> None:
    """One that starts processes which do not know of each other."""
    runner = tmp_path / "start-two"
    runner.write_text('#!/bin/sh\nshift 2\n"$@" & "$@" & wait\n')
    runner.chmod(0o700)

    @mpi(processes=2, runner=str(runner))
    @task(returns=list)
    def not_together() -> int:
        return 0

    future = not_together()
    with pytest.raises(penstock.TaskFailed, match="gave them worlds of size 1: the two do not belong together"):
        wait_on(future)


def test_missing_mpi4py_says_how_to_install_it(runtime: penstock.Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "mpi4py" else find_spec(name))

    @mpi(processes=2)
    @task(returns=list)
    def without_mpi4py() -> int:
        return 0

    with pytest.raises(ConstraintError, match=r"pip install 'penstock\[mpi\]'"):
        without_mpi4py()


# --- inputs -----------------------------------------------------------------------------------------------------------


@mpi(processes=2)
@task(returns=list, numbers=SCATTER)
def where_it_lies(numbers: Any, everything: Any) -> Any:
    """The files behind two arrays, by the addresses of their first numbers."""

    def file(array: Any) -> str:
        address = array.__array_interface__["data"][0]
        with open("/proc/self/maps") as maps:
            for line in maps:
                first, last = (int(bound, 16) for bound in line.split()[0].split("-"))
                if first <= address < last:
                    return line.split()[-1]
        return ""

    return len(numbers), file(numbers), file(everything), numbers.flags.writeable


def test_large_inputs_are_mapped_not_copied(runtime: penstock.Runtime) -> None:
    numbers = np.arange(200_001.0)
    (one, segment, whole, writable), (other, *same) = wait_on(where_it_lies(numbers, numbers))
    assert (one, other) == (100_001, 100_000)
    assert segment.startswith(runtime.segments.memory_dir) and segment == whole
    assert same == [segment, whole, writable] and not writable


@mpi(processes=3)
@task(returns=list, some=SCATTER, other=SCATTER)
def parts_of(some: Any, other: Any = ()) -> Any:
    return some, other


@pytest.mark.parametrize("length", [0, 1, 2, 3, 7, 9])
def test_scattered_parts_are_those_of_array_split(runtime: penstock.Runtime, length: int) -> None:
    whole = list(range(length))
    expected = [part.tolist() for part in np.array_split(whole, 3)]
    assert [part for part, _ in wait_on(parts_of(whole))] == expected
    assert [part for _, part in wait_on(parts_of((), other=tuple(whole)))] == [tuple(part) for part in expected]


def test_futures_are_scattered_too(runtime: penstock.Runtime) -> None:
    numbers = [task(abs)(-number) for number in range(4)]
    assert [part for part, _ in wait_on(parts_of(numbers))] == [[0, 1], [2], [3]]
    assert [part for part, _ in wait_on(parts_of(task(sorted)([3, 1, 2])))] == [[1], [2], [3]]


def test_what_has_no_parts_is_an_error_that_names_it(runtime: penstock.Runtime) -> None:
    for whole in (5, {"a": 1}, {1, 2}):
        future = parts_of(whole)
        with pytest.raises(CallError, match=f"argument 'some' of task parts_of.*a {type(whole).__name__} has no parts"):
            wait_on(future)


@mpi(processes=2)
@task(returns=list, parts=COLLECTION_IN)
def total(parts: list[Any]) -> Any:
    return sum(float(part.sum()) for part in parts)


def test_a_collection_of_futures_is_an_input(runtime: penstock.Runtime) -> None:
    arrays = [task(np.full)(30_000, value) for value in (1.0, 2.0)]
    assert wait_on(total(arrays)) == [90_000, 90_000]


# --- files ------------------------------------------------------------------------------------------------------------


@mpi(processes=3)
@task(path=FILE_OUT)
def write_together(path: str, block: int) -> None:
    from mpi4py import MPI

    comm = mpi.comm()
    file = MPI.File.Open(comm, path, MPI.MODE_CREATE | MPI.MODE_WRONLY)
    file.Write_at_all(comm.rank * block, bytes([65 + comm.rank]) * block)
    file.Close()


@mpi(processes=2)
@task(path=FILE_INOUT)
def append_by_the_last(path: Path) -> None:
    comm = mpi.comm()
    assert isinstance(path, Path)
    if comm.rank == comm.size - 1:
        with path.open("ab") as file:
            file.write(b"!")
    comm.Barrier()


@task(returns=bytes, path=FILE_IN)
def content(path: str) -> bytes:
    return Path(path).read_bytes()


def test_ranks_write_one_file_together(runtime: penstock.Runtime, tmp_path: Path) -> None:
    path = tmp_path / "blocks"
    write_together(str(path), 4)
    append_by_the_last(path)
    assert wait_on(content(path)) == b"AAAABBBBCCCC!"
    assert path.read_bytes() == b"AAAABBBBCCCC!"
    until = time.monotonic() + 60
    while len(list(tmp_path.iterdir())) > 1 and time.monotonic() < until:
        time.sleep(0.01)  # private folders are removed in the background
    assert [entry.name for entry in tmp_path.iterdir()] == ["blocks"]


# --- I/O tasks --------------------------------------------------------------------------------------------------------


@io
@mpi(processes=3)
@task(returns=list)
def ranks_of_io(folder: Path, others: int) -> Any:
    return meet(folder, mpi.comm(), others)


@task(returns=int)
def holds_a_unit(folder: Path, others: int, name: str) -> int:
    (folder / name).touch()
    until = time.monotonic() + 60
    while len(list(folder.iterdir())) < others and time.monotonic() < until:
        time.sleep(0.005)
    return len(list(folder.iterdir()))


def test_an_io_task_of_ranks_takes_no_units(tmp_path: Path) -> None:
    with penstock.Runtime(cpus=1):
        results = [holds_a_unit(tmp_path, 4, "one"), ranks_of_io(tmp_path, 4)]
        assert wait_on(results) == [4, [4, 4, 4]]


@constraint(storage_bw="60MB/s")
@io
@mpi(processes=2)
@task(returns=list, path=FILE_OUT)
def write_on_a_layer(path: str) -> Any:
    began = time.monotonic()
    if mpi.comm().rank == 0:
        Path(path).write_text(path)
    mpi.comm().Barrier()
    time.sleep(0.1)
    return began, time.monotonic()


def test_an_io_task_of_ranks_takes_bandwidth(tmp_path: Path) -> None:
    layers = [{"name": "disk", "mount": str(tmp_path / "disk"), "bandwidth": "100MB/s"}]
    (tmp_path / "disk").mkdir()
    with penstock.Runtime(cpus=1, storage=layers):
        (first, second) = sorted(wait_on([write_on_a_layer(str(tmp_path / name)) for name in "ab"]))
        assert max(end for _, end in first) <= min(began for began, _ in second)
        assert str(tmp_path / "disk") in (tmp_path / "a").read_text()
    assert str(tmp_path / "disk") in (tmp_path / "a").read_text() and not (tmp_path / "a").is_symlink()


# --- what the main program sees of MPI --------------------------------------------------------------------------------

ERRORS_OF_MPI = """
import sys
from penstock import mpi, start, task, wait_on

@mpi(processes=2)
@task(returns=list)
def fails(how):
    from mpi4py import MPI

    comm = mpi.comm()
    if how == "rank":
        comm.send(None, dest=99)
    if how == "missing":
        MPI.File.Open(comm, "no-such-file", MPI.MODE_RDONLY)
    file = MPI.File.Open(comm, "/dev/full", MPI.MODE_WRONLY)
    file.Write_at(0, b"some words")

start(cpus=2)
for how in ("rank", "missing", "full"):
    try:
        wait_on(fails(how))
    except Exception as error:
        print(type(error).__name__, getattr(error, "errno", None), "|", str(error).splitlines()[0])
        story = str(error.__cause__)
        assert "rank " in story and "in fails" in story and "mpi_errors" not in story, story
print("mpi4py" in sys.modules)
"""


def test_errors_of_mpi_reach_a_program_that_has_no_mpi(script: Any) -> None:
    done = script(ERRORS_OF_MPI)
    rank, missing, full, imported = done.stdout.splitlines()
    assert rank.startswith("RuntimeError None | MPI: ") and "rank" in rank.casefold(), rank
    assert missing.startswith("FileNotFoundError 2 | [Errno 2] MPI: "), missing
    assert full.startswith("OSError 28 | [Errno 28] MPI: "), full
    assert (imported, done.stderr) == ("False", "")


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    "spelling",
    [
        "import penstock.mpi; comm = penstock.mpi.comm",
        "from penstock.mpi import comm",
        "from penstock.mpi import comm, discard_world; import penstock.mpi",
        "from penstock import mpi; import penstock.mpi; comm = mpi.comm",
        "import importlib; comm = importlib.import_module('penstock.mpi').comm",
    ],
)
def test_it_can_be_imported_as_a_module(script: Any, spelling: str) -> None:
    done = script(
        f"""
import penstock
assert "penstock.mpi" not in __import__("sys").modules, "whoever does not need it pays for it"
from penstock import mpi as decorator
{spelling}
assert penstock.mpi is decorator

@penstock.mpi(processes=2)
@penstock.task(returns=list)
def ranks():
    return comm().rank

penstock.start(cpus=2)
print(penstock.wait_on(ranks()))
"""
    )
    assert done.stdout == "[0, 1]\n", done.stderr


# --- warm worlds ------------------------------------------------------------------------------------------------------


@mpi(processes=2)
@task(returns=list)
def pids() -> Any:
    return os.getpid()


@mpi(processes=2)
@task(returns=list)
def read_standard_input() -> Any:
    return os.read(0, 10), sys.stdin.read()


def test_ranks_have_nothing_on_their_standard_input(runtime: penstock.Runtime) -> None:
    future = read_standard_input()
    try:
        assert future.result(timeout=60) == [(b"", ""), (b"", "")]
    finally:
        penstock.cancel(future)


@mpi(processes=2)
@task(returns=list)
def fatal_from_now_on() -> int:
    from mpi4py import MPI

    for comm in (MPI.COMM_WORLD, MPI.COMM_SELF):
        comm.Set_errhandler(MPI.ERRORS_ARE_FATAL)
    return os.getpid()


@mpi(processes=2)
@task(returns=list, retries=0)
def survives_errors() -> int:
    from mpi4py import MPI

    for comm in (mpi.comm(), MPI.COMM_WORLD, MPI.COMM_SELF):
        with pytest.raises(MPI.Exception):
            comm.send(None, dest=99)
    return os.getpid()


def test_how_a_task_wants_errors_is_its_own_business(runtime: penstock.Runtime) -> None:
    assert wait_on(fatal_from_now_on()) == wait_on(survives_errors())


@mpi(processes=2)
@task(returns=list)
def pids_and(what: str) -> Any:
    from mpi4py import MPI

    comm = mpi.comm()
    if what == "directory":
        os.chdir("/")
    elif what == "environment":
        os.environ["LEFT_BY_A_TASK"] = "1"
    elif what == "thread":
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    elif what == "says so":
        mpi.discard_world()
    elif what == "finalize":
        comm.Barrier()
        MPI.Finalize()
    elif what == "message" and comm.rank == 0:
        MPI.COMM_WORLD.send("lost", dest=1)
    elif what == "message on its own" and comm.rank == 0:
        comm.send("lost", dest=1)
    return os.getpid()


def test_a_world_serves_task_after_task(runtime: penstock.Runtime) -> None:
    first = wait_on(pids())
    assert [wait_on(pids()) for _ in range(3)] == [first] * 3
    assert wait_on(pids_and("nothing")) == first


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "what", ["directory", "environment", "thread", "says so", "finalize", "message", "message on its own"]
)
def test_a_world_that_was_changed_serves_no_other(runtime: penstock.Runtime, what: str) -> None:
    changed = wait_on(pids_and(what))
    assert not set(changed) & set(wait_on(pids()))


@mpi(processes=2)
@task(returns=list)
def first_message(speak: bool) -> Any:
    comm = mpi.comm()
    if speak:
        comm.isend("of the other task", dest=1 - comm.rank).Free()
        return None
    comm.send("mine", dest=1 - comm.rank)
    return comm.recv()


def test_messages_of_one_task_never_reach_another(runtime: penstock.Runtime) -> None:
    wait_on(first_message(True))
    assert wait_on(first_message(False)) == ["mine", "mine"]


def test_an_idle_world_waits_without_using_the_cpu(runtime: penstock.Runtime) -> None:
    import psutil

    ranks = [psutil.Process(pid) for pid in wait_on(pids())]
    before = [sum(rank.cpu_times()[:2]) for rank in ranks]
    time.sleep(0.5)
    after = [sum(rank.cpu_times()[:2]) for rank in ranks]
    assert max(now - then for now, then in zip(after, before, strict=True)) < 0.1


def test_idle_worlds_hold_no_units(runtime: penstock.Runtime) -> None:
    wait_on([pids(), pids(), rank_times(1)])
    assert runtime.driver.engine.state.ledger.nodes[runtime.machine.hostname].free_cpus == 8


# --- declarations -----------------------------------------------------------------------------------------------------


def test_spellings_of_arguments() -> None:
    decorated = mpi(Runner="mpirun", Processes="4", scaleByCpu=True, processesPerNode=2, Priority=True)(task(abs))
    declared = decorated.declaration.mpi
    assert declared is not None and decorated.declaration.priority == 1
    assert (declared.runner, declared.processes, declared.scale_by_cpu, declared.processes_per_node) == (
        "mpirun",
        4,
        True,
        2,
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({}, "needs the number of processes"),
        ({"processes": 0}, "processes=0 must be a whole number of at least 1"),
        ({"processes": True}, "processes=True must be"),
        ({"processes": 2.5}, "processes=2.5 must be"),
        ({"processes": "two"}, "processes='two' must be"),
        ({"processes": 2, "runner": ""}, "runner='' must be the name or path"),
        ({"processes": 2, "runner": 3}, "runner=3 must be"),
        ({"processes": 2, "scale_by_cpu": "yes"}, "scale_by_cpu='yes' must be True or False"),
        ({"processes": 2, "processes_per_node": -1}, "processes_per_node=-1 must be"),
        ({"processes": 2, "priority": "high"}, "priority='high' must be"),
        ({"proceses": 2}, "has no 'proceses'; did you mean 'processes'"),
        ({"processes": 2, "Processes": 2}, "gives processes twice"),
        ({"processes": 2, "binary": "app"}, "has no 'binary'; the body of the task is the program"),
    ],
)
def test_bad_arguments_are_refused_where_they_are_written(arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(DefinitionError, match=complaint.replace("?", r"\?")):
        mpi(**arguments)(task(abs))


def test_what_cannot_be_an_mpi_task_is_refused() -> None:
    with pytest.raises(DefinitionError, match="@mpi stands above @task"):
        mpi(processes=2)(abs)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="takes arguments by name"):
        mpi(task(abs))

    def change(numbers: list[int]) -> None:
        numbers.append(1)

    with pytest.raises(DefinitionError, match="'numbers' is INOUT, but every rank has a copy of its own"):
        mpi(processes=2)(task(numbers=INOUT)(change))


def test_scatter_needs_ranks(runtime: penstock.Runtime) -> None:
    @task(numbers=SCATTER)
    def alone(numbers: list[int]) -> None:
        raise AssertionError

    with pytest.raises(DefinitionError, match=r"alone declares numbers=SCATTER, but has no ranks"):
        alone([1])


@task(returns=list)
def calls_an_mpi_task() -> Any:
    return rank_times(1).result()


def test_an_mpi_task_inside_a_task_is_refused(runtime: penstock.Runtime) -> None:
    future = calls_an_mpi_task()
    with pytest.raises(CallError, match="MPI task rank_times was called inside a task"):
        wait_on(future)


def test_inline_mode_says_that_it_cannot() -> None:
    with penstock.Runtime(mode="inline"), pytest.raises(ConstraintError, match="mode 'inline' runs everything"):
        rank_times(1)


def test_map_makes_a_task_of_each_call(runtime: penstock.Runtime) -> None:
    assert wait_on(list(rank_times.map([1, 2]))) == [[0, 1, 2, 3], [0, 2, 4, 6]]


# --- what is told -----------------------------------------------------------------------------------------------------


@mpi(processes=2)
@task(returns=list)
def refuses() -> None:
    if mpi.comm().rank == 1:
        raise LookupError("no such thing")
    mpi.comm().Barrier()


def test_the_log_tells_of_worlds_and_ranks(tmp_path: Path) -> None:
    with penstock.Runtime(cpus=4, log=True, run_dir=str(tmp_path / "run")):
        left = wait_on([pids(), pids_and("says so")])[1]
        future = refuses()
        with pytest.raises(LookupError):
            wait_on(future)
        until = time.monotonic() + 60  # the end of a run does not wait for what has no more to do
        while "the task said so" not in (tmp_path / "run" / "events.jsonl").read_text() and time.monotonic() < until:
            time.sleep(0.01)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in left)
    found = list(read_log(tmp_path / "run" / "events.jsonl"))
    started = [record for record in found if isinstance(record, records.WorldStarted)]
    ended = [record for record in found if isinstance(record, records.WorldEnded)]
    failed = [record for record in found if isinstance(record, records.RankFailed)]
    assert started and all(record.processes == 2 and record.seconds > 0 for record in started)
    assert {"the task said so"} <= {record.reason for record in ended}
    assert [(record.rank, record.message) for record in failed] == [(1, "LookupError: no such thing")]


def test_a_world_that_is_gone_before_its_last_words_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its keeper says that the task has failed, that it takes no more, and ends: all of it may be found at once."""
    plain = NodeExecutor.poll

    def late(executor: NodeExecutor, timeout: float | None) -> list[tuple[int, int]]:
        ready = plain(executor, timeout)
        for worker in [executor._by_descriptor.get(descriptor) for descriptor, _ in ready]:
            if isinstance(worker, KeptWorld) and worker.busy and worker.ready:
                becomes(lambda pid=worker.pid: not os.path.exists(f"/proc/{pid}"), 2)  # type: ignore[misc]
        found = dict(ready) | dict(plain(executor, 0))
        return sorted(found.items(), key=lambda one: one[0] in executor._by_descriptor)

    monkeypatch.setattr(NodeExecutor, "poll", late)
    monkeypatch.setattr(NodeExecutor, "glance", lambda _: [])
    with penstock.Runtime(cpus=4):
        for _ in range(2):
            with pytest.raises(LookupError):
                wait_on(refuses())
        assert wait_on(pids())


# --- strict mode ------------------------------------------------------------------------------------------------------


@mpi(processes=2)
@task(returns=list, part=SCATTER)
def changes(part: list[int], whole: list[int], change: bool) -> Any:
    if change and mpi.comm().rank == 1:
        whole.append(1)
    return sum(part) + sum(whole)


def test_strict_mode_watches_every_rank(tmp_path: Path) -> None:
    with penstock.Runtime(cpus=2, strict=True):
        assert wait_on(changes([1, 2, 3], [10], False)) == [13, 13]
        future = changes([1, 2, 3], [10], True)
        with pytest.raises(penstock.ArgumentChanged, match="rank 1 of 2.*whole"):
            wait_on(future)
