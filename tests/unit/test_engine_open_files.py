"""Files that are read while they are written: who may start when, and what becomes of readers when the writer fails."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from tests.unit.engine_rig import BOOM, Rig, call, failure_of, launched, settled, spec, value, writes_file

from penstock.model.commands import Command, Discard, Kill, Launch, Publish, Recall
from penstock.model.data import FileRef
from penstock.model.tasks import FailureKind, OnFailure, TaskCall, TaskSpec, TaskState

FILE = "/data/out"


def writer(task: int = 1, new: int = 11, file: str = FILE, **fields: Any) -> TaskCall:
    made = writes_file(task, new, file, **fields)
    return replace(made, outputs=tuple(replace(output, stream=True) for output in made.outputs))


def reader(task: int, *versions: int, of: TaskSpec | None = None, **fields: Any) -> TaskCall:
    return call(task, of, slots=versions, streams=versions, **fields)


def private(attempt: int = 1, task: int = 1) -> FileRef:
    return FileRef(f"/data/.private-{task}.{attempt}/out", open=True)


def complete(ref: FileRef) -> FileRef:
    return FileRef(ref.path, 5)


def slots(commands: list[Command], task: int) -> tuple[Any, ...]:
    [launch] = [one for one in commands if type(one) is Launch and one.task == task]
    return launch.slots


def started(lanes: int = 4, *, retries: int | None = None, on_failure: OnFailure = OnFailure.FAIL) -> Rig:
    """A writer that has begun, and a reader that runs with it."""
    rig = Rig(lanes=lanes)
    rig.submit(writer(of=spec("write", retries=retries, on_failure=on_failure)), reader(2, 11))
    assert launched(rig.hand_over(1, 0, private())) == [2]
    return rig


def test_a_reader_starts_when_the_file_is_begun_and_others_when_it_is_complete() -> None:
    rig = Rig(lanes=4)
    rig.submit(writer(), reader(2, 11), call(3, slots=(11,)))
    assert (rig.state(2), rig.state(3)) == (TaskState.WAITING, TaskState.WAITING)
    commands = rig.hand_over(1, 0, private())
    assert launched(commands) == [2]
    assert slots(commands, 2) == (private(),)
    assert settled(commands) == {}
    commands = rig.finish(1, complete(private()))
    assert slots(commands, 3) == (complete(private()),)
    assert any(type(one) is Publish for one in commands)


def test_a_reader_that_is_called_later_starts_at_once() -> None:
    rig = started()
    assert slots(rig.submit(reader(4, 11)), 4) == (private(),)


def test_the_private_file_stays_until_its_last_reader_has_ended() -> None:
    rig = started()
    rig.release(11)
    assert not [one for one in rig.finish(1, complete(private())) if type(one) is Discard]
    assert Discard(private().path) in rig.finish(2)
    rig.release(102)
    assert rig.empty


def test_with_one_unit_the_reader_runs_after_the_writer() -> None:
    rig = Rig(lanes=1)
    rig.submit(writer(), reader(2, 11))
    assert launched(rig.hand_over(1, 0, private())) == []
    assert rig.state(2) is TaskState.READY
    assert slots(rig.finish(1, complete(private())), 2) == (complete(private()),)


def test_a_reader_of_two_files_starts_when_both_are_begun() -> None:
    rig = Rig(lanes=4)
    rig.submit(writer(), writer(3, 13, "/data/other"), reader(2, 11, 13))
    assert launched(rig.hand_over(1, 0, private())) == []
    assert launched(rig.hand_over(3, 0, private(task=3))) == [2]


def test_a_reader_that_failed_for_want_of_another_file_reads_nothing() -> None:
    rig = Rig(lanes=4)
    rig.submit(writer(), writer(2, 12, "/data/other"), reader(3, 11, 12))
    rig.fail(2, BOOM)
    rig.hand_over(1, 0, private())  # the rig looks at all invariants
    assert launched(rig.finish(1, complete(private()))) == []


def test_the_failure_of_the_writer_ends_its_readers_and_names_it() -> None:
    rig = started()
    commands = rig.fail(1)
    assert Kill("n", rig.lane_of(2)) in commands
    commands = rig.lose_worker(rig.lane_of(2))
    failure = failure_of(commands, 102)
    assert failure.kind is FailureKind.DEPENDENCY
    assert failure.path == ("write#1", "f#2")
    assert failure.message == BOOM.message


def test_readers_begin_again_with_the_next_attempt_of_the_writer() -> None:
    rig = started(retries=1, on_failure=OnFailure.RETRY)
    commands = rig.fail(1)
    assert launched(commands) == [1]
    lane = rig.lane_of(2)
    assert Kill("n", lane) in commands
    rig.lose_worker(lane)
    assert rig.state(2) is TaskState.WAITING
    commands = rig.hand_over(1, 0, private(2))
    assert slots(commands, 2) == (private(2),)
    assert rig.attempt(2) == 2
    rig.finish(1, complete(private(2)))
    assert settled(rig.finish(2, value("read")))[102] == value("read")


def test_a_reader_that_begins_again_has_all_its_time() -> None:
    rig = Rig(lanes=4)
    again = spec("write", retries=1, on_failure=OnFailure.RETRY)
    rig.submit(writer(of=again), reader(2, 11, of=spec("read", timeout=5.0)))
    rig.hand_over(1, 0, private())
    rig.tick(3.0)
    rig.fail(1)
    rig.lose_worker(rig.lane_of(2))
    assert launched(rig.hand_over(1, 0, private(2))) == [2]
    assert rig.tick(4.0) == []  # the first attempt would be late by now
    assert rig.tick(1.0) == [Kill("n", rig.lane_of(2))]


def test_an_interrupted_reader_may_fail_as_often_as_another() -> None:
    rig = Rig(lanes=4)
    again = spec("write", retries=1, on_failure=OnFailure.RETRY)
    rig.submit(writer(of=again), reader(2, 11, of=spec("read", retries=1)))
    rig.hand_over(1, 0, private())
    rig.fail(1)
    rig.lose_worker(rig.lane_of(2))
    rig.hand_over(1, 0, private(2))
    assert launched(rig.lose_worker(rig.lane_of(2))) == [2]
    assert failure_of(rig.lose_worker(rig.lane_of(2)), 102).attempt == 3


def test_the_new_attempt_may_begin_before_the_old_reader_is_gone() -> None:
    rig = started(retries=1, on_failure=OnFailure.RETRY)
    rig.fail(1)
    lane = rig.lane_of(2)
    assert launched(rig.hand_over(1, 0, private(2))) == []
    assert slots(rig.lose_worker(lane), 2) == (private(2),)


def test_the_new_attempt_may_even_end_before_the_old_reader_is_gone() -> None:
    rig = started(retries=1, on_failure=OnFailure.RETRY)
    rig.fail(1)
    lane = rig.lane_of(2)
    rig.hand_over(1, 0, private(2))
    rig.finish(1, complete(private(2)))
    assert slots(rig.lose_worker(lane), 2) == (complete(private(2)),)


def test_a_reader_that_fails_because_of_the_writer_is_not_to_blame() -> None:
    """Its own error came first: it counts no more than if it had been killed."""
    rig = started(retries=1, on_failure=OnFailure.RETRY)
    rig.fail(1)
    lane = rig.lane_of(2)
    rig.fail(2)
    assert rig.state(2) is TaskState.WAITING
    rig.lose_worker(lane)
    rig.hand_over(1, 0, private(2))
    assert rig.state(2) is TaskState.RUNNING


def test_a_ready_reader_waits_again() -> None:
    rig = Rig(lanes=1)
    rig.submit(writer(of=spec("write", retries=1, on_failure=OnFailure.RETRY)), reader(2, 11))
    rig.hand_over(1, 0, private())
    assert launched(rig.fail(1)) == [1]
    assert rig.state(2) is TaskState.WAITING
    rig.hand_over(1, 0, private(2))
    assert slots(rig.finish(1, complete(private(2))), 2) == (complete(private(2)),)


def test_a_ready_reader_fails_with_the_writer() -> None:
    rig = Rig(lanes=1)
    rig.submit(writer(of=spec("write")), reader(2, 11))
    rig.hand_over(1, 0, private())
    assert failure_of(rig.fail(1), 102).path == ("write#1", "f#2")


def queued_behind_another() -> Rig:
    """A reader that was sent ahead, behind a short task."""
    rig = Rig(lanes=2)
    short = spec("short")
    rig.teach(short, 0.0001)
    rig.submit(writer(of=spec("write", retries=1, on_failure=OnFailure.RETRY)))
    rig.submit(call(3, short), reader(2, 11, of=short))
    rig.hand_over(1, 0, private())
    assert rig.state(2) is TaskState.QUEUED
    return rig


def test_a_queued_reader_is_taken_back() -> None:
    rig = queued_behind_another()
    lane = rig.lane_of(2)
    assert Recall("n", lane) in rig.fail(1)
    rig.recalled(lane, 2)
    assert rig.state(2) is TaskState.WAITING
    rig.finish(3)
    assert launched(rig.hand_over(1, 0, private(2))) == [2]


def test_a_queued_reader_that_has_started_in_the_meantime_is_ended() -> None:
    rig = queued_behind_another()
    lane = rig.lane_of(2)
    rig.fail(1)
    rig.finish(3)
    assert rig.state(2) is TaskState.RUNNING
    assert Kill("n", lane) in rig.recalled(lane)
    rig.lose_worker(lane)
    assert rig.state(2) is TaskState.WAITING


def test_a_chain_of_streams_ends_as_a_whole() -> None:
    rig = Rig(lanes=4)
    middle = replace(writer(2, 12, "/data/second"), slots=(11,), reads=(11,), streams=(11,))
    rig.submit(writer(of=spec("write")), middle, reader(3, 12))
    rig.hand_over(1, 0, private())
    assert launched(rig.hand_over(2, 0, private(task=2))) == [3]
    commands = rig.fail(1)
    lanes = rig.lane_of(2), rig.lane_of(3)
    assert {Kill("n", lane) for lane in lanes} <= {one for one in commands if type(one) is Kill}
    rig.lose_worker(lanes[0])
    failure = failure_of(rig.lose_worker(lanes[1]), 103)
    assert failure.path == ("write#1", "f#2", "f#3")


def test_the_death_of_a_reader_is_nothing_to_the_writer() -> None:
    rig = started()
    assert slots(rig.lose_worker(rig.lane_of(2)), 2) == (private(),)
    assert rig.attempt(2) == 2
    assert rig.state(1) is TaskState.RUNNING


def test_cancelling_the_writer_cancels_its_readers() -> None:
    rig = started()
    rig.cancel(1, kill=True)
    rig.lose_worker(rig.lane_of(1))
    failure = failure_of(rig.lose_worker(rig.lane_of(2)), 102)
    assert failure.kind is FailureKind.CANCELLED


def test_cancelling_a_reader_is_nothing_to_the_writer() -> None:
    rig = started()
    rig.cancel(2, kill=True)
    rig.lose_worker(rig.lane_of(2))
    assert rig.state(2) is None
    rig.finish(1, complete(private()))
    assert rig.state(1) is None


def test_a_reader_that_is_cancelled_while_it_is_being_ended_is_over() -> None:
    rig = started(retries=1, on_failure=OnFailure.RETRY)
    rig.fail(1)
    rig.cancel(2, kill=True)
    assert failure_of(rig.lose_worker(rig.lane_of(2)), 102).kind is FailureKind.CANCELLED


def test_readers_of_a_writer_whose_failure_is_ignored_read_what_was_there() -> None:
    rig = started(on_failure=OnFailure.IGNORE)
    rig.fail(1)
    assert slots(rig.lose_worker(rig.lane_of(2)), 2) == (FileRef(FILE),)


def test_the_death_of_the_writer_counts_as_its_failure() -> None:
    rig = started()
    commands = rig.lose_worker(rig.lane_of(1))
    assert launched(commands) == [1]  # on another lane
    assert Kill("n", rig.lane_of(2)) in commands


def test_a_lost_node_takes_writer_and_reader_along() -> None:
    rig = started()
    rig.join("other", 2)
    rig.lose_node("n")
    assert rig.state(1) is TaskState.RUNNING
    assert rig.state(2) is TaskState.WAITING
    assert launched(rig.hand_over(1, 0, private(2))) == [2]


def test_what_a_reader_of_a_stream_updates_survives_it() -> None:
    """It may have to begin again, through no fault of its own."""
    rig = Rig(lanes=4)
    rig.submit(call(5))
    rig.finish(5, value("old"))
    rig.submit(writer())
    both = replace(reader(2, 11), slots=(11, 105), reads=(11, 105), writable=(1,))
    rig.submit(both)
    rig.release(105)
    commands = rig.hand_over(1, 0, private())
    [launch] = [one for one in commands if type(one) is Launch]
    assert launch.in_place == ()


def test_readers_of_a_file_that_was_written_twice_begin_again() -> None:
    rig = started()
    rig.submit(reader(3, 11))
    ref = replace(complete(private()), rewritten=True)
    commands = rig.finish(1, ref)
    lanes = rig.lane_of(2), rig.lane_of(3)
    assert {Kill("n", lane) for lane in lanes} == {one for one in commands if type(one) is Kill}
    for task, lane in zip((2, 3), lanes, strict=True):
        assert slots(rig.lose_worker(lane), task) == (ref,)
