"""Pauses before further attempts: how long they are, who else goes on meanwhile, and what ends them early."""

from __future__ import annotations

import errno
import socket
import urllib.error

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.engine_rig import BOOM, Rig, call, failure_of, launched, settled, spec, value
from tests.unit.sim_rig import simulate

from penstock.engine.retries import pause_before
from penstock.executors.outages import is_outage
from penstock.model.events import Submitted
from penstock.model.tasks import Failure, FailureKind, OnFailure, TaskState
from penstock.sim.workloads import Workload

PAUSED = spec("paused", on_failure=OnFailure.RETRY, retries=3, retry_delay=10.0)
OUTAGE = Failure(FailureKind.EXCEPTION, "ConnectionRefusedError: no", outage=True)


# --- how long ---------------------------------------------------------------------------------------------------------


@given(st.floats(0.001, 1000.0), st.integers(1, 200), st.integers(1, 10**9))
def test_pauses_double_up_to_a_minute_and_are_up_to_half_as_long_again(delay: float, attempt: int, task: int) -> None:
    pause = pause_before(spec(retry_delay=delay), BOOM, attempt, task)
    wanted = min(delay * 2 ** (attempt - 1), max(60.0, delay))
    assert wanted <= pause <= 1.5 * wanted
    assert pause == pause_before(spec(retry_delay=delay), BOOM, attempt, task)


def test_tasks_that_failed_together_do_not_come_back_together() -> None:
    pauses = [pause_before(PAUSED, BOOM, 1, task) for task in range(100)]
    assert len({round(pause, 1) for pause in pauses}) > 30


def test_only_what_looks_like_an_outage_pauses_by_default() -> None:
    assert pause_before(spec(), BOOM, 1, 1) == 0.0
    assert 1.0 <= pause_before(spec(), OUTAGE, 1, 1) <= 1.5
    assert pause_before(spec(retry_delay=0.0), OUTAGE, 1, 1) == 0.0


# --- in the engine ----------------------------------------------------------------------------------------------------


def test_a_task_that_pauses_holds_nothing_and_starts_when_its_time_has_come() -> None:
    rig = Rig(lanes=1)
    rig.submit(call(1, PAUSED), call(2))
    assert launched(rig.fail(1)) == [2]
    assert rig.state(1) is TaskState.WAITING
    rig.finish(2)
    due = rig.engine.next_look()
    assert due is not None and 10.0 <= due <= 15.0
    assert launched(rig.tick(9.9)) == []
    assert launched(rig.tick(due - rig.now)) == [1]
    rig.finish(1)
    assert rig.engine.next_look() is None
    rig.release(101), rig.release(102)
    assert rig.empty


def test_each_further_pause_is_longer_and_the_last_failure_is_told_at_once() -> None:
    rig = Rig()
    rig.submit(call(1, PAUSED))
    pauses = []
    for _ in range(3):
        assert rig.fail(1) == []
        due = rig.engine.next_look()
        assert due is not None
        pauses.append(due - rig.now)
        assert launched(rig.tick(pauses[-1])) == [1]
    assert [10 <= pauses[0] <= 15, 20 <= pauses[1] <= 30, 40 <= pauses[2] <= 60] == [True] * 3
    assert failure_of(rig.fail(1), 101).attempt == 4


def test_a_task_that_pauses_can_be_cancelled() -> None:
    rig = Rig()
    rig.submit(call(1, PAUSED))
    rig.fail(1)
    assert failure_of(rig.cancel(1), 101).kind is FailureKind.CANCELLED
    rig.release(101)
    assert rig.empty and rig.engine.next_look() is None


def test_a_task_that_pauses_fails_when_no_node_is_left() -> None:
    rig = Rig()
    rig.submit(call(1, PAUSED))
    rig.fail(1)
    assert failure_of(rig.lose_node("n"), 101).kind is FailureKind.UNPLACEABLE


def test_a_call_may_begin_with_a_pause_and_waits_for_its_data_too() -> None:
    rig = Rig()
    rig.submit(call(1))
    assert launched(rig.tell(Submitted(call(2, slots=(101,)), pause=5.0))) == []
    assert launched(rig.tick(5.0)) == []
    assert launched(rig.finish(1, value("x"))) == [2]
    rig.tell(Submitted(call(3, slots=(101,)), pause=5.0))
    assert settled(rig.finish(2)) == {102: value("x")}
    assert launched(rig.tick(5.0)) == [3]


# --- on virtual time --------------------------------------------------------------------------------------------------


def test_simulated_attempts_pause_on_virtual_time() -> None:
    workload = Workload()
    workload.task("f", seconds=1.0, fails_first=2, retries=2, retry_delay=30.0)
    outcome = simulate(workload)
    assert outcome.done == 1
    assert 3.0 + 30 + 60 <= outcome.makespan <= 3.0 + 1.5 * 90


# --- what looks like an outage ----------------------------------------------------------------------------------------


class LibraryError(Exception):
    """What a library makes of an exception of Python's."""


def wrapped(error: BaseException, *, shown: bool = True) -> BaseException:
    try:
        try:
            raise error
        except BaseException as reason:
            if shown:
                raise LibraryError("cannot reach the server") from reason
            raise LibraryError("bad input") from None
    except LibraryError as outer:
        return outer


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(errno.ECONNREFUSED, "refused"),
        ConnectionError("gone"),
        TimeoutError("timed out"),
        BlockingIOError(errno.EAGAIN, "try again"),
        OSError(errno.EIO, "I/O error"),
        OSError(errno.ESTALE, "stale file handle"),
        OSError(errno.ENOTCONN, "not connected"),
        OSError(errno.EHOSTUNREACH, "no route"),
        socket.gaierror(socket.EAI_AGAIN, "temporary failure in name resolution"),
        urllib.error.URLError(ConnectionResetError(errno.ECONNRESET, "reset")),
        wrapped(TimeoutError("timed out")),
    ],
    ids=repr,
)
def test_what_looks_like_an_outage(error: BaseException) -> None:
    assert is_outage(error)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        FileNotFoundError(errno.ENOENT, "no such file"),
        OSError(errno.ENOSPC, "full"),
        PermissionError(errno.EACCES, "denied"),
        socket.gaierror(socket.EAI_NONAME, "no such name"),
        wrapped(ConnectionError("gone"), shown=False),
        wrapped(KeyError("x")),
    ],
    ids=repr,
)
def test_what_does_not(error: BaseException) -> None:
    assert not is_outage(error)


def test_exceptions_that_lead_to_each_other_are_looked_at_once() -> None:
    first, second = ValueError("one"), ValueError("two")
    first.__context__, second.__context__ = second, first
    assert not is_outage(first)
