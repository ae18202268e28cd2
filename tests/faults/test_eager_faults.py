"""Producers that die, are given up or take too long after they have handed outputs over."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.faults.programs import Gate, Tally, TaskSide, empties
from tests.patience import Leap

import penstock
from penstock import (
    DependencyFailed,
    Stream,
    TaskCancelled,
    TaskTimeout,
    WorkerDied,
    barrier,
    cancel,
    ready_value,
    task,
    wait_on,
)

if TYPE_CHECKING:
    from penstock import Runtime  # workers import this module, and need no engine

LARGE = 200_000


@task(returns=3)
def produce_and_die(gate: TaskSide, tally: Tally, deaths: int) -> None:
    attempt = tally.mark()
    ready_value(np.full(LARGE, attempt), 0)
    ready_value(attempt, 1)
    gate.hold()
    if attempt <= deaths:
        os.kill(os.getpid(), signal.SIGKILL)
    ready_value(np.full(LARGE, attempt), 2)


@task(returns=1)
def first_of(array: Any) -> int:
    return int(array[0])


def test_outputs_outlive_the_worker_that_made_them(runtime: Runtime, gate: Gate, tally: Tally) -> None:
    parts = produce_and_die(gate, tally, 2)
    before = [first_of(parts[0]), parts[1]]
    assert wait_on(before) == [1, 1]
    gate.release()
    assert parts[2].result()[0] == 3
    assert parts[0].result()[0] == 1, "what was handed over stays, whatever later attempts make"
    assert parts[1].result() == 1
    assert tally.count() == 3
    del parts, before
    gc.collect()
    barrier()
    assert empties(runtime.segments.memory_dir, runtime.segments.spill_dir)


def test_outputs_outlive_a_task_that_cannot_be_tried_again(runtime: Runtime, gate: Gate, tally: Tally) -> None:
    parts = produce_and_die(gate, tally, 3)
    late = first_of(parts[2])
    gate.release()
    with pytest.raises(WorkerDied):
        parts[2].result()
    with pytest.raises(DependencyFailed):
        late.result()
    assert first_of(parts[0]).result() == 1
    del parts, late
    gc.collect()
    assert empties(runtime.segments.memory_dir, runtime.segments.spill_dir)


@task(returns=..., retries=1)
def stream_and_die(tally: Tally) -> Iterator[Any]:
    attempt = tally.mark()
    for index in range(6):
        yield np.full(LARGE, index)
        if index == 3 and attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)


def test_a_stream_goes_on_after_its_worker_was_killed(runtime: Runtime, tally: Tally) -> None:
    stream: Stream[Any] = stream_and_die(tally)
    sums = [first_of(part) for part in stream]
    assert wait_on(sums) == [0, 1, 2, 3, 4, 5]
    assert tally.count() == 2
    del stream, sums
    gc.collect()
    barrier()
    assert empties(runtime.segments.memory_dir, runtime.segments.spill_dir)


def test_a_producer_that_takes_too_long(runtime: Runtime, gate: Gate, leap: Leap) -> None:
    @task(returns=2, timeout=600)
    def slow(gate: TaskSide) -> None:
        ready_value(np.full(LARGE, 7), 0)
        gate.hold()

    parts = slow(gate)
    used, unused = first_of(parts[0]), first_of(parts[1])
    assert used.result() == 7
    leap(600)
    with pytest.raises(TaskTimeout):
        parts[1].result()
    with pytest.raises(DependencyFailed):
        unused.result()
    assert parts[0].result()[0] == 7
    del parts, used, unused
    gc.collect()
    assert empties(runtime.segments.memory_dir, runtime.segments.spill_dir)


def test_a_producer_that_is_cancelled(runtime: Runtime, gate: Gate) -> None:
    @task(returns=2)
    def slow(gate: TaskSide) -> None:
        ready_value(np.full(LARGE, 7), 0)
        gate.hold()

    parts = slow(gate)
    used, unused = first_of(parts[0]), first_of(parts[1])
    assert used.result() == 7
    assert cancel(parts[1])
    for future in (parts[1], unused):
        with pytest.raises(TaskCancelled):
            future.result()
    assert parts[0].result()[0] == 7
    assert first_of(parts[0]).result() == 7
    del parts, used, unused, future
    gc.collect()
    assert empties(runtime.segments.memory_dir, runtime.segments.spill_dir)


def test_a_producer_that_is_held_back_is_cancelled(runtime: Runtime) -> None:
    @task(returns=..., ahead=1)
    def endless() -> Iterator[int]:
        number = 0
        while True:
            yield number
            number += 1

    stream = endless()
    assert next(stream).result() == 0
    assert cancel(stream)
    with pytest.raises(TaskCancelled):
        for _ in stream:
            pass


def test_an_endless_producer_ends_with_the_run(gate: Gate) -> None:
    @task(returns=..., ahead=3)
    def endless() -> Iterator[Any]:
        while True:
            yield np.zeros(LARGE)

    runtime = penstock.Runtime(cpus=2)
    with runtime:
        stream = endless()
        next(stream)
        runtime.stop(abort=True)
    from penstock import PenstockError

    with pytest.raises(PenstockError):
        for _ in stream:
            pass


def test_outputs_that_a_dead_worker_had_not_sent_are_removed(runtime: Runtime, tally: Tally) -> None:
    @task(returns=50)
    def flood(tally: Tally) -> None:
        attempt = tally.mark()
        for index in range(50):
            ready_value(np.full(20_000, index), index)
        if attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)  # the last of the flood may not have left yet

    parts = flood(tally)
    assert [int(part.result()[0]) for part in parts] == list(range(50))
    del parts
    gc.collect()
    barrier()
    assert empties(runtime.segments.memory_dir, runtime.segments.spill_dir)
