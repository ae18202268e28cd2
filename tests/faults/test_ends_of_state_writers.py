"""A process that ends while its task's new state becomes the current one: the task has delivered, or nothing is new."""

from __future__ import annotations

import concurrent.futures
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.faults.programs import Gate, TaskSide

import penstock
from penstock import FILE_OUT, INOUT, PersistentObject, WorkerDied, cancel, task
from penstock.persistent.context import Outgoing

pytestmark = pytest.mark.leaks


class Counted(PersistentObject):
    """One number."""

    number = 0


def halt_at_publish(gate: TaskSide | None, *, after: bool) -> None:
    """Have this process stop, or die, right before or right after new states become the current ones."""
    publish = Outgoing.publish

    def halting(outgoing: Outgoing) -> None:
        if after:
            publish(outgoing)
        if gate is None:
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            gate.hold()
        if not after:
            publish(outgoing)

    Outgoing.publish = halting  # type: ignore[method-assign]


@task(counted=INOUT, returns=1, retries=0)
def count(counted: Counted, gate: TaskSide | None, after: bool) -> str:
    counted.number += 1
    halt_at_publish(gate, after=after)
    return "result"


@task(counted=INOUT, path=FILE_OUT, returns=1, retries=0)
def count_and_write(counted: Counted, path: Any, gate: TaskSide | None, after: bool) -> str:
    counted.number += 1
    with open(path, "w") as file:
        file.write("new")
    halt_at_publish(gate, after=after)
    return "result"


@pytest.fixture(autouse=True)
def _store(tmp_path: Path) -> Iterator[None]:
    penstock.stop()
    with penstock.Runtime(cpus=1, store=f"local:{tmp_path / 'store'}"):
        yield


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    gate = Gate(tmp_path)
    yield gate
    gate.close()


@pytest.fixture
def counted() -> Counted:
    counted = Counted()
    counted.make_persistent("counted")
    return counted


def stored() -> int:
    """What somebody finds who comes anew."""
    return Counted.get_by_id("counted").number  # type: ignore[no-any-return]


def test_cancelled_when_its_state_is_current(gate: Gate, counted: Counted) -> None:
    future = count(counted, gate, after=True)
    gate.wait_reached()
    cancel(future)
    assert future.result() == "result"
    penstock.wait_on(counted)
    assert counted.number == 1
    assert stored() == 1


def test_cancelled_before_its_state_is_current(gate: Gate, counted: Counted) -> None:
    future = count(counted, gate, after=False)
    gate.wait_reached()
    cancel(future)
    with pytest.raises(concurrent.futures.CancelledError):
        future.result()
    penstock.delete_object(counted)
    assert stored() == 0


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_death_while_its_state_becomes_current(counted: Counted, tmp_path: Path, after: bool) -> None:
    path = tmp_path / "out.txt"
    future = count_and_write(counted, path, None, after)
    if after:
        assert future.result() == "result"
    else:
        with pytest.raises(WorkerDied):
            future.result()
        penstock.delete_object(counted)
    penstock.wait([future])
    assert stored() == int(after)
    penstock.stop()
    assert path.exists() == after
