"""MPI tasks that fail: a rank raises, leaves, is killed, or keeps the others waiting. None of it may hang, or last."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pytest
from tests.faults.programs import Gate, Program, Tally, TaskSide, alive, gone, segments_in, takes_less_than
from tests.mpi_here import needs_mpi
from tests.patience import PATIENCE, Leap, eventually

import penstock
from penstock import FILE_OUT, TaskCancelled, TaskFailed, TaskTimeout, WorkerDied, cancel, mpi, task, wait_on

if TYPE_CHECKING:
    from penstock import Runtime  # workers import this module, and need no engine

pytestmark = needs_mpi


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    """Units for three ranks, and one more."""
    yield penstock.start(cpus=4)
    penstock.stop(abort=True)


@pytest.fixture(autouse=True)
def _nothing_of_the_library_in_shared_memory() -> Iterator[None]:
    """Killed ranks leave the library's files behind, unless somebody sees to it."""
    before = set(Path("/dev/shm").glob("mpich*"))
    yield
    penstock.stop(abort=True)
    eventually(lambda: not set(Path("/dev/shm").glob("mpich*")) - before)  # those of other programs go soon


def fail(how: str) -> None:
    """End the part of a rank in a task, one way or another."""
    print(f"about to {how}")
    if how == "raise":
        raise LookupError("not here")
    if how == "sys.exit":
        sys.exit(3)
    if how == "os._exit":
        os._exit(7)
    if how == "Abort":
        mpi.comm().Abort(5)
    if how == "Abort itself":
        from mpi4py import MPI

        MPI.COMM_SELF.Abort(5)
    if how == "make a fatal error":
        from mpi4py import MPI

        mpi.comm().Set_errhandler(MPI.ERRORS_ARE_FATAL)
        mpi.comm().send(None, dest=99)
    os.kill(os.getpid(), getattr(signal, how))


@mpi(processes=3)
@task(returns=list, retries=0)
def one_fails(how: str) -> Any:
    comm = mpi.comm()
    if comm.rank == 1:
        fail(how)
    comm.Barrier()
    return os.getpid()


@mpi(processes=3)
@task(returns=list)
def meet() -> Any:
    mpi.comm().Barrier()
    return os.getpid()


FAILURES = {
    "raise": (LookupError, "rank 1 of 3: LookupError: not here"),
    "sys.exit": (TaskFailed, r"rank 1 of 3: it called sys.exit\(3\)"),
    "os._exit": (WorkerDied, r"rank 1 of 3: it called os._exit\(7\)"),
    "Abort": (WorkerDied, r"rank 1 of 3: it called Abort\(5\)"),
    "Abort itself": (WorkerDied, r"rank 1 of 3: it called Abort\(5\)"),
    "make a fatal error": (WorkerDied, r"rank 1 of 3: an error of MPI was fatal to it: .*rank"),
    "SIGKILL": (WorkerDied, "rank 1 of 3: its process ended in the middle of the task: .*SIGKILL"),
    "SIGSEGV": (WorkerDied, "rank 1 of 3: its process ended in the middle of the task: "),
}


@pytest.mark.one_in(6)
@pytest.mark.parametrize("how", FAILURES)
def test_a_rank_that_fails_fails_the_task_at_once(runtime: Runtime, how: str) -> None:
    """The others wait in a barrier for it; they are killed."""
    kind, complaint = FAILURES[how]
    ranks = [psutil.Process(pid) for pid in wait_on(meet())]
    with takes_less_than(60):
        future = one_fails(how)
        with pytest.raises(kind) as caught:
            wait_on(future)
    story = str(caught.value.__cause__ if how == "raise" else caught.value)
    assert pytest.raises(AssertionError, match=complaint).matches(AssertionError(story)), story
    assert f"about to {how}" in story
    if not how.startswith("SIG"):
        assert f'"{__file__}", line' in story and "in one_fails" in story
    assert not [rank for rank in ranks if alive(rank)]
    assert runtime.driver.engine.state.ledger.nodes[runtime.machine.hostname].free_cpus == 4
    assert not set(wait_on(meet())) & {rank.pid for rank in ranks}


@mpi(processes=3)
@task(returns=list)
def one_leaves_early(how: str) -> Any:
    comm = mpi.comm()
    if comm.rank == 2:
        return None
    if how == "allreduce":
        return comm.allreduce(1)  # which lets no other thread run
    return comm.bcast(how, root=2)


@mpi(processes=3)
@task(returns=list)
def two_take_longer(how: str) -> Any:
    """Some seconds at one line, after the other rank has returned."""
    comm = mpi.comm()
    if comm.rank == 0:
        return 0
    until = time.monotonic() + 5
    if how == "sleep":
        time.sleep(5)
    goes_on = True
    while goes_on:
        goes_on = time.monotonic() < until
        goes_on = comm.sendrecv(goes_on, dest=3 - comm.rank, source=3 - comm.rank) and goes_on
    return comm.rank


@pytest.mark.one_in(2)
@pytest.mark.parametrize("how", ["bcast", "allreduce"])
def test_ranks_that_wait_for_one_that_has_returned_are_told_of(runtime: Runtime, how: str) -> None:
    future = one_leaves_early(how)
    with takes_less_than(60), pytest.raises(TaskFailed) as caught:
        wait_on(future)
    assert f"rank 0 of 3: it waits in {how}(), but rank 2 returned already" in str(caught.value)
    assert "in one_leaves_early" in str(caught.value)


@pytest.mark.long
@pytest.mark.one_in(2)
@pytest.mark.parametrize("how", ["sleep", "messages"])
def test_ranks_that_are_only_slow_are_left_alone(runtime: Runtime, how: str) -> None:
    assert wait_on(two_take_longer(how)) == [0, 1, 2]


# --- killed from outside ----------------------------------------------------------------------------------------------


@mpi(processes=2)
@task(returns=list, retries=0)
def held(gate: TaskSide) -> Any:
    gate.hold()
    mpi.comm().Barrier()
    return os.getpid()


def _about(process: psutil.Process) -> tuple[str, list[str]]:
    """Its name and its command line; nothing if it has ended while we look."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.name(), process.cmdline() if alive(process) else []
    return "", []


def ranks_among(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that are ranks, and not what has started them."""
    about = [(one, *_about(one)) for one in processes]
    return [one for one, name, line in about if "penstock.executors.mpi_worker" in line and "python" in name]


def of_worlds() -> dict[str, list[psutil.Process]]:
    """The processes of our worlds: ranks, and others by their name."""
    family = psutil.Process().children(recursive=True)
    named = {name: [one for one in family if name in _about(one)[0]] for name in ("mpiexec", "hydra_pmi_proxy")}
    return {"rank": ranks_among(family), **named}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("victim", ["rank", "mpiexec"])
def test_a_world_killed_from_outside_fails_the_task(runtime: Runtime, gate: Gate, victim: str) -> None:
    future = held(gate)
    gate.wait_reached(2)
    processes = of_worlds()
    with takes_less_than(60):
        processes[victim][-1].kill()
        with pytest.raises((WorkerDied, TaskFailed)):
            wait_on(future)
    wait_for_the_end_of([process for some in processes.values() for process in some])
    gate.release()
    assert len(wait_on(meet())) == 3


def wait_for_the_end_of(processes: list[psutil.Process]) -> None:
    eventually(lambda: not any(alive(process) for process in processes))


def test_an_idle_world_that_is_killed_harms_nobody(runtime: Runtime) -> None:
    first = wait_on(meet())
    os.kill(first[1], signal.SIGKILL)
    for _ in range(3):
        assert not set(wait_on(meet())) & set(first)


@mpi(processes=2)
@task(returns=list, timeout=600)
def too_long(gate: TaskSide) -> None:
    gate.reach()
    if mpi.comm().rank == 0:
        signal.pause()
    mpi.comm().Barrier()


def test_a_timeout_kills_the_world(runtime: Runtime, gate: Gate, leap: Leap) -> None:
    future = too_long(gate)
    gate.wait_reached(2)
    ranks = of_worlds()["rank"]
    leap(600)
    with takes_less_than(60), pytest.raises(TaskTimeout):
        wait_on(future)
    wait_for_the_end_of(ranks)


def test_cancelling_kills_the_world(runtime: Runtime, gate: Gate) -> None:
    future = held(gate)
    gate.wait_reached(2)
    ranks = of_worlds()["rank"]
    assert ranks
    cancel(future)
    with takes_less_than(60), pytest.raises(TaskCancelled):
        wait_on(future)
    wait_for_the_end_of(ranks)


# --- retries ----------------------------------------------------------------------------------------------------------


@mpi(processes=2)
@task(returns=list)
def dies_at_first(tally: Tally) -> Any:
    if mpi.comm().rank == 1 and tally.mark() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return mpi.comm().rank


@mpi(processes=2)
@task(returns=list, retries=1)
def raises_at_first(tally: Tally) -> Any:
    if mpi.comm().rank == 1 and tally.mark() == 1:
        raise RuntimeError("not yet")
    return mpi.comm().rank


@mpi(processes=2)
@task(returns=list, on_failure="ignore")
def ignored() -> None:
    raise RuntimeError


def test_a_killed_rank_is_tried_again_like_a_worker(runtime: Runtime, tally: Tally) -> None:
    assert wait_on(dies_at_first(tally)) == [0, 1]
    assert tally.count() == 2


def test_retries_are_those_of_the_task(runtime: Runtime, tally: Tally) -> None:
    assert wait_on(raises_at_first(tally)) == [0, 1]


def test_a_failure_can_be_ignored(runtime: Runtime) -> None:
    assert wait_on(ignored()) is None


# --- what is left -----------------------------------------------------------------------------------------------------


@mpi(processes=2)
@task(returns=list, retries=0)
def one_stores_and_one_fails() -> Any:
    comm = mpi.comm()
    if comm.rank == 1:
        time.sleep(0.3)
        raise ValueError
    return np.zeros(100_000)


@mpi(processes=2)
@task(returns=list, path=FILE_OUT, retries=0)
def writes_and_fails(path: str) -> None:
    if mpi.comm().rank == 0:
        Path(path).write_text("half")
    mpi.comm().Barrier()
    raise ValueError


def test_what_ranks_stored_for_nothing_is_removed(runtime: Runtime) -> None:
    future = one_stores_and_one_fails()
    with pytest.raises(ValueError):
        wait_on(future)
    assert segments_in(runtime.segments.memory_dir) == []


def test_a_file_that_was_not_finished_is_not_seen(runtime: Runtime, tmp_path: Path) -> None:
    future = writes_and_fails(str(tmp_path / "file"))
    with pytest.raises(ValueError):
        wait_on(future)
    assert list(tmp_path.iterdir()) == []


PROGRAM = """
from penstock import mpi

@mpi(processes=3)
@task(returns=list)
def busy():
    comm = mpi.comm()
    if comm.rank == 2:
        arrive("here")
        while True:
            pass
    comm.Barrier()

@mpi(processes=2)
@task(returns=list)
def quick():
    return os.getpid()

penstock.start(cpus=5)
wait_on(quick())
future = busy()
"""


@pytest.mark.one_in(4)
@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM", "SIGINT"])
def test_no_rank_outlives_the_program(tmp_path: Path, how: str) -> None:
    """With one world at work and another one idle."""
    with Program(tmp_path, PROGRAM + "wait_on(future)\n") as program:
        program.arrival()
        family = program.family()
        assert len(ranks_among(family)) == 5
        program.signal(getattr(signal, how))
        program.process.wait(PATIENCE)
        gone(family, program)


def test_no_rank_outlives_the_program_and_its_guardian(tmp_path: Path) -> None:
    with Program(tmp_path, PROGRAM + "wait_on(future)\n") as program:
        program.arrival()
        family = program.family()
        guardian = psutil.Process(program.process.pid).children()[0]
        program.signal(signal.SIGSTOP)  # it must not have time to do the guardian's work
        guardian.kill()
        program.signal(signal.SIGKILL)
        program.process.wait(PATIENCE)
        wait_for_the_end_of(family)


def test_stopping_ends_idle_worlds(tmp_path: Path) -> None:
    with Program(tmp_path, PROGRAM.replace("future = busy()", "arrive('idle')") + "penstock.stop()\n") as program:
        program.arrival()
        family = program.family()
        program.ends()
        gone(family, program)


@mpi(processes=2)
@task(returns=list)
def topology_files() -> list[str]:
    """What the process that started this rank has open of the kind."""
    parent = f"/proc/{os.getppid()}/fd"
    targets = [os.readlink(f"{parent}/{one}") for one in os.listdir(parent) if os.path.lexists(f"{parent}/{one}")]
    return [target for target in targets if "hydra_hwloc_xmlfile_" in target]


def test_a_world_leaves_no_description_of_the_machine(runtime: Runtime) -> None:
    for files in topology_files().result():
        assert all(path.endswith(" (deleted)") for path in files)


#: a runner whose rank shares memory, as a library does while it begins, and never gets as far as to report
BEGINS_FOR_EVER = """#!/bin/sh
{python} -c '
import mmap, time
with open("{shared}", "wb+") as file:
    file.truncate(4096)
    memory = mmap.mmap(file.fileno(), 4096)
open("{begun}", "w").close()
time.sleep(600)
' &
wait
"""


def test_a_world_that_is_ended_while_it_begins_leaves_nothing_in_shared_memory(
    runtime: Runtime, tmp_path: Path
) -> None:
    shared, begun, runner = Path(f"/dev/shm/mpich_shm_{os.getpid()}"), tmp_path / "begun", tmp_path / "runner"
    runner.write_text(BEGINS_FOR_EVER.format(python=sys.executable, shared=shared, begun=begun))
    runner.chmod(0o755)

    @mpi(processes=2, runner=str(runner))
    @task(returns=list)
    def never() -> None: ...

    never()
    while not begun.exists():
        time.sleep(0.01)
    assert shared.exists()
    penstock.stop(abort=True)
    assert not shared.exists()
