"""MPI tasks as the engine, the pool of worlds and the simulator see them; no MPI is needed."""

from __future__ import annotations

import os
import signal
import socket
import stat
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.patience import eventually

import penstock
from penstock import ConstraintError, constraint, mpi, task
from penstock.executors import mpi_progress
from penstock.executors.mpi_progress import Progress, Watched, counting
from penstock.executors.mpi_runner import find_runner, short
from penstock.executors.pools import Seat
from penstock.executors.worlds import KeptWorld, surplus
from penstock.model.resources import Requirements
from penstock.model.worlds import World
from penstock.runtime.mpi_declaration import MPI, world_of

# --- requirements -----------------------------------------------------------------------------------------------------


def test_ranks_take_the_units_of_the_constraint_each() -> None:
    need, world = world_of(MPI(3, processes_per_node=2), Requirements(cpus=2, memory=5), "f")
    assert (need.processes, need.cpus, need.memory, need.processes_per_node) == (3, 2, 5, 2)
    assert world == World(3, "mpiexec", threads=2)


def test_scaled_there_is_a_rank_for_each_unit() -> None:
    need, world = world_of(MPI(3, scale_by_cpu=True), Requirements(cpus=2), "f")
    assert (need.processes, need.cpus) == (6, 1)
    assert world == World(6, "mpiexec", threads=1)


def test_an_io_task_takes_no_units_and_one_executor() -> None:
    need, world = world_of(MPI(4), Requirements(cpus=0, io=True, bandwidth=7.0), "f")
    assert (need.processes, need.cpus, need.io, need.bandwidth) == (1, 0, True, 7.0)
    assert world.processes == 4
    with pytest.raises(ConstraintError, match="an I/O task takes none"):
        world_of(MPI(4, scale_by_cpu=True), Requirements(cpus=0, io=True), "f")


# --- simulated runs ---------------------------------------------------------------------------------------------------


@mpi(processes=5)
@task(returns=list, duration=10.0)
def five() -> Any: ...


@constraint(computing_units=2)
@mpi(processes=2, scale_by_cpu=True)
@task(returns=list, duration=10.0)
def four() -> Any: ...


@pytest.mark.parametrize(("calls", "seconds"), [([five, five], 20), ([four, four], 10), ([five, four], 20)])
def test_a_simulated_run_admits_all_ranks_or_none(calls: list[Any], seconds: float) -> None:
    with penstock.Runtime(mode="simulated", cpus=8) as runtime:
        for call in calls:
            call()
        penstock.barrier()
        assert runtime.now == pytest.approx(seconds, abs=0.1)  # type: ignore[attr-defined]


# --- idle worlds ------------------------------------------------------------------------------------------------------


def worlds(*sizes: int) -> list[KeptWorld]:
    return [KeptWorld(number, Seat(0, io=False), World(size, "mpiexec")) for number, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "ranks", "gone"),
    [((2, 2), 4, 0), ((2, 2, 2), 4, 1), ((8,), 4, 0), ((2, 8), 4, 1), ((1, 1, 1, 1, 1, 1), 99, 2), ((4, 2, 2), 4, 1)],
)
def test_the_oldest_idle_worlds_go_when_there_are_too_many(sizes: tuple[int, ...], ranks: int, gone: int) -> None:
    idle = worlds(*sizes)
    assert surplus(idle, ranks) == idle[:gone]
    for world in idle:
        world.close()
        world._far_end.close()


# --- runners ----------------------------------------------------------------------------------------------------------


def make_program(path: Path) -> None:
    path.write_text("#!/bin/sh\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_a_runner_beside_this_python_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("bin", "elsewhere"):
        (tmp_path / folder).mkdir()
    make_program(tmp_path / "elsewhere" / "start-ranks")
    monkeypatch.setenv("PATH", str(tmp_path / "elsewhere"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    assert find_runner("start-ranks") == str(tmp_path / "elsewhere" / "start-ranks")
    make_program(tmp_path / "bin" / "start-ranks")
    assert find_runner("start-ranks") == str(tmp_path / "bin" / "start-ranks")
    assert find_runner(str(tmp_path / "elsewhere" / "start-ranks")) == str(tmp_path / "elsewhere" / "start-ranks")
    assert find_runner("start-nothing") is None and find_runner(str(tmp_path)) is None


def test_a_socket_may_lie_deep_in_a_tree(tmp_path: Path) -> None:
    folder = tmp_path / ("f" * 80) / ("g" * 80)
    folder.mkdir(parents=True)
    address = str(folder / "socket")
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as caller:
        with short(address) as path:
            listener.bind(path)
        listener.listen()
        with short(address) as path:
            caller.connect(path)
    assert stat.S_ISSOCK(os.stat(address).st_mode)


# --- counting calls ---------------------------------------------------------------------------------------------------


class Communicator:
    """What a communicator of MPI has, as far as it is counted."""

    def __init__(self, other: Communicator | None = None) -> None:
        self.seen: list[Any] = []

    def __bool__(self) -> bool:
        return True

    def bcast(self, look: Any) -> Any:
        return look()

    def Split(self) -> Communicator:
        return Communicator()

    def Abort(self, errorcode: int = 0) -> str:
        return f"aborted with {errorcode}"


def test_calls_that_wait_are_counted_and_seen_from_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpi_progress, "_TURN", 0.0)
    path = str(tmp_path / "counters")
    left: list[str] = []
    progress = Progress(path)
    kind: Any = counting(Communicator, progress, left.append)  # type: ignore[arg-type]
    watched = Watched(path, os.getpid())
    comm = kind()
    assert watched.waits() == ("", 0.0)
    assert comm.bcast(lambda: watched.waits()[0]) == "bcast"
    assert comm.bcast(lambda: (watched.waits(), watched.waits()[1] > 0)[1])
    assert watched.waits() == ("", 0.0)
    assert comm.Split().bcast(lambda: watched.waits()[0]) == "bcast"
    assert comm.Abort(3) == "aborted with 3" and left == ["it called Abort(3)"]
    progress.close()
    watched.remove()
    assert watched.waits() == ("", 0.0)


def test_a_rank_that_gets_no_processor_does_not_wait(tmp_path: Path) -> None:
    (tmp_path / "counters").write_bytes(struct.pack("qq", 1, 2))
    with subprocess.Popen(["sleep", "600"]) as asleep, subprocess.Popen(["sh", "-c", "while :; do :; done"]) as busy:
        try:
            for process in (asleep, busy):
                watched = Watched(str(tmp_path / "counters"), process.pid)
                assert watched.waits()[0] == "bcast"
                eventually(lambda watched=watched: watched.waits()[1] > 0)  # type: ignore[misc]
            asleep.send_signal(signal.SIGSTOP)
            watched = Watched(str(tmp_path / "counters"), asleep.pid)
            eventually(lambda: watched.waits() == ("bcast", 0.0))
            asleep.send_signal(signal.SIGCONT)
            eventually(lambda: watched.waits()[1] > 0)
        finally:
            asleep.kill()
            busy.kill()
