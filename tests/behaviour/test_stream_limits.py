"""Long streams in bounded memory: values go as they are used, and a producer can be held back."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.behaviour.modes import Gate
from tests.faults.programs import segments_in
from tests.patience import eventually

import penstock
from penstock import barrier, task, wait_on

MB = 1_000_000


@task(returns=1)
def total(part: Any) -> int:
    return int(part[0]) * len(part)


@pytest.mark.long
def test_a_long_stream_in_little_memory() -> None:
    """2000 arrays of 1 MB through a store of 40 MB, without anything going to the disk."""

    @task(returns=..., ahead=16)
    def limited(number: int) -> Iterator[Any]:
        for index in range(number):
            yield np.full(MB, index % 251, dtype=np.uint8)

    with penstock.Runtime(cpus=2, store_capacity="40MB") as runtime:
        most = 0
        sums = []
        for part in limited(2000):
            sums.append(total(part))
            del part
            most = max(most, runtime.driver.engine.state.store.used)
        assert sum(wait_on(sums)) == sum(index % 251 for index in range(2000)) * MB
        assert MB <= most <= 30 * MB
        assert segments_in(runtime.segments.spill_dir) == []


def test_values_go_while_the_producer_goes_on(gate: Gate) -> None:
    @task(returns=...)
    def gated(gate: Gate) -> Iterator[Any]:
        for index in range(20):
            yield np.full(MB, index, dtype=np.uint8)
        gate.enter()

    with penstock.Runtime(cpus=2) as runtime:
        stream = gated(gate)
        assert wait_on([total(next(stream)) for _ in range(20)]) == [index * MB for index in range(20)]
        assert not stream.done()
        deadline = time.monotonic() + 60
        while segments_in(runtime.segments.memory_dir) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert segments_in(runtime.segments.memory_dir) == []
        gate.open()


def produced(folder: Path) -> int:
    return len(os.listdir(folder))


def after(folder: Path, count: int) -> int:
    """How many outputs there are a while after there were so many."""
    eventually(lambda: produced(folder) >= count)
    time.sleep(0.2)  # time for a mistake
    return produced(folder)


@task(returns=..., ahead=4)
def numbered(folder: Path, number: int) -> Iterator[int]:
    for index in range(number):
        (folder / str(index)).touch()
        yield index


@task(returns=1)
def use(number: Any) -> Any:
    return number


@task(returns=1)
def use_at(gate: Gate, number: Any) -> Any:
    gate.enter()
    return number


@pytest.fixture
def held_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is let go because the program does not say that it waits, however long that takes."""
    monkeypatch.setattr("penstock.runtime.stream_sources._PATIENCE", 600.0)


@pytest.mark.usefixtures("held_for_good")
def test_a_producer_is_held_back_until_the_program_has_looked(tmp_path: Path) -> None:
    with penstock.Runtime(cpus=2):
        stream = numbered(tmp_path, 50)
        # The fifth is made, and waits to be handed over.
        assert after(tmp_path, 5) == 5
        assert next(stream).result() == 0
        assert after(tmp_path, 6) == 6
        kept = [next(stream) for _ in range(3)]
        assert after(tmp_path, 6) == 6  # taken, not used
        assert wait_on(kept) == [1, 2, 3]
        assert after(tmp_path, 9) == 9
        assert [future.result() for future in stream] == list(range(4, 50))


@pytest.mark.usefixtures("held_for_good")
def test_a_producer_is_held_back_until_tasks_have_read(tmp_path: Path, gate: Gate) -> None:
    with penstock.Runtime(cpus=2):
        stream = numbered(tmp_path, 50)
        first, second = next(stream), next(stream)
        held = use_at(gate, first)
        del first
        # It may be let go a little further, while the program waits for what is there.
        assert 5 <= after(tmp_path, 5) <= 10
        gate.open()
        assert held.result(timeout=60) == 0
        used = use(second)  # its future is kept; the task has read it all the same
        assert used.result(timeout=60) == 1
        assert 6 <= after(tmp_path, 6) <= 16
        assert wait_on([use(part) for part in stream]) == list(range(2, 50))


def test_what_nobody_wants_holds_nobody_back(tmp_path: Path) -> None:
    with penstock.Runtime(cpus=2):
        numbered(tmp_path, 50)
        barrier()
        assert produced(tmp_path) == 50


@pytest.mark.parametrize("cpus", [1, 2])
def test_no_deadlock(tmp_path: Path, cpus: int) -> None:
    """With one worker there is nobody to use outputs while the producer waits, so it is let go on."""
    with penstock.Runtime(cpus=cpus):
        assert wait_on([use(part) for part in numbered(tmp_path, 30)]) == list(range(30))


def test_no_deadlock_when_producers_have_all_workers(tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(3)]
    for folder in folders:
        folder.mkdir()
    with penstock.Runtime(cpus=2):
        streams = [numbered(folder, 20) for folder in folders]
        for stream in streams:
            assert wait_on([use(part) for part in stream]) == list(range(20))


def test_no_deadlock_when_all_futures_are_kept(tmp_path: Path) -> None:
    with penstock.Runtime(cpus=2):
        assert wait_on(numbered(tmp_path, 30)) == list(range(30))
        for entry in tmp_path.iterdir():
            entry.unlink()
        kept = list(numbered(tmp_path, 30))
        assert wait_on(kept) == list(range(30))


def test_no_deadlock_when_the_program_collects_outputs_itself(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else saw that the producer is held back: the thread that has to let it go on sleeps until it is woken."""

    @task(returns=..., ahead=4)
    def gated(gate: Gate) -> Iterator[int]:
        gate.enter()
        yield from range(6)

    with penstock.Runtime(cpus=1) as runtime:
        driver = runtime.driver
        executor: Any = driver.executor
        woken, asleep, poll, wake = threading.Event(), threading.Event(), executor.poll, executor.wake

        def wake_too() -> None:
            woken.set()
            wake()

        def poll_when_nobody_looks(timeout: float | None) -> Any:
            if timeout is not None and timeout < 1:
                return poll(timeout)
            while not woken.wait(0.01):
                asleep.set()
                if not driver._looking and (ready := poll(0)):
                    return ready
            woken.clear()
            return []

        def open_when_the_program_looks() -> None:
            while not driver._looking:
                time.sleep(0.001)
            gate.open()

        monkeypatch.setattr("penstock.runtime.driver._LOOK", 0.5)
        monkeypatch.setattr(executor, "wake", wake_too)
        monkeypatch.setattr(executor, "poll", poll_when_nobody_looks)
        stream = gated(gate)
        woken.clear()
        wake()
        assert asleep.wait(60)
        opener = threading.Thread(target=open_when_the_program_looks)
        opener.start()
        assert wait_on(list(stream)) == list(range(6))
        opener.join()


def test_no_deadlock_when_the_program_waits_in_a_way_of_its_own(tmp_path: Path) -> None:
    with penstock.Runtime(cpus=1):
        stream = numbered(tmp_path, 6)
        used: list[int] = []
        done = threading.Event()

        def note(future: Any) -> None:
            used.append(future.result())
            if len(used) == 2:
                done.set()

        for _ in range(2):
            use(next(stream)).add_done_callback(note)
        assert done.wait(60)
        assert sorted(used) == [0, 1]


@pytest.mark.usefixtures("held_for_good")
def test_a_retry_is_held_back_too(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    folder.mkdir()
    marker = tmp_path / "tried"

    @task(returns=..., ahead=2, retries=1)
    def flaky(number: int) -> Iterator[int]:
        for index in range(number):
            if index == 5 and not marker.exists():
                marker.touch()
                raise RuntimeError("once")
            (folder / str(index)).touch()
            yield index

    with penstock.Runtime(cpus=2):
        stream = flaky(20)
        assert [next(stream).result() for _ in range(5)] == [0, 1, 2, 3, 4]
        assert after(folder, 8) == 8  # two are handed over, one more waits
        assert [part.result() for part in stream] == list(range(5, 20))


def test_inline_there_is_nothing_to_hold_back(tmp_path: Path) -> None:
    with penstock.Runtime(mode="inline"):
        assert wait_on(numbered(tmp_path, 30)) == list(range(30))
