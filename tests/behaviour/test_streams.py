"""Tasks that yield their outputs, and streams: any number of outputs, used while the task goes on."""

from __future__ import annotations

import asyncio
import gc
import itertools
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.behaviour.modes import Gate, only_workers

import penstock
from penstock import (
    COLLECTION_IN,
    COLLECTION_INOUT,
    INOUT,
    CallError,
    Future,
    PenstockError,
    ReturnsMismatch,
    Stream,
    barrier,
    cancel,
    ready_value,
    task,
    wait_on,
)

pytestmark = pytest.mark.usefixtures("runtime")


@task
def count(last: int) -> Iterator[int]:
    yield from range(last)


@task(returns=1)
def double(number: Any) -> Any:
    return number * 2


@task(returns=1, numbers=COLLECTION_IN)
def total(numbers: Any, extra: int = 0) -> int:
    return sum(numbers) + extra


@task(returns=...)
def gated(gate: Gate, second: Gate | None = None) -> Iterator[Any]:
    yield [0]
    gate.enter()
    yield [1]
    if second is not None:
        second.enter()


# --- a known number -------------------------------------------------------------------------------------------------


def test_yielded_values_are_the_outputs_in_order() -> None:
    @task(returns=3)
    def three() -> Iterator[str]:
        yield "a"
        yield "b"
        yield "c"

    a, b, c = three()
    assert wait_on(a, b, c) == ["a", "b", "c"]


def test_yield_takes_the_first_that_was_not_handed_over() -> None:
    @task(returns=3)
    def three() -> Iterator[str]:
        ready_value("first", 0)
        yield "second"
        yield "third"

    assert wait_on(three()) == ["first", "second", "third"]


def test_a_generator_may_return_the_rest() -> None:
    @task(returns=3)
    def three() -> Any:
        yield "a"
        return ("ignored", "b", "c")

    assert wait_on(three()) == ["a", "b", "c"]


def test_one_yield_too_many_is_an_error_at_its_line() -> None:
    @task(returns=1)
    def two() -> Iterator[int]:
        yield 1
        yield 2  # one too many

    part = two()
    assert wait_on(part) == 1
    with pytest.raises(ReturnsMismatch, match="declares returns=1 and hands over one output more") as caught:
        barrier()
    assert "yield 2  # one too many" in str(caught.value)


def test_one_yield_too_few() -> None:
    @task(returns=2)
    def one() -> Iterator[int]:
        yield 1

    first, second = one()
    with pytest.raises(ReturnsMismatch, match="neither handed over nor returned output 1"):
        wait_on(second)
    assert wait_on(first) == 1


# --- any number -----------------------------------------------------------------------------------------------------


def test_a_generator_gives_a_stream() -> None:
    stream = count(5)
    assert isinstance(stream, Stream)
    assert [future.result() for future in stream] == [0, 1, 2, 3, 4]
    assert len(stream) == 5
    assert list(stream) == []  # it was gone through


def test_an_empty_stream() -> None:
    stream = count(0)
    assert list(stream) == []
    assert len(stream) == 0
    assert wait_on(count(0)) == []


def test_wait_on_gives_the_list() -> None:
    assert wait_on(count(4)) == [0, 1, 2, 3]


def test_a_task_without_yield_can_have_any_number_too() -> None:
    @task(returns=...)
    def some(last: int) -> None:
        for number in range(last):
            ready_value(number)

    assert wait_on(some(3)) == [0, 1, 2]


def test_outputs_of_a_stream_come_in_order() -> None:
    @task(returns=...)
    def hasty() -> None:
        ready_value("a", 0)
        ready_value("c", 2)

    stream = hasty()
    assert next(stream).result() == "a"
    with pytest.raises(ReturnsMismatch, match=r"ready_value\(…, 2\).*the next is 1; leave the index out"):
        next(stream)


def test_a_stream_returns_nothing_else() -> None:
    @task
    def both() -> Any:
        yield 1
        return 2

    stream = both()
    assert next(stream).result() == 1
    with pytest.raises(ReturnsMismatch, match="it also returned a value of type int"):
        next(stream)


@only_workers
def test_outputs_are_used_while_the_producer_goes_on(gate: Gate) -> None:
    stream = gated(gate)
    first = next(stream)
    assert double(first).result(timeout=60) == [0, 0]
    assert not stream.done()
    with pytest.raises(TypeError, match="has no length yet"):
        len(stream)
    gate.open()
    assert [future.result(timeout=60) for future in stream] == [[1]]
    assert stream.done()


@only_workers
def test_an_output_by_its_number(gate: Gate) -> None:
    stream = gated(gate)
    assert stream[0].result() == [0]
    gate.open()
    assert stream[1].result() == [1]
    assert stream[-1].result() == [1]
    with pytest.raises(IndexError, match="no output 2"):
        stream[2]
    assert [future.result() for future in stream] == [[0], [1]]


def test_what_was_taken_and_let_go_is_gone() -> None:
    stream = count(3)
    next(stream)
    gc.collect()
    with pytest.raises(PenstockError, match="output 0 of .* was taken and let go"):
        stream[0]
    with pytest.raises(PenstockError, match="was taken and let go"):
        wait_on(stream)
    kept = list(stream)
    assert stream[1] is kept[0]


def test_a_failure_ends_the_stream() -> None:
    @task
    def failing() -> Iterator[int]:
        yield 1
        raise RuntimeError("no more")

    stream = failing()
    assert next(stream).result() == 1
    with pytest.raises(RuntimeError, match="no more"):
        next(stream)
    assert list(stream) == []  # as after the failure of a generator
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no more"):
            wait_on(stream)
    whole = failing()
    with pytest.raises(RuntimeError, match="no more"):
        wait_on(whole)


def test_a_retry_goes_on_where_the_first_attempt_failed(tmp_path: Any) -> None:
    marker = tmp_path / "tried"

    @task(retries=1)
    def flaky() -> Iterator[str]:
        attempt = 2 if marker.exists() else 1
        for number in range(4):
            if number == 2 and attempt == 1:
                marker.touch()
                raise RuntimeError("once")
            yield f"{number} of attempt {attempt}"

    expected = ["0 of attempt 1", "1 of attempt 1", "2 of attempt 2", "3 of attempt 2"]
    assert wait_on(flaky()) == expected


def test_an_ignored_failure_ends_the_stream_quietly() -> None:
    @task(on_failure="ignore")
    def failing() -> Iterator[int]:
        yield 1
        raise RuntimeError("no more")

    assert wait_on(failing()) == [1]


@only_workers
def test_a_stream_can_be_cancelled(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.executors.endings._GRACE", 0.0)  # it does not come to a yield
    stream = gated(gate)
    first = next(stream)
    assert cancel(stream)
    with pytest.raises(penstock.TaskCancelled):
        next(stream)
    assert first.result() == [0]


class Cleared:
    """Written by ``finally``, with the name of what came there."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._path.write_text("" if kind is None else ",".join(one.__name__ for one in kind.__mro__))


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, a body comes to its next ``yield`` in time."""
    monkeypatch.setattr("penstock.executors.endings._GRACE", 60.0)


@task(returns=...)
def endless(cleared: Cleared) -> Iterator[int]:
    with cleared:
        for number in itertools.count():
            yield number
            time.sleep(0.001)


@task(returns=..., ahead=1)
def held_back(cleared: Cleared) -> Iterator[int]:
    with cleared:
        yield from itertools.count()


@task(returns=...)
async def awaiting(cleared: Cleared) -> AsyncIterator[int]:
    with cleared:
        for number in itertools.count():
            yield number
            await asyncio.sleep(0.001)


@task(returns=...)
def without_yield(cleared: Cleared) -> None:
    with cleared:
        while True:
            ready_value(0)
            time.sleep(0.001)


@pytest.mark.usefixtures("patience")
@only_workers
@pytest.mark.parametrize("producer", [endless, held_back, awaiting, without_yield])
def test_a_cancelled_generator_is_closed(producer: Any, tmp_path: Path) -> None:
    stream = producer(Cleared(tmp_path / "cleared"))
    next(stream)
    assert cancel(stream)
    with pytest.raises(penstock.TaskCancelled, match="it was cancelled"):
        wait_on(stream)
    assert "GeneratorExit" in (tmp_path / "cleared").read_text()
    assert wait_on(count(3)) == [0, 1, 2]


@pytest.mark.usefixtures("patience")
@only_workers
def test_what_goes_wrong_in_clearing_up_is_told() -> None:
    @task(returns=...)
    def careless() -> Iterator[int]:
        try:
            for number in itertools.count():
                yield number
                time.sleep(0.001)
        finally:
            raise RuntimeError("cannot be cleared")

    stream = careless()
    next(stream)
    cancel(stream)
    with pytest.raises(RuntimeError, match="cannot be cleared"):
        wait_on(stream)


@pytest.mark.usefixtures("patience")
@only_workers
def test_a_generator_with_a_known_number_of_outputs_is_closed_too(tmp_path: Path) -> None:
    @task(returns=100_000)
    def numbers(cleared: Cleared) -> Iterator[int]:
        with cleared:
            for number in range(100_000):
                yield number
                time.sleep(0.001)

    futures = numbers(Cleared(tmp_path / "cleared"))
    assert futures[0].result() == 0
    assert cancel(futures[0]) or cancel(futures[-1])
    with pytest.raises(penstock.TaskCancelled):
        futures[-1].result()
    assert "GeneratorExit" in (tmp_path / "cleared").read_text()


@pytest.mark.usefixtures("patience")
@only_workers
def test_a_generator_whose_time_is_up_is_closed(tmp_path: Path) -> None:
    stream = endless.with_options(timeout=2)(Cleared(tmp_path / "cleared"))
    with pytest.raises(penstock.TaskTimeout):
        wait_on(stream)
    assert "GeneratorExit" in (tmp_path / "cleared").read_text()


def test_outputs_that_nobody_wants() -> None:
    count(100)
    barrier()
    stream = count(100)
    next(stream)
    del stream
    gc.collect()
    barrier()


# --- as an argument -------------------------------------------------------------------------------------------------


@only_workers
def test_a_task_waits_for_all_of_a_stream(gate: Gate, second_gate: Gate) -> None:
    @task(returns=1)
    def joined(parts: list[list[int]], more: list[list[int]]) -> list[int]:
        return [number for part in [*parts, *more] for number in part]

    stream = gated(gate, second_gate)
    first = next(stream)
    whole = joined(stream, more=stream)
    gate.open()
    assert next(stream).result(timeout=60) == [1]
    assert not whole.done()
    second_gate.open()
    assert whole.result(timeout=60) == [0, 1, 0, 1]
    assert first.result() == [0]


@pytest.mark.parametrize("numbers", [0, 1, 50])
def test_a_collection_can_be_a_stream(numbers: int) -> None:
    stream = count(numbers)
    early = total(stream)
    assert wait_on(early) == sum(range(numbers))
    late = total(stream, extra=1)
    assert wait_on(late) == sum(range(numbers)) + 1
    assert wait_on(total(count(3), 1)) == 4


def test_large_outputs_are_not_copied_for_a_task_that_takes_all() -> None:
    @task
    def arrays(number: int) -> Iterator[Any]:
        for index in range(number):
            yield np.full(50_000, index)

    @task(returns=1)
    def sums(parts: Any) -> list[int]:
        assert all(not part.flags.writeable for part in parts)
        return [int(part.sum()) for part in parts]

    stream = arrays(4)
    early = sums(stream)
    assert wait_on(early) == [0, 50_000, 100_000, 150_000]
    assert wait_on(sums(stream)) == [0, 50_000, 100_000, 150_000]


def test_a_failed_stream_fails_those_who_take_all_of_it() -> None:
    @task
    def failing() -> Iterator[int]:
        yield 1
        raise RuntimeError("no more")

    stream = failing()
    whole = total(stream)
    with pytest.raises((penstock.DependencyFailed, RuntimeError), match="no more"):
        wait_on(whole)
    with pytest.raises(RuntimeError, match="no more"):
        wait_on(stream)


def test_no_task_can_update_a_stream_as_a_whole() -> None:
    @task(numbers=COLLECTION_INOUT)
    def update(numbers: Any) -> None: ...

    stream = count(3)
    with pytest.raises(CallError, match="is declared COLLECTION_INOUT but is a Stream"):
        update(stream)
    assert wait_on(stream) == [0, 1, 2]


def test_tasks_update_outputs_of_a_stream() -> None:
    @task
    def lists(number: int) -> Iterator[list[int]]:
        for index in range(number):
            yield [index]

    @task(numbers=INOUT)
    def push(numbers: list[int]) -> None:
        numbers.append(-1)

    parts: list[Future[Any]] = []
    for part in lists(3):
        push(part)
        parts.append(part)
    assert wait_on(parts) == [[0, -1], [1, -1], [2, -1]]


@only_workers
def test_an_output_can_be_updated_once_the_program_knows_that_its_stream_is_over(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task was given the stream as a whole, and our own thread has yet to give it that."""
    from penstock.runtime.stream_source import StreamSource

    @task(numbers=INOUT)
    def push(numbers: list[int]) -> None:
        numbers.append(-1)

    @task(returns=1)
    def length(lists: Any) -> int:
        return len(lists)

    announce, later = StreamSource.announce, list[StreamSource]()
    monkeypatch.setattr(StreamSource, "announce", lambda self: later.append(self))
    stream = gated(gate)
    whole = length(stream)
    gate.open()
    parts = list(stream)
    push(parts[0])
    for source in later:
        announce(source)
    assert wait_on(whole, parts) == [2, [[0, -1], [1]]]


def test_streams_inside_tasks() -> None:
    @task(returns=1)
    def outer() -> Any:
        stream = count(4)
        first = next(stream).result()
        return [first, wait_on(stream), total(count(3)).result(), [future.result() for future in count(2)]]

    assert wait_on(outer()) == [0, [0, 1, 2, 3], 3, [0, 1]]


def test_a_failing_stream_inside_a_task() -> None:
    @task
    def failing() -> Iterator[int]:
        yield 1
        raise RuntimeError("no more")

    @task(returns=1)
    def outer() -> Any:
        stream = failing()
        first = next(stream).result()
        try:
            next(stream)
        except RuntimeError as error:
            return [first, str(error), list(stream)]
        return "nothing was raised"

    assert wait_on(outer()) == [1, "no more", []]


def test_async_for() -> None:
    async def gather() -> list[int]:
        return [await future async for future in count(4)]

    assert asyncio.run(gather()) == [0, 1, 2, 3]


def test_a_map_of_streams() -> None:
    streams = count.map([0, 2, 1])
    assert [wait_on(stream) for stream in streams] == [[], [0, 1], [0]]


def test_what_a_stream_says_of_itself() -> None:
    stream = count(2)
    wait_on(stream)
    assert repr(stream).endswith("2 outputs, over>")
    with pytest.raises(PenstockError, match="has no truth value"):
        bool(stream)


def test_a_stream_of_another_run() -> None:
    barrier()
    with penstock.Runtime(mode="inline"):
        stream = count(3)
    assert wait_on(total(stream)) == 3


def test_a_simulated_run_cannot_know_the_number() -> None:
    barrier()
    with (
        penstock.Runtime(mode="simulated"),
        pytest.raises(penstock.SimulatedValueError, match="only its body knows how many"),
    ):
        count(3)
