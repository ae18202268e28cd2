"""Outputs handed over before their task ends: one test for each edge case, named after it."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.behaviour.modes import Gate, only_workers

import penstock
from penstock import (
    INOUT,
    DefinitionError,
    ReturnsMismatch,
    SerializationError,
    barrier,
    compss_ready_value,
    ready_file,
    ready_value,
    task,
    wait_on,
)

pytestmark = pytest.mark.usefixtures("runtime")


@task(returns=3)
def produce(gate: Gate | None = None, second: Gate | None = None) -> None:
    """Hands over its outputs; waits before the second and before its end, if there are gates."""
    ready_value(["first"], 0)
    if gate is not None:
        gate.enter()
    ready_value(["second"], 1)
    ready_value(["third"], 2)
    if second is not None:
        second.enter()


@task(returns=1)
def upper(words: list[str]) -> str:
    return words[0].upper()


@task(returns=1)
def together(*parts: Any) -> list[Any]:
    return list(parts)


@task(words=INOUT)
def push(words: list[str], word: str) -> None:
    words.append(word)


# --- the feature itself ---------------------------------------------------------------------------------------------


@only_workers
def test_consumers_start_while_the_producer_runs(gate: Gate) -> None:
    parts = produce(gate)
    assert upper(parts[0]).result(timeout=60) == "FIRST"
    later = upper(parts[1])
    assert not later.done()
    gate.open()
    assert later.result(timeout=60) == "SECOND"


def test_results_are_the_same_however_it_runs() -> None:
    assert wait_on([upper(part) for part in produce()]) == ["FIRST", "SECOND", "THIRD"]


def test_the_name_of_pycompss_means_the_same() -> None:
    @task(returns=2)
    def pair() -> None:
        compss_ready_value("b", 1)
        compss_ready_value("a", 0)

    assert wait_on(pair()) == ["a", "b"]


def test_an_index_may_be_left_out() -> None:
    @task(returns=3)
    def some() -> None:
        ready_value("b", 1)
        ready_value("a")
        ready_value("c")

    assert wait_on(some()) == ["a", "b", "c"]


def test_a_single_return_value_can_be_early() -> None:
    @task(returns=1)
    def one() -> None:
        ready_value("early", 0)

    assert wait_on(one()) == "early"


def test_a_nested_call_keeps_what_it_hands_over() -> None:
    @task(returns=1)
    def outer() -> Any:
        items = ["x"]

        @task(returns=2)
        def inner() -> None:
            ready_value(items, 1)
            items.append("later")
            ready_value(0, 0)

        return [part.result() for part in inner()]

    assert wait_on(outer()) == [0, ["x"]]


@only_workers
def test_a_thread_of_the_body_can_hand_over() -> None:
    @task(returns=2)
    def threaded() -> None:
        threads = [threading.Thread(target=ready_value, args=(i * 10, i)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert wait_on(threaded()) == [0, 10]


@only_workers
def test_a_thread_that_its_task_left_behind_is_told_why_it_cannot_hand_over(gate: Gate, tmp_path: Path) -> None:
    told = tmp_path / "told"

    @task(returns=1)
    def leaving(gate: Gate) -> str:
        def late() -> None:
            gate.enter()
            words = []
            for hand_over in (lambda: ready_value("late", 0), lambda: ready_file("late")):
                try:
                    hand_over()
                except ReturnsMismatch as error:
                    words.append(str(error))
            told.with_suffix(".new").write_text("\n".join(words))
            told.with_suffix(".new").rename(told)

        threading.Thread(target=late).start()
        return "its own"

    assert wait_on(leaving(gate)) == "its own"
    gate.open()
    until = time.monotonic() + 60
    while not told.exists() and time.monotonic() < until:
        time.sleep(0.01)
    words = told.read_text().splitlines()
    assert [line.partition(":")[0] for line in words] == [
        f"{call}() was called in a thread for which no task is running" for call in ("ready_value", "ready_file")
    ]


# --- the thirteen edge cases ----------------------------------------------------------------------------------------


@only_workers
def test_1_late_submission(gate: Gate) -> None:
    parts = produce(gate)
    assert parts[0].result(timeout=60) == ["first"]  # it is there before anybody asked for it in a task
    assert upper(parts[0]).result(timeout=60) == "FIRST"
    assert not parts[1].done()
    gate.open()


def test_2_order() -> None:
    @task(returns=200)
    def many() -> None:
        for index in reversed(range(200)):
            ready_value(index, index)

    # Were an end to overtake an output, the output would count as missing and be None.
    for parts in [many() for _ in range(5)]:
        assert wait_on(parts) == list(range(200))


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (1, r"ready_value\(…, 1\): output 1 of task \S+, which declares returns=2, was handed over already"),
        (2, r"ready_value\(…, 2\): task \S+ declares returns=2, so its outputs are 0 to 1"),
        (-1, r"ready_value\(…, -1\): task \S+ declares returns=2"),
        ("0", r"ready_value\(…, '0'\): task \S+ declares returns=2"),
        (True, r"ready_value\(…, True\): task \S+ declares returns=2"),
    ],
)
def test_3_duplicate_and_bad_index(index: Any, message: str) -> None:
    @task(returns=2)
    def clumsy() -> None:
        ready_value("fine", 1)
        ready_value("wrong", index)  # this line

    parts = clumsy()
    with pytest.raises(ReturnsMismatch, match=message) as caught:
        wait_on(parts[0])
    assert "# this line" in str(caught.value)
    assert wait_on(parts[1]) == "fine"


def test_3_a_bad_call_can_be_caught_in_the_task() -> None:
    @task(returns=1)
    def careful() -> None:
        ready_value("first", 0)
        try:
            ready_value("second", 0)
        except ReturnsMismatch:
            return
        raise AssertionError("nothing was raised")

    assert wait_on(careful()) == "first"


def test_3_a_task_that_declares_nothing() -> None:
    @task
    def silent() -> None:
        ready_value(1, 0)

    with pytest.raises(ReturnsMismatch, match="is for the body of a task that declares returns=N"):
        wait_on(silent())


def test_3_no_task_at_all() -> None:
    with pytest.raises(ReturnsMismatch, match=r"was called outside of a task.*use Runtime\(mode='inline'\)") as caught:
        ready_value(1, 0)
    assert caught.type is ReturnsMismatch
    with pytest.raises(ReturnsMismatch, match="was called outside of a task"):
        produce.__wrapped__()


@pytest.mark.parametrize("environ", [{}, {"PENSTOCK_MODE": "inline"}], ids=["workers", "in sequence"])
@only_workers
def test_3_a_program_that_starts_no_runtime(script: Any, environ: dict[str, str]) -> None:
    done = script(
        """
from penstock import ready_value, task, wait_on

@task(returns=3)
def produce(words):
    for index in (2, 0):
        ready_value(words, index)
        words.append("later")
    return None, "rest", None

@task(returns=1)
def joined(words):
    return " ".join(words)

parts = produce(["a", "b"])
print(wait_on(joined(parts[2])), "|", wait_on(joined(parts[0])), "|", wait_on(parts[1]))
""",
        **environ,
    )
    assert done.stdout == "a b | a b later | rest\n", done.stderr


def test_3_an_object_that_cannot_be_pickled() -> None:
    @task(returns=2)
    def hopeless() -> None:
        ready_value("fine", 0)
        ready_value(threading.Lock(), 1)

    parts = hopeless()
    with pytest.raises(SerializationError, match=r"output 1 of task .*hopeless"):
        wait_on(parts[1])
    assert wait_on(parts[0]) == "fine"


def test_4_mixing_with_return() -> None:
    @task(returns=3)
    def mixed() -> tuple[str, str, str]:
        ready_value("early", 1)
        return ("a", "ignored", "c")

    assert wait_on(mixed()) == ["a", "early", "c"]


def test_4_what_was_neither_handed_over_nor_returned_is_missing() -> None:
    @task(returns=3)
    def forgetful() -> None:
        ready_value("early", 1)

    parts = forgetful()
    with pytest.raises(ReturnsMismatch, match="neither handed over nor returned output 0, 2"):
        wait_on(parts[2])
    assert wait_on(parts[1]) == "early"


def test_4_a_return_of_another_length() -> None:
    @task(returns=3)
    def short() -> tuple[str, str]:
        ready_value("early", 1)
        return ("a", "c")

    parts = short()
    with pytest.raises(ReturnsMismatch, match="it must return nothing, or 3 values of which the others are taken"):
        wait_on(parts[0])
    assert wait_on(parts[1]) == "early"


def test_5_snapshot() -> None:
    @task(returns=4)
    def changing(large: int) -> None:
        words, numbers, many = ["before"], np.zeros(3), np.zeros(large)
        ready_value(words, 0)
        ready_value(numbers, 1)
        ready_value(many, 2)
        words.append("after")
        numbers += 1
        many += 1
        ready_value((words, numbers, many), 3)

    words, numbers, many, last = wait_on(changing(100_000))
    assert words == ["before"]
    assert numbers.tolist() == [0, 0, 0]
    assert many.sum() == 0
    assert last[0] == ["before", "after"]
    assert last[2].sum() == 100_000


@only_workers
def test_6_several_producers(gate: Gate, second_gate: Gate) -> None:
    with penstock.Runtime(cpus=3):
        one, other = produce(gate), produce(second_gate)
        # The same datum twice is one edge.
        both = together(one[1], other[1], one[1])
        assert together(one[0], other[0]).result(timeout=60) == [["first"], ["first"]]
        gate.open()
        one[2].result(timeout=60)
        assert not both.done()
        second_gate.open()
        assert both.result(timeout=60) == [["second"], ["second"], ["second"]]


@only_workers
def test_7_whole_list_consumers(gate: Gate) -> None:
    parts = produce(gate)
    whole = together(parts)
    parts[0].result(timeout=60)
    assert not whole.done()
    gate.open()
    assert whole.result(timeout=60) == [[["first"], ["second"], ["third"]]]


def test_8_failure_after_release_with_retry(tmp_path: Any) -> None:
    marker = str(tmp_path / "tried")

    @task(returns=3, retries=1)
    def flaky() -> None:
        attempt = 2 if os.path.exists(marker) else 1
        ready_value(f"attempt {attempt}", 0)
        if attempt == 1:
            open(marker, "w").close()
            raise RuntimeError("once")
        ready_value(f"attempt {attempt}", 1)
        ready_value(f"attempt {attempt}", 2)

    # What was handed over stays, although the second attempt makes it again.
    assert wait_on(flaky()) == ["attempt 1", "attempt 2", "attempt 2"]


def test_8_failure_after_release_without_retry() -> None:
    @task(returns=2)
    def failing() -> None:
        ready_value(["kept"], 0)
        raise RuntimeError("no more")

    parts = failing()
    used, unused = upper(parts[0]), upper(parts[1])
    assert wait_on(used) == "KEPT"
    with pytest.raises(penstock.DependencyFailed, match="no more"):
        wait_on(unused)
    with pytest.raises(RuntimeError, match="no more"):
        wait_on(parts[1])


def test_8_a_failure_after_the_last_output_is_not_lost() -> None:
    @task(returns=1)
    def failing() -> None:
        ready_value("kept", 0)
        raise RuntimeError("after the last output")

    part = failing()
    assert wait_on(part) == "kept"
    with pytest.raises(RuntimeError, match="after the last output"):
        barrier()
    assert wait_on(part) == "kept"


def test_8_the_rest_of_an_ignored_failure_is_none() -> None:
    @task(returns=2, on_failure="ignore")
    def failing() -> None:
        ready_value("kept", 0)
        raise RuntimeError("no more")

    assert wait_on(failing()) == ["kept", None]


def test_9_versions() -> None:
    parts = produce()
    before = together(parts[0])
    push(parts[0], "and more")
    after = together(parts[0])
    assert wait_on(before) == [["first"]]
    assert wait_on(after) == [["first", "and more"]]
    assert wait_on(parts[0]) == ["first", "and more"]


@only_workers
def test_9_a_released_value_is_updated_while_the_producer_runs(gate: Gate) -> None:
    parts = produce(gate)
    old = parts[0].result(timeout=60)
    push(parts[0], "and more")
    assert parts[0].result(timeout=60) == ["first", "and more"]
    assert old == ["first"]
    assert not parts[1].done()
    gate.open()


@only_workers
def test_10_wait_on_of_one_part_and_barrier(gate: Gate, second_gate: Gate) -> None:
    parts = produce(gate, second_gate)
    assert wait_on(parts[0]) == ["first"]
    gate.open()
    assert wait_on(parts) == [["first"], ["second"], ["third"]]
    assert parts[0].running()  # all values are there, and the producer goes on
    opener = threading.Timer(0.1, second_gate.open)
    opener.start()
    barrier()
    assert not parts[0].running()
    opener.join()


@only_workers
def test_11_locations(gate: Gate, runtime: penstock.Runtime) -> None:
    @task(returns=2)
    def large(gate: Gate) -> None:
        ready_value(np.arange(100_000), 0)
        gate.enter()
        ready_value(1, 1)

    parts = large(gate)
    parts[0].result(timeout=60)
    record = runtime.driver.engine.state.versions[parts[0].version]
    assert record.node == runtime.machine.hostname
    [piece] = record.outcome.pieces()  # type: ignore[union-attr]
    assert os.path.exists(runtime.segments.path(piece.segment, spilled=piece.spilled))
    gate.open()


@only_workers
def test_13_batching(gate: Gate) -> None:
    @task(returns=2000)
    def flood(gate: Gate) -> None:
        for index in range(2000):
            ready_value(index, index)
        while not os.path.exists(f"{gate.path}.seen"):  # computes, and never calls us
            pass

    parts = flood(gate)
    assert parts[-1].result(timeout=60) == 1999
    Path(f"{gate.path}.seen").touch()  # had it waited for the end of the body, neither would have come


# --- definitions ----------------------------------------------------------------------------------------------------


def test_what_cannot_be_declared() -> None:
    with pytest.raises(DefinitionError, match="ahead=2 is for tasks that declare returns=..."):
        task(returns=2, ahead=2)(lambda: None)
    with pytest.raises(DefinitionError, match="ahead=0 must be a whole number of at least 1"):
        task(returns=..., ahead=0)(lambda: None)

    def nothing() -> Any:
        yield 1

    with pytest.raises(DefinitionError, match="it yields values, but returns=0"):
        task(returns=0)(nothing)


@only_workers
def test_a_process_of_the_body_cannot_hand_over() -> None:
    @task(returns=1)
    def forking() -> int:
        child = os.fork()
        if child == 0:
            try:
                ready_value("from the child", 0)
            except penstock.TaskError:
                os._exit(3)
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert wait_on(forking()) == 3


def test_12_no_deadlock_with_one_worker() -> None:
    """Generators never wait for consumers: these run after it."""
    penstock.barrier()
    with penstock.Runtime(cpus=1):
        assert wait_on([upper(part) for part in produce()]) == ["FIRST", "SECOND", "THIRD"]
