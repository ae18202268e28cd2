"""Early outputs used in ways that their own tests do not try: mistakes, leavers, and what programs do with streams."""

from __future__ import annotations

import concurrent.futures
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.behaviour.modes import Gate, only_workers

import penstock
from penstock import (
    FILE_IN,
    FILE_INOUT,
    FILE_OUT,
    INOUT,
    CallError,
    TaskError,
    barrier,
    ready_file,
    ready_value,
    task,
    wait_on,
)

pytestmark = pytest.mark.usefixtures("runtime")


@task(returns=...)
def numbers(last: int, gate: Gate | None = None) -> Any:
    yield from range(last)
    if gate is not None:
        gate.enter()


@task(returns=1)
def total(values: Any) -> int:
    return sum(values)


@task(returns=1)
def same(one: Any, other: Any) -> tuple[bool, Any]:
    return one is other, one


# --- returns --------------------------------------------------------------------------------------------------------


def test_the_same_output_twice_is_one_object_in_the_consumer() -> None:
    @task(returns=1)
    def one() -> None:
        ready_value(["x"], 0)

    part = one()
    assert wait_on(same(part, part)) == (True, ["x"])


@only_workers
def test_parameters_that_a_task_updates_come_at_its_end(gate: Gate) -> None:
    @task(returns=1, words=INOUT)
    def both(words: list[str], gate: Gate) -> None:
        words.append("during")
        ready_value(len(words), 0)
        gate.enter()
        words.append("at the end")

    words: list[str] = []
    count = both(words, gate)
    late = same(words, None)
    assert count.result(timeout=60) == 1
    assert not late.done()
    gate.open()
    assert late.result(timeout=60) == (False, ["during", "at the end"])


@only_workers
def test_a_failing_consumer_does_not_touch_the_producer(gate: Gate) -> None:
    @task(returns=2)
    def produce(gate: Gate) -> None:
        ready_value(0, 0)
        gate.enter()
        ready_value(2, 1)

    @task(returns=1)
    def inverse(number: int) -> float:
        return 1 / number

    parts = produce(gate)
    with pytest.raises(ZeroDivisionError):
        inverse(parts[0]).result(timeout=60)
    gate.open()
    assert wait_on(inverse(parts[1])) == 0.5


@only_workers
def test_each_future_of_a_cancelled_task_says_so(gate: Gate) -> None:
    @task
    def occupy(gate: Gate) -> None:
        gate.enter()

    @task(returns=3)
    def never() -> None:
        raise AssertionError("it ran")

    with penstock.Runtime(cpus=1):
        occupy(gate)
        parts = never()
        assert [part.cancel() for part in parts] == [True, True, True]
        assert all(part.cancelled() for part in parts)
        gate.open()


@only_workers
def test_a_thread_that_a_task_left_behind_does_not_hand_over_for_the_next(
    tmp_path: Path, gate: Gate, second_gate: Gate
) -> None:
    started = Gate(tmp_path / "started")

    @task(returns=1)
    def leaving(gate: Gate) -> str:
        def late() -> None:
            gate.enter()
            ready_value("of another task", 0)

        threading.Thread(target=late).start()
        return "its own"

    @task(returns=1)
    def patient(started: Gate, gate: Gate) -> str:
        started.enter()
        gate.enter()
        return "its own"

    with penstock.Runtime(cpus=1):
        assert wait_on(leaving(gate)) == "its own"
        value = patient(started, second_gate)
        started.open()
        gate.open()
        with pytest.raises(TimeoutError):  # long enough for the thread, which has passed its gate
            value.result(timeout=0.3)
        second_gate.open()
        assert value.result(timeout=60) == "its own"


# --- streams --------------------------------------------------------------------------------------------------------


@only_workers
def test_nothing_of_a_stream_stays_when_it_was_used(runtime: penstock.Runtime) -> None:
    for _ in range(20):
        assert [future.result() for future in numbers(2)] == [0, 1]
        assert wait_on(numbers(2)) == [0, 1]
        assert wait_on(total(numbers(3))) == 3
        numbers(2)
    barrier()
    # What a finaliser has noted is let go with the next event, so those of the last few may be there.
    assert len(runtime.driver.engine.state.versions) < 20


def test_two_consumers_of_a_whole_stream() -> None:
    stream = numbers(4)
    assert wait_on([total(stream), total(stream)]) == [6, 6]


def test_a_consumer_of_a_whole_stream_and_a_loop_over_it() -> None:
    stream = numbers(4)
    whole = total(stream)
    assert [future.result() for future in stream] == [0, 1, 2, 3]
    assert wait_on(whole) == 6
    assert list(stream) == []


@task(returns=...)
def lists(gate: Gate | None = None) -> Any:
    for number in range(3):
        yield [number]
    if gate is not None:
        gate.enter()


@task(words=INOUT)
def push(words: list[Any], gate: Gate | None = None, *, fails: bool = False) -> None:
    if gate is not None:
        gate.enter()
    if fails:
        raise ValueError("no update")
    words.append("more")


@task(returns=1)
def all_of(values: Any) -> list[Any]:
    return list(values)


def test_a_whole_stream_is_what_its_parts_are_at_the_call() -> None:
    stream = lists()
    before = all_of(stream)
    assert wait_on(before) == [[0], [1], [2]]
    parts = list(stream)
    push(parts[0])
    after = all_of(stream)
    push(parts[1])
    assert wait_on(after) == [[0, "more"], [1], [2]]
    assert wait_on(all_of(stream)) == [[0, "more"], [1, "more"], [2]]


@only_workers
@pytest.mark.parametrize("fails", [False, True])
def test_a_part_that_a_task_still_updates_when_the_stream_is_over_is_waited_for(
    gate: Gate, second_gate: Gate, fails: bool
) -> None:
    with penstock.Runtime(cpus=3):
        stream = lists(gate)
        first = next(stream)
        push(first, second_gate, fails=fails)
        whole = all_of(stream)
        gate.open()
        len(stream.futures())  # the stream is over
        assert not whole.done()
        second_gate.open()
        if fails:
            with pytest.raises(penstock.DependencyFailed, match="no update"):
                whole.result(timeout=60)
        else:
            assert whole.result(timeout=60) == [[0, "more"], [1], [2]]


@only_workers
def test_threads_that_share_a_stream_get_each_output_once() -> None:
    stream = numbers(200)
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        taken = [threads.submit(lambda: [future.result() for future in stream]) for _ in range(4)]
    assert sorted(number for part in taken for number in part.result()) == list(range(200))


@only_workers
def test_a_loop_that_is_left_early_lets_the_rest_go(runtime: penstock.Runtime, gate: Gate) -> None:
    for future in numbers(50, gate):
        if future.result() == 3:
            break
    gate.open()
    barrier()
    assert future.result() == 3
    assert len(runtime.driver.engine.state.versions) < 20


@only_workers
def test_a_stream_that_is_cancelled_ends_its_loop(gate: Gate) -> None:
    stream = numbers(2, gate)
    first = next(stream)
    penstock.cancel(stream)
    with pytest.raises(penstock.TaskCancelled):
        list(stream)
    assert first.result() == 0


@only_workers
@pytest.mark.parametrize("call", ["wait", "as_completed"])
def test_a_stream_among_futures_is_an_error_that_says_what_to_do(call: str) -> None:
    stream = numbers(2)
    with pytest.raises(CallError, match=rf"{call}\(\) takes futures.*Stream of task.*{call}\(\[\*a, \*b\]\)"):
        list(getattr(penstock, call)([stream]))
    assert wait_on(stream) == [0, 1]


def test_as_completed_takes_a_stream_itself() -> None:
    assert sorted(future.result() for future in penstock.as_completed(numbers(3))) == [0, 1, 2]


@only_workers
def test_a_stream_cannot_be_pickled_by_hand() -> None:
    with pytest.raises(TypeError, match="cannot be pickled: pass it to a task"):
        pickle.dumps(numbers(1))


def test_a_bad_output_is_raised_at_its_yield() -> None:
    @task
    def careful() -> Any:
        try:
            yield threading.Lock()
        except penstock.SerializationError:
            yield "instead"

    assert wait_on(careful()) == ["instead"]


def test_a_retry_that_yields_less_than_was_handed_over(tmp_path: Path) -> None:
    marker = tmp_path / "tried"

    @task(returns=..., retries=1)
    def shrinking() -> Any:
        again = marker.exists()
        marker.touch()
        yield from range(2 if again else 4)
        if not again:
            raise RuntimeError("once")

    assert wait_on(shrinking()) == [0, 1, 2, 3]


@task(returns=..., ahead=2)
def held(last: int) -> Any:
    yield from range(last)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: wait_on(total(held(2000))),
        lambda: sum(wait_on(held(2000))),
        lambda: sum(range(held(2000)[1999].result() + 1)),
    ],
    ids=["task", "wait_on", "by number"],
)
@only_workers
def test_a_limit_does_not_hold_up_who_waits_for_all_of_a_stream(gate: Gate, ask: Any) -> None:
    @task
    def occupy(gate: Gate) -> None:
        gate.enter()

    with penstock.Runtime(cpus=3):
        occupy(gate)  # as long as anything else runs, no output is let through for want of others
        assert ask() == sum(range(2000))
        gate.open()


# --- files ----------------------------------------------------------------------------------------------------------


@task(path=FILE_IN, returns=1)
def read(path: str) -> str:
    return Path(path).read_text()


@pytest.mark.parametrize("mode_of_opening", ["w", "a"])
@pytest.mark.parametrize("direction", [FILE_OUT, FILE_INOUT])
def test_what_is_written_to_a_file_after_it_was_handed_over_is_not_lost_quietly(
    in_folder: Path, direction: Any, mode_of_opening: str
) -> None:
    @task(path=direction)
    def hasty(path: str) -> None:
        Path(path).write_text("one")
        ready_file(path)
        with open(path, mode_of_opening) as file:
            file.write("two")

    Path("a").write_text("zero")
    hasty("a")
    early = read("a")
    with pytest.raises(TaskError, match=r"wrote to \S*/a after ready_file\(\) had handed it over"):
        barrier()
    assert wait_on(early) == "one"
    assert Path("a").read_text() == "one"


def test_a_retry_may_write_what_was_handed_over_before(in_folder: Path) -> None:
    marker = in_folder / "tried"

    @task(path=FILE_OUT, retries=1)
    def flaky(path: str) -> None:
        again = marker.exists()
        marker.touch()
        Path(path).write_text("second" if again else "first")
        ready_file(path)
        if not again:
            raise RuntimeError("once")

    flaky("a")
    barrier()
    assert Path("a").read_text() == "first"
