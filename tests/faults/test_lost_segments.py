"""Files of the store deleted or damaged under a running program: what was in them is computed again, or the loss told.

Whatever is lost, a result is the one of an undisturbed run, or ``DataLost`` says which file is gone and why that is
final.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.faults.programs import Gate, Tally

import penstock
from penstock import (
    COLLECTION_IN,
    COLLECTION_INOUT,
    FILE_IN,
    FILE_OUT,
    INOUT,
    DataLost,
    DependencyFailed,
    TaskCancelled,
    ready_value,
    task,
    wait_on,
)

if TYPE_CHECKING:
    from penstock import Runtime  # workers import this module, and need no engine

N = 20_000  # numbers of an array that lies in the store


@task
def make(value: float) -> Any:
    return np.full(N, value)


@task
def plus(*arrays: Any) -> Any:
    return sum(arrays[1:], arrays[0].copy())


@task(array=INOUT)
def add(array: Any, number: float) -> None:
    array += number


@task
def total(*arrays: Any) -> float:
    return float(sum(array.sum() for array in arrays))


@task(returns=3)
def three(value: float) -> tuple[Any, float, Any]:
    return np.full(N, value), value, np.full(N, 2 * value)


@task
def counted(tally: Tally, value: float) -> Any:
    tally.mark()
    return np.full(N, value)


@task
def listed(count: int) -> list[int]:
    return list(range(count))


def first(array: Any) -> float:
    return float(array[0])


def segment_files(runtime: Runtime) -> list[Path]:
    folders = (runtime.segments.memory_dir, *runtime.segments.spill_dirs)
    found = [path for folder in folders if os.path.isdir(folder) for path in Path(folder).glob("s*")]
    return [path for path in found if path.name[1:].isdigit()]


def come_to_rest(runtime: Runtime) -> None:
    """Wait until no task runs and no segment is on its way to disk."""
    penstock.barrier()
    store = runtime.driver.engine.state.store
    assert store is not None
    runtime.driver.wait_until(lambda: not store.spills)


def lose_everything(runtime: Runtime, how: str = "delete") -> int:
    """Delete or damage all segments, when no task runs; how many there were."""
    come_to_rest(runtime)
    files = segment_files(runtime)
    for path in files:
        if how == "delete":
            path.unlink()
        else:
            os.truncate(path, 0 if how == "empty" else path.stat().st_size // 2)
    return len(files)


@pytest.fixture(params=["memory", "disk"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Runtime]:
    """A runtime whose segments lie in memory, and one where they all go to disk."""
    options: dict[str, Any] = {} if request.param == "memory" else {"store_capacity": "1B"}
    yield penstock.start(cpus=2, **options)
    penstock.stop(abort=True)


# --- what the program asks for ------------------------------------------------------------------------------------


@pytest.mark.one_in(2)
@pytest.mark.parametrize("how", ["delete", "halve", "empty"])
def test_a_result_that_the_program_asks_for(stored: Runtime, how: str) -> None:
    future = make(3.0)
    assert lose_everything(stored, how) == 1
    assert first(future.result()) == 3.0


def test_a_result_that_the_program_has_is_its_own(runtime: Runtime, tally: Tally) -> None:
    future = counted(tally, 3.0)
    array = future.result()
    lose_everything(runtime)
    assert first(array) == first(future.result()) == 3.0
    assert tally.count() == 1


def test_bytes_changed_on_disk_are_noticed(tmp_path: Path) -> None:
    with penstock.start(cpus=2, store_capacity="1B", spill_dir=tmp_path) as runtime:
        future, sum_of_it = make(3.0), None
        come_to_rest(runtime)
        for path in segment_files(runtime):
            with open(path, "r+b") as file:
                file.seek(1000)
                file.write(b"\xff" * 8)
        sum_of_it = total(future)
        assert sum_of_it.result() == 3.0 * N
        assert first(future.result()) == 3.0


def test_large_lists_too(stored: Runtime) -> None:
    future = listed(100_000)
    lose_everything(stored)
    assert future.result() == list(range(100_000))


def test_all_ways_to_get_results(runtime: Runtime) -> None:
    futures = [make(number) for number in range(8)]
    lose_everything(runtime)
    assert first(wait_on(futures[0])) == 0
    assert [first(one) for one in wait_on(futures[1:3])] == [1, 2]
    assert first(next(penstock.as_completed([futures[3]])).result()) == 3
    done, _ = penstock.wait([futures[4]])
    assert first(done.pop().result()) == 4

    async def awaited() -> float:
        return first(await futures[5])

    assert asyncio.run(awaited()) == 5
    told: list[float] = []
    seen = threading.Event()

    def note(future: Any) -> None:
        told.append(first(future.result()))
        seen.set()

    futures[6].add_done_callback(note)
    assert seen.wait(60)
    assert told == [6]


def test_a_callback_in_the_control_thread_waits_for_what_is_computed_again(runtime: Runtime) -> None:
    lost = make(1.0)
    lose_everything(runtime)
    told: list[float] = []
    seen = threading.Event()

    def note(_: Any) -> None:
        told.append(first(lost.result()))
        seen.set()

    make(2.0).add_done_callback(note)
    assert seen.wait(60)
    assert told == [1]


def test_threads_that_ask_for_the_same(runtime: Runtime, tally: Tally) -> None:
    future = counted(tally, 3.0)
    lose_everything(runtime)
    values: list[float] = []
    threads = [threading.Thread(target=lambda: values.append(first(future.result()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert values == [3.0] * 4
    assert tally.count() == 2


def test_results_of_a_map(runtime: Runtime) -> None:
    mapped = make.map([float(number) for number in range(6)])
    lose_everything(runtime)
    assert first(mapped[2].result()) == 2
    assert total(mapped[3]).result() == 3.0 * N
    lose_everything(runtime)
    assert [first(array) for array in mapped.results()] == [0, 1, 2, 3, 4, 5]


def test_a_timeout_holds_for_what_is_computed_again(runtime: Runtime, tally: Tally, gate: Gate) -> None:
    future = held_back(tally, gate)
    lose_everything(runtime)
    with pytest.raises(TimeoutError, match="computed again"):
        future.result(timeout=0.2)
    gate.release()
    assert first(future.result()) == 1.0


@task
def held_back(tally: Tally, gate: Gate) -> Any:
    """At once the first time, and then not before it is released."""
    if tally.mark() > 1:
        gate.hold()
    return np.full(N, 1.0)


# --- what tasks need ----------------------------------------------------------------------------------------------


def test_an_input_of_a_task(stored: Runtime) -> None:
    future = make(3.0)
    lose_everything(stored)
    assert total(future).result() == 3.0 * N


def test_many_inputs_are_computed_again_at_once(runtime: Runtime, tally: Tally) -> None:
    futures = [counted(tally, 1.0) for _ in range(40)]
    lose_everything(runtime)
    assert total(*futures).result() == 40.0 * N
    assert tally.count() == 80


def test_a_chain_of_updates_in_place(stored: Runtime) -> None:
    array = make(0.0)
    for _ in range(100):
        add(array, 1.0)
    other = plus(array, array)
    assert lose_everything(stored) == 2
    assert first(other.result()) == 200
    assert first(wait_on(array)) == 100


def test_a_diamond_whose_top_is_gone(stored: Runtime) -> None:
    top = make(1.0)
    left, right = plus(top, top), plus(top, top, top)
    bottom = plus(left, right)
    del top, left, right
    lose_everything(stored)
    assert first(bottom.result()) == 5


def test_one_of_several_outputs(runtime: Runtime) -> None:
    one, small, other = three(2.0)
    penstock.barrier()
    newest = max(segment_files(runtime), key=lambda path: int(path.name[1:]))
    newest.unlink()
    assert (first(one.result()), small.result(), first(other.result())) == (2, 2, 4)


def test_collections(runtime: Runtime) -> None:
    arrays = [make(number) for number in range(5)]
    grow(arrays)
    lose_everything(runtime)
    assert summed(arrays).result() == sum(number + 1 for number in range(5)) * N
    assert [first(one) for one in wait_on(arrays)] == [1, 2, 3, 4, 5]


@task(arrays=COLLECTION_INOUT)
def grow(arrays: list[Any]) -> None:
    for array in arrays:
        array += 1


@task(arrays=COLLECTION_IN)
def summed(arrays: list[Any]) -> float:
    return float(sum(array.sum() for array in arrays))


def test_a_task_that_calls_tasks(runtime: Runtime) -> None:
    future = nested(3.0)
    lose_everything(runtime)
    assert total(future).result() == 6.0 * N


@task
def nested(value: float) -> Any:
    return plus(make(value), make(value)).result()


def test_losses_while_tasks_run(runtime: Runtime) -> None:
    """Deleted at any moment: attempts that have their data go on, the others say that they have not."""
    array = make(0.0)
    stop = threading.Event()

    def delete_now_and_then() -> None:
        while not stop.wait(0.02):
            for path in segment_files(runtime)[:1]:
                path.unlink(missing_ok=True)

    thread = threading.Thread(target=delete_now_and_then)
    thread.start()
    partial = []
    try:
        for _ in range(20):
            add(array, 1.0)
            partial.append(plus(array, array))
        penstock.wait(partial)
    finally:
        stop.set()
        thread.join()
    try:
        assert [first(one.result()) for one in partial] == [2 * (number + 1) for number in range(20)]
        assert first(wait_on(array)) == 20
    except (DataLost, DependencyFailed) as lost:
        if "3 times" not in str(lost):
            raise


def test_inline_what_is_on_disk(tmp_path: Path) -> None:
    with penstock.start(mode="inline", store_capacity="1B", spill_dir=tmp_path) as runtime:
        array = make(1.0)
        add(array, 1.0)
        if lose_everything(runtime):
            assert total(array).result() == 2.0 * N
            assert first(array.result()) == 2.0


# --- the task is run again, and that does not go well --------------------------------------------------------------


@task
def moody(tally: Tally, good: int, value: float) -> Any:
    if tally.mark() > good:
        raise ValueError("not any more")
    return np.full(N, value)


def test_it_fails_this_time(runtime: Runtime, tally: Tally) -> None:
    future = moody(tally, 1, 1.0)
    lose_everything(runtime)
    with pytest.raises(ValueError, match="not any more"):
        future.result()
    with pytest.raises(DependencyFailed, match="moody"):
        total(future).result()


@task(on_failure="retry", retries=2)
def stubborn(tally: Tally, bad: set[int]) -> Any:
    if tally.mark() in bad:
        raise ValueError("now and then")
    return np.full(N, 1.0)


def test_it_has_all_its_retries_again(runtime: Runtime, tally: Tally) -> None:
    future = stubborn(tally, {1, 2, 4, 5})
    lose_everything(runtime)
    assert first(future.result()) == 1.0
    assert tally.count() == 6


@task(array=INOUT, on_failure="ignore")
def spoil(array: Any) -> None:
    array += 1
    raise ValueError("ignored")


def test_a_failure_that_is_ignored(runtime: Runtime) -> None:
    array = make(1.0)
    spoil(array)
    lose_everything(runtime)
    assert first(wait_on(array)) == 1.0


def test_consumers_that_are_cancelled(runtime: Runtime, tally: Tally) -> None:
    future = capricious(tally)
    lose_everything(runtime)
    with pytest.raises(TaskCancelled):
        total(future).result()


@task(on_failure="cancel_successors")
def capricious(tally: Tally) -> Any:
    if tally.mark() > 1:
        raise ValueError("not any more")
    return np.full(N, 1.0)


def test_it_is_cancelled_while_it_is_run_again(runtime: Runtime, tally: Tally, gate: Gate) -> None:
    future = held_back(tally, gate)
    lose_everything(runtime)
    consumer = total(future)
    gate.wait_reached()
    assert penstock.cancel(future)
    with pytest.raises(TaskCancelled):
        consumer.result()


# --- what cannot be computed again --------------------------------------------------------------------------------


def test_shared_objects(runtime: Runtime) -> None:
    array = penstock.share(np.ones(N))
    lose_everything(runtime)
    with pytest.raises(DependencyFailed, match=r"the program: what it made is lost: .*/s\d+.* is gone"):
        total(array).result()


def test_large_arguments_are_stored_anew_if_the_program_has_them(runtime: Runtime) -> None:
    array = np.ones(N)
    assert total(array).result() == N
    lose_everything(runtime)
    assert total(array).result() == N


def test_large_arguments_that_the_program_has_are_used_again(runtime: Runtime) -> None:
    array = np.ones(N)
    future = plus(array, array)
    penstock.barrier()
    newest = max(segment_files(runtime), key=lambda path: int(path.name[1:]))
    newest.unlink()
    assert first(future.result()) == 2.0


def test_large_arguments_that_are_gone(runtime: Runtime) -> None:
    future = plus(np.ones(N), np.ones(N))
    lose_everything(runtime)
    with pytest.raises(DataLost, match=r"plus#1: its output is lost: .* is gone. It cannot be .*: arguments"):
        future.result()


def test_objects_of_the_program_that_a_task_updates(runtime: Runtime) -> None:
    array = np.ones(N)
    add(array, 1.0)
    add(array, 1.0)
    lose_everything(runtime)
    with pytest.raises(DataLost, match=r"add#2: .* needs an output of task add#1"):
        wait_on(array)


@task(path=FILE_OUT)
def save(array: Any, path: str) -> Any:
    np.save(Path(path).open("wb"), array)
    return array + 1


def test_one_that_wrote_a_file(runtime: Runtime, tmp_path: Path) -> None:
    future = save(make(1.0), str(tmp_path / "a.npy"))
    lose_everything(runtime)
    with pytest.raises(DataLost, match="wrote files"):
        future.result()
    assert np.load(tmp_path / "a.npy")[0] == 1.0


@task(path=FILE_IN)
def load(path: str) -> Any:
    return np.full(N, float(Path(path).read_text()))


def test_one_that_read_a_file(runtime: Runtime, tmp_path: Path) -> None:
    (tmp_path / "number").write_text("3")
    future = load(str(tmp_path / "number"))
    penstock.barrier()
    (tmp_path / "number").write_text("4")
    lose_everything(runtime)
    with pytest.raises(DataLost, match="may be another file by now"):
        future.result()


@task(returns=2)
def early() -> Any:
    ready_value(np.full(N, 1.0), 0)
    return None, np.full(N, 2.0)


def test_outputs_handed_over_early(runtime: Runtime) -> None:
    one, two = early()
    lose_everything(runtime)
    with pytest.raises(DataLost):
        one.result()
    with pytest.raises(DataLost, match="before its end"):
        two.result()


def test_a_disk_that_loses_everything_at_once(runtime: Runtime, tally: Tally) -> None:
    """Whatever is written is gone before anybody reads it; the program ends all the same."""
    future = counted(tally, 1.0)
    stop = threading.Event()

    def delete_all() -> None:
        while not stop.is_set():
            for path in segment_files(runtime):
                path.unlink(missing_ok=True)

    thread = threading.Thread(target=delete_all)
    thread.start()
    try:
        with pytest.raises((DataLost, DependencyFailed), match="lost"):
            for _ in range(100):
                total(future).result()
    finally:
        stop.set()
        thread.join()
    assert tally.count() <= 4


def test_after_the_end_of_the_run() -> None:
    with penstock.start(cpus=2) as runtime:
        future = make(1.0)
        lose_everything(runtime)
    with pytest.raises(DataLost, match="the run is over"):
        future.result()


# --- what is said about it ----------------------------------------------------------------------------------------


def test_the_user_is_told_once(runtime: Runtime, capfd: pytest.CaptureFixture[str]) -> None:
    futures = [make(1.0), make(2.0)]
    lose_everything(runtime)
    for future in futures:
        future.result()
    told = capfd.readouterr().err
    assert told.count("was lost") == 1
    assert "make#1" in told


def test_the_log_and_the_summary(tmp_path: Path) -> None:
    from penstock.observe.log import read_log
    from penstock.observe.records import Lost, RunEnded, Submitted
    from penstock.observe.summary import summary_lines
    from penstock.observe.tally import Tally as Counts

    with penstock.start(cpus=2, run_dir=tmp_path / "run") as runtime:
        array = make(1.0)
        add(array, 1.0)
        lose_everything(runtime)
        array.result()
    log = list(read_log(str(tmp_path / "run" / "events.jsonl")))
    [lost] = [record for record in log if isinstance(record, Lost)]
    assert (lost.task, lost.again) == (2, True)
    assert "is gone" in lost.why
    assert sorted(record.task for record in log if isinstance(record, Submitted) and record.again) == [1, 2]
    [ended] = [record for record in log if isinstance(record, RunEnded)]
    assert (ended.done, ended.failed) == (2, 0)
    counts = Counts()
    counts.add(log)
    assert "2 tasks done, 1 result lost, 2 tasks run again" in summary_lines(counts)[0]
