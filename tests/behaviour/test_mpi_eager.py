"""Outputs that the ranks of an MPI task hand over before it ends: who may start when, and who must say what."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.behaviour.modes import Gate
from tests.faults.programs import empties
from tests.mpi_here import needs_mpi

import penstock
from penstock import (
    FILE_IN,
    FILE_INOUT,
    FILE_OUT,
    SCATTER,
    DefinitionError,
    ReturnsMismatch,
    TaskError,
    io,
    mpi,
    ready_file,
    ready_value,
    task,
    wait_on,
)
from penstock.observe import records
from penstock.observe.log import read_log

pytestmark = needs_mpi


@pytest.fixture(scope="module")
def _eight_units() -> Iterator[penstock.Runtime]:
    with penstock.Runtime(cpus=8) as runtime:
        yield runtime


@pytest.fixture(autouse=True)
def runtime(_eight_units: penstock.Runtime) -> Iterator[penstock.Runtime]:
    yield _eight_units
    penstock.barrier()


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    gate = Gate(tmp_path / "gate")
    yield gate
    gate.release_everybody()


@task(returns=1)
def double(number: Any) -> Any:
    return 2 * number


# --- values -----------------------------------------------------------------------------------------------------------


@mpi(processes=2)
@task(returns=6)
def three_each(gate: Gate | None = None) -> None:
    """Rank 0 hands over the even outputs, at once; rank 1 the odd ones, once the gate is open."""
    rank = mpi.comm().rank
    if rank == 1 and gate is not None:
        gate.enter()
    for index in range(rank, 6, 2):
        ready_value(10 * index, index)


def test_ranks_hand_over_outputs_by_their_number_among_all() -> None:
    assert wait_on(three_each()) == [0, 10, 20, 30, 40, 50]


def test_consumers_of_a_fast_rank_start_while_a_slow_one_works(gate: Gate) -> None:
    parts = three_each(gate)
    doubled = [double(part) for part in parts]
    assert [doubled[index].result(timeout=60) for index in (0, 2, 4)] == [0, 40, 80]
    assert not any(parts[index].done() for index in (1, 3, 5))
    gate.open()
    assert wait_on(doubled) == [0, 20, 40, 60, 80, 100]


def test_an_output_may_be_there_before_anybody_wants_it(gate: Gate) -> None:
    parts = three_each(gate)
    assert parts[4].result(timeout=60) == 40
    assert double(parts[4]).result(timeout=60) == 80
    gate.open()


@mpi(processes=2)
@task(returns=4, offsets=SCATTER)
def large_arrays(offsets: list[int]) -> None:
    for index in offsets:
        array = np.full(50_000, index)
        ready_value(array, index)
        array += 1000  # what was handed over stays as it was


def test_large_values_are_those_of_the_moment_and_leave_no_segment(runtime: penstock.Runtime) -> None:
    for _ in range(2):  # the second time in the same world
        parts = wait_on(large_arrays([0, 1, 2, 3]))
        assert [part.tolist() for part in parts] == [[index] * 50_000 for index in range(4)]
        del parts
        assert empties(runtime.segments.memory_dir)


@mpi(processes=2)
@task(returns=3000)
def very_many() -> None:
    comm = mpi.comm()
    for index in range(comm.rank * 1500, (comm.rank + 1) * 1500):
        ready_value(index, index)


def test_many_outputs_of_several_ranks_all_arrive() -> None:
    assert wait_on(very_many()) == list(range(3000))


@mpi(processes=2)
@task(returns=2)
def by_a_thread() -> None:
    rank = mpi.comm().rank
    thread = threading.Thread(target=ready_value, args=(rank, rank))
    thread.start()
    thread.join()


def test_a_thread_of_a_rank_can_hand_over() -> None:
    assert wait_on(by_a_thread()) == [0, 1]


@io
@mpi(processes=2)
@task(returns=2)
def read_both(gate: Gate) -> None:
    rank = mpi.comm().rank
    if rank == 1:
        gate.enter()
    ready_value(rank + 1, rank)


def test_ranks_of_an_io_task_leave_the_units_to_consumers(gate: Gate) -> None:
    with penstock.Runtime(cpus=1):
        parts = read_both(gate)
        assert double(parts[0]).result(timeout=60) == 2
        gate.open()
        assert double(parts[1]).result(timeout=60) == 4


# --- what ranks return then -------------------------------------------------------------------------------------------


@mpi(processes=2)
@task(returns=2)
def first_hands_over_the_second(own: Any) -> Any:
    """Rank 0 hands over output 1, so what rank 1 returns is one too many, and returns its own."""
    if mpi.comm().rank == 0:
        ready_value("one", 1)
        return own
    return np.ones(50_000)


def test_with_as_many_outputs_as_ranks_a_rank_returns_the_one_of_its_number(runtime: penstock.Runtime) -> None:
    assert wait_on(first_hands_over_the_second("zero")) == ["zero", "one"]
    assert empties(runtime.segments.memory_dir)


def test_an_output_that_no_rank_made_is_missing() -> None:
    with pytest.raises(ReturnsMismatch, match="none of its 2 ranks handed over or returned output 0"):
        wait_on(first_hands_over_the_second(None)[0])


@mpi(processes=2)
@task(returns=5)
def some_of_five(*indices: int, result: Any = None) -> Any:
    if mpi.comm().rank == 1:
        for index in indices:
            ready_value(index, index)
        return result
    return None


def test_missing_outputs_are_named_and_the_others_stay() -> None:
    parts = some_of_five(3, 0)
    assert (parts[0].result(), parts[3].result()) == (0, 3)
    with pytest.raises(ReturnsMismatch, match="some_of_five declares returns=5, but none of its 2 .* output 1, 2, 4$"):
        wait_on(parts[1])


def test_with_other_numbers_nobody_can_say_which_output_a_return_value_is() -> None:
    with pytest.raises(ReturnsMismatch, match="rank 1 of 2: it returned a value, but .* declares returns=5"):
        wait_on(some_of_five(0, 1, 2, 3, result="four")[4])


def test_without_any_the_error_tells_of_both_ways() -> None:
    with pytest.raises(
        ReturnsMismatch, match=r"returns=5 but its 2 ranks .* returns=list or returns=2, or .*ready_value"
    ):
        wait_on(some_of_five()[0])


# --- bad calls --------------------------------------------------------------------------------------------------------


@mpi(processes=2)
@task(returns=3)
def twice_over_ranks() -> None:
    comm = mpi.comm()
    if comm.rank == 0:
        ready_value(np.zeros(50_000), 1)
        ready_value("it is heard", 0)
    comm.Barrier()
    if comm.rank == 1:
        ready_value(np.ones(50_000), 1)
    comm.Barrier()


def test_an_output_handed_over_by_two_ranks_names_both(runtime: penstock.Runtime) -> None:
    parts = twice_over_ranks()
    complaint = (
        r"rank (.) of 2: it handed over output 1 of task twice_over_ranks, which rank (.) had handed over already"
    )
    with pytest.raises(ReturnsMismatch, match=complaint) as caught:
        wait_on(parts[2])
    named = re.search(complaint, str(caught.value))
    assert named is not None and {named[1], named[2]} == {"0", "1"}
    assert set(parts[1].result()) in ({0.0}, {1.0})  # that of the first that was heard
    del parts
    assert empties(runtime.segments.memory_dir)


@mpi(processes=2)
@task(returns=2)
def one_rank_calls(*calls: Any) -> Any:
    if mpi.comm().rank == 0:
        return "nothing wrong"
    for call in calls[:-1]:
        ready_value("x", *call)
    try:
        ready_value("x", *calls[-1])
    except ReturnsMismatch as error:
        return str(error)


@pytest.mark.parametrize(
    ("calls", "complaint"),
    [
        ([(2,)], r"ready_value\(…, 2\): task one_rank_calls declares returns=2, so its outputs are 0 to 1"),
        ([(-1,)], r"ready_value\(…, -1\): task one_rank_calls declares returns=2"),
        ([()], r"ready_value\(…\): MPI task one_rank_calls has 2 outputs over all its ranks.*give the index"),
    ],
    ids=["too large", "negative", "left out"],
)
def test_a_bad_call_is_an_error_at_its_line(calls: list[Any], complaint: str) -> None:
    first, second = wait_on(one_rank_calls(*calls))
    assert first == "nothing wrong"
    assert re.match(complaint, second), second


@mpi(processes=2)
@task(returns=2)
def one_rank_repeats() -> Any:
    comm = mpi.comm()
    for _ in range(2):
        if comm.rank == 1:
            ready_value("x", 1)
    comm.Barrier()


def test_an_output_handed_over_twice_by_a_rank_shows_the_line() -> None:
    with pytest.raises(
        ReturnsMismatch, match=r"rank 1 of 2: ready_value\(…, 1\): output 1 .* handed over already"
    ) as it:
        wait_on(one_rank_repeats()[0])
    assert 'ready_value("x", 1)' in str(it.value.__cause__ or it.value)


@mpi(processes=2)
@task(returns=list)
def one_list() -> None:
    ready_value("x", mpi.comm().rank)


@mpi(processes=2)
@task(returns=0)
def without_outputs(index: int | None) -> Any:
    if index is None:
        return "something"
    return ready_value("x", index)


def test_the_list_of_all_ranks_cannot_be_handed_over() -> None:
    with pytest.raises(ReturnsMismatch, match="is one list of what its 2 ranks return; .* returns=N"):
        wait_on(one_list())


def test_a_task_without_outputs_has_none_to_hand_over() -> None:
    with pytest.raises(ReturnsMismatch, match="without_outputs does not declare how many values it returns"):
        wait_on(without_outputs(0))
    with pytest.raises(ReturnsMismatch, match="rank 0 of 2: task without_outputs declares returns=0 but returned"):
        wait_on(without_outputs(None))


def test_ranks_do_not_yield_and_do_not_stream() -> None:
    def body() -> Any:
        yield 1

    for returns in (2, None, ...):
        with pytest.raises(DefinitionError, match="@mpi of .*body: it yields its outputs.*ready_value"):
            mpi(processes=2)(task(returns=returns)(body))
    with pytest.raises(DefinitionError, match=r"@mpi of .*: returns=\.\.\. .*returns=N"):
        mpi(processes=2)(task(returns=...)(lambda: None))


# --- further attempts -------------------------------------------------------------------------------------------------


@mpi(processes=2)
@task(returns=4, retries=1)
def fails_once(folder: Path, how: str) -> None:
    comm = mpi.comm()
    mark = folder / f"attempt{comm.rank}"
    first = not mark.exists()
    mark.touch()
    word = "first" if first else "second"
    if comm.rank == 0 or not first:
        ready_value(word, 2 * comm.rank)
    comm.Barrier()
    if first and comm.rank == 1:
        until = time.monotonic() + 60
        while not (folder / "seen").exists() and time.monotonic() < until:
            time.sleep(0.005)
        if how == "raise":
            raise LookupError("not yet")
        os.kill(os.getpid(), 9)
    comm.Barrier()
    ready_value(word, 2 * comm.rank + 1)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("how", ["raise", "SIGKILL"])
def test_what_was_handed_over_before_a_failure_stays(tmp_path: Path, how: str) -> None:
    parts = fails_once(tmp_path, how)
    assert parts[0].result(timeout=60) == "first"
    (tmp_path / "seen").touch()
    assert wait_on(parts) == ["first", "second", "second", "second"]


# --- files ------------------------------------------------------------------------------------------------------------


@mpi(processes=2)
@task(first=FILE_OUT, second=FILE_OUT)
def a_file_each(first: str, second: str, gate: Gate | None = None) -> None:
    rank = mpi.comm().rank
    if rank == 1 and gate is not None:
        gate.enter()
    path = (first, second)[rank]
    Path(path).write_text(f"of rank {rank}")
    ready_file(path)
    assert rank or gate is None or not Path(second).exists()


@mpi(processes=2)
@task(returns=2, path=FILE_INOUT)
def changed_and_told(path: Path) -> None:
    comm = mpi.comm()
    if comm.rank == 1:
        with path.open("a") as file:
            file.write("!")
        ready_file(path)
    ready_value(comm.rank, comm.rank)


@task(returns=str, path=FILE_IN)
def text_of(path: Any) -> str:
    return Path(path).read_text()


def test_the_file_of_a_fast_rank_is_read_while_a_slow_one_writes(tmp_path: Path, gate: Gate) -> None:
    first, second = str(tmp_path / "first"), tmp_path / "second"
    a_file_each(first, str(second), gate)
    assert text_of(first).result(timeout=60) == "of rank 0"
    assert not second.exists()
    gate.open()
    assert wait_on(text_of(second)) == "of rank 1"


def test_files_and_values_are_handed_over_beside_each_other(tmp_path: Path) -> None:
    path = tmp_path / "words"
    path.write_text("here")
    parts = changed_and_told(path)
    assert wait_on(text_of(path)) == "here!"
    assert wait_on(parts) == [0, 1]
    penstock.barrier()
    assert path.read_text() == "here!"


@mpi(processes=2)
@task(returns=list, path=FILE_OUT)
def bad_files(path: str) -> Any:
    if mpi.comm().rank == 0:
        return None
    complaints = []
    with open(path, "w"):
        for wrong in ("nowhere", path):
            try:
                ready_file(wrong)
            except TaskError as error:
                complaints.append(str(error))
    ready_file(path)
    try:
        ready_file(path)
    except TaskError as error:
        complaints.append(str(error))
    return complaints


def test_a_bad_file_is_an_error_at_its_line(tmp_path: Path) -> None:
    none, (unknown, open_, again) = wait_on(bad_files(str(tmp_path / "file")))
    assert none is None
    assert "ready_file('nowhere'): that is none of the files that task bad_files declares" in unknown
    named = f"ready_file('{tmp_path}/file'): "  # not where it is written
    assert f"{named}this rank has that file still open for writing" in open_
    assert f"{named}this rank has handed that file over already" in again


@mpi(processes=2)
@task(path=FILE_OUT)
def one_file_by(path: str, *ranks: int, write: bool) -> None:
    comm = mpi.comm()
    if write and comm.rank == 0:
        Path(path).write_text("x")
    comm.Barrier()
    if comm.rank in ranks:
        ready_file(path)
    comm.Barrier()


def test_a_file_handed_over_by_two_ranks_names_both(tmp_path: Path) -> None:
    future = one_file_by(str(tmp_path / "file"), 0, 1, write=True)
    with pytest.raises(
        ReturnsMismatch, match=r"rank . of 2: it handed over file .*/file of .*, which rank . had .*already"
    ):
        wait_on(future)


@mpi(processes=2)
@task(path=FILE_OUT)
def one_still_writes(path: str) -> None:
    comm = mpi.comm()
    with open(path, "w") as file:
        if comm.rank == 1:
            file.close()
        comm.Barrier()
        if comm.rank == 1:
            ready_file(path)
        else:
            time.sleep(600)  # until it is killed


def test_a_file_that_another_rank_still_writes_is_refused(tmp_path: Path) -> None:
    future = one_still_writes(str(tmp_path / "file"))
    with pytest.raises(TaskError) as caught:
        wait_on(future)
    story = str(caught.value.__cause__ or caught.value)
    assert "rank 1 of 2: " in story
    assert f"it called ready_file('{tmp_path}/file'), but rank 0 has that file still open for writing" in story
    assert not (tmp_path / "file").exists()


@mpi(processes=2)
@task(path=FILE_OUT)
def one_writes_again(path: str) -> None:
    comm = mpi.comm()
    if comm.rank == 0:
        Path(path).write_text("complete")
        ready_file(path)
        until = time.monotonic() + 60
        while Path(path).exists() and time.monotonic() < until:
            time.sleep(0.001)
        Path(path).write_text("not so")


def test_a_file_written_after_it_was_handed_over_is_an_error(tmp_path: Path) -> None:
    future = one_writes_again(str(tmp_path / "file"))
    with pytest.raises(TaskError, match="wrote to .*/file after ready_file"):
        wait_on(future)


def test_a_file_that_nobody_wrote_names_who_handed_it_over(tmp_path: Path) -> None:
    future = one_file_by(str(tmp_path / "file"), 1, write=False)
    with pytest.raises(TaskError) as caught:
        wait_on(future)
    story = str(caught.value.__cause__ or caught.value)
    assert "rank 1 of 2: " in story and "but did not create" in story


# --- in the log -------------------------------------------------------------------------------------------------------


def test_the_log_has_a_record_of_each_output(tmp_path: Path) -> None:
    with penstock.Runtime(cpus=2, log=True, run_dir=str(tmp_path / "run")):
        assert wait_on(three_each()) == [0, 10, 20, 30, 40, 50]
    told = [one for one in read_log(tmp_path / "run" / "events.jsonl") if isinstance(one, records.Output)]
    assert len({record.version for record in told}) == len(told) == 6
