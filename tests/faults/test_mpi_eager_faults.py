"""MPI tasks whose ranks or keeper die, or that are given up, after ranks have handed outputs over."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pytest
from tests.faults.programs import Gate, Tally, TaskSide, empties
from tests.mpi_here import needs_mpi
from tests.patience import PATIENCE

import penstock
from penstock import TaskCancelled, barrier, cancel, mpi, ready_value, task, wait_on

if TYPE_CHECKING:
    from penstock import Runtime  # workers import this module, and need no engine

pytestmark = needs_mpi

LARGE = 50_000


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    """Units for two ranks, and two more."""
    yield penstock.start(cpus=4)
    penstock.stop(abort=True)


@mpi(processes=2)
@task(returns=4)
def two_each(gate: TaskSide, tally: Tally) -> None:
    """Every rank hands over one output before it stands at the gate, and one after."""
    comm = mpi.comm()
    attempt = comm.bcast(tally.mark() if comm.rank == 0 else None)
    ready_value(np.full(LARGE, attempt), comm.rank)
    gate.hold()
    ready_value(np.full(LARGE, attempt), 2 + comm.rank)


@task(returns=1)
def first_of(array: Any) -> int:
    return int(array[0])


def ranks_and_keeper() -> tuple[list[psutil.Process], psutil.Process]:
    """The ranks of our world, and the keeper, which has started the runner."""
    family = psutil.Process().children(recursive=True)
    (runner,) = [one for one in family if one.name().startswith("mpiexec")]
    keeper = runner.parent()
    assert keeper is not None
    ranks = [one for one in family if "penstock.executors.mpi_worker" in one.cmdline() and "python" in one.name()]
    return ranks, keeper


@pytest.mark.one_in(2)
@pytest.mark.parametrize("victim", ["rank", "keeper"])
def test_outputs_outlive_the_ranks_that_made_them(runtime: Runtime, gate: Gate, tally: Tally, victim: str) -> None:
    parts = two_each(gate, tally)
    before = [first_of(parts[0]), first_of(parts[1])]
    assert wait_on(before) == [1, 1]
    gate.wait_reached(2)
    ranks, keeper = ranks_and_keeper()
    (keeper if victim == "keeper" else ranks[-1]).kill()
    _, left = psutil.wait_procs(ranks, timeout=PATIENCE)
    assert not left
    gate.release()  # not before, or the other rank would have handed over more
    assert wait_on([first_of(part) for part in parts]) == [1, 1, 2, 2], "what was handed over stays"
    assert tally.count() == 2
    del parts, before
    gc.collect()
    barrier()
    assert empties(runtime.segments.memory_dir, runtime.segments.spill_dir)


def test_outputs_outlive_a_task_that_is_cancelled(runtime: Runtime, gate: Gate, tally: Tally) -> None:
    parts = two_each(gate, tally)
    assert wait_on([first_of(parts[0]), first_of(parts[1])]) == [1, 1]
    gate.wait_reached(2)
    cancel(parts[2])
    with pytest.raises(TaskCancelled):
        parts[2].result()
    assert parts[1].result()[0] == 1
    del parts
    gc.collect()
    assert empties(runtime.segments.memory_dir, runtime.segments.spill_dir)
