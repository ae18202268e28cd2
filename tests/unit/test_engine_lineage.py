"""Segments that are lost: what is computed again, what waits for it, and what fails."""

from __future__ import annotations

import pytest
from tests.unit.engine_rig import Rig, big, call, failure_of, launched, settled, spec, updates, value, writes_file

from penstock.engine import origins
from penstock.model.commands import Launch
from penstock.model.data import FileRef, Piece, Value
from penstock.model.events import Lost, RunAgain, SegmentsLost, Submitted
from penstock.model.resources import Requirements
from penstock.model.tasks import Failure, FailureKind, OnFailure, Output, TaskState


def lose(rig: Rig, *segments: int, why: str = "/shm/s is gone") -> list:
    return rig.tell(SegmentsLost(segments, why))


def cannot_read(*segments: int) -> Failure:
    return Failure(FailureKind.LOST, "/shm/s is gone", lost=segments)


def delivered(rig: Rig, task: int, *segments: int) -> None:
    rig.submit(call(task))
    rig.finish(task, big(*segments))


def test_what_the_program_holds_is_computed_again() -> None:
    rig = Rig()
    delivered(rig, 1, 7)
    assert launched(lose(rig, 7)) == [1]
    assert rig.engine.state.done == 0
    assert settled(rig.finish(1, big(8))) == {101: big(8)}
    assert rig.engine.state.done == 1
    rig.release(101)
    assert rig.empty


def test_other_segments_of_a_lost_version_go() -> None:
    rig = Rig()
    delivered(rig, 1, 7, 8)
    lose(rig, 7)
    assert not rig.engine.state.segments


def test_readers_wait_whether_ready_or_waiting() -> None:
    rig = Rig(lanes=1)
    delivered(rig, 1, 7)
    rig.submit(call(2))  # takes the lane
    rig.submit(call(3, slots=(101,)), call(4, slots=(101, 102)))
    assert rig.state(3) is TaskState.READY
    lose(rig, 7)
    assert rig.state(3) is TaskState.WAITING
    assert rig.engine.state.tasks[4].missing == 2
    assert launched(rig.finish(2)) == [1]
    commands = rig.finish(1, big(9))
    assert launched(commands) == [3]
    [launch] = [command for command in commands if isinstance(command, Launch)]
    assert launch.slots == (big(9),)
    assert launched(rig.finish(3)) == [4]


def test_an_attempt_that_cannot_read_its_input_does_not_count() -> None:
    rig = Rig()
    delivered(rig, 1, 7)
    rig.submit(call(2, spec("g", retries=0), slots=(101,)))
    assert launched(rig.fail(2, cannot_read(7))) == [1]
    assert rig.state(2) is TaskState.WAITING
    assert launched(rig.finish(1, big(8))) == [2]
    rig.fail(2)  # of its own accord, which is the first attempt that counts
    assert rig.engine.state.failed == 1


def test_retries_are_not_used_up_by_losses_nor_by_having_been_run_before() -> None:
    rig = Rig()
    again = spec("f", retries=1, on_failure=OnFailure.RETRY)
    rig.submit(call(1, again))
    rig.fail(1)
    rig.finish(1, big(7))  # the second attempt, and the last it has
    lose(rig, 7)
    assert launched(rig.fail(1)) == [1]
    assert settled(rig.finish(1, big(8))) == {101: big(8)}


def test_several_that_find_the_same_segment_lost() -> None:
    rig = Rig()
    delivered(rig, 1, 7)
    rig.submit(call(2, slots=(101,)), call(3, slots=(101,)))
    assert launched(rig.fail(2, cannot_read(7))) == [1]
    rig.fail(3, cannot_read(7))
    assert rig.state(3) is TaskState.WAITING
    assert sorted(launched(rig.finish(1, big(8)))) == [2, 3]
    reports = rig.engine.state.reports
    assert [one for one in reports if isinstance(one, Lost)] == [Lost(101, 1, "/shm/s is gone", again=True)]
    assert [one.call.task for one in reports if isinstance(one, RunAgain)] == [1]


def test_one_that_finds_out_after_it_was_made_again_begins_at_once() -> None:
    rig = Rig()
    delivered(rig, 1, 7)
    rig.submit(call(2, slots=(101,)))
    lose(rig, 7)
    rig.finish(1, big(8))
    assert launched(rig.fail(2, cannot_read(7))) == [2]


def test_a_running_attempt_that_has_the_old_content_delivers() -> None:
    rig = Rig()
    delivered(rig, 1, 7)
    rig.submit(call(2, slots=(101,)))
    lose(rig, 7)
    assert settled(rig.finish(2)) == {102: value("x")}
    rig.finish(1, big(8))
    rig.release(101)
    rig.release(102)
    assert rig.empty


def test_a_worker_that_dies_meanwhile_leaves_its_task_waiting() -> None:
    rig = Rig()
    delivered(rig, 1, 7)
    rig.submit(call(2, slots=(101,)))
    lose(rig, 7)
    rig.lose_worker(rig.lane_of(2))
    assert rig.state(2) is TaskState.WAITING
    assert 2 in launched(rig.finish(1, big(8)))


def test_what_was_read_and_is_gone_is_made_first() -> None:
    rig = Rig()
    delivered(rig, 1, 7)
    rig.submit(updates(2, 101, 201))
    rig.release(101)
    rig.finish(2, big(7))  # in place
    assert launched(lose(rig, 7)) == [1]
    assert launched(rig.finish(1, big(8))) == [2]
    assert settled(rig.finish(2, big(8))) == {201: big(8)}
    rig.release(201)
    assert rig.empty


def test_small_inputs_are_kept() -> None:
    rig = Rig()
    rig.submit(call(1))
    rig.finish(1, value("small"))
    rig.submit(call(2, slots=(101,)))
    rig.finish(2, big(7))
    rig.release(101)
    assert 101 not in rig.engine.state.versions
    [launch] = [command for command in lose(rig, 7) if isinstance(command, Launch)]
    assert (launch.task, launch.slots) == (2, (value("small"),))
    rig.finish(2, big(8))
    rig.release(102)
    assert rig.empty


def test_thousands_of_links() -> None:
    rig = Rig(lanes=1)
    rig.checking = False
    delivered(rig, 1, 7)
    last = 101
    for task in range(2, 5_001):
        rig.tell(Submitted(updates(task, last, last + 1), (last,)))
        last += 1
        rig.finish(task, big(7))
    commands = lose(rig, 7)
    order = []
    while tasks := launched(commands):
        order += tasks
        commands = rig.finish(tasks[0], big(8))
    assert order == list(range(1, 5_001))
    rig.release(last)
    assert rig.empty


def test_a_diamond_is_entered_once() -> None:
    rig = Rig(lanes=4)
    delivered(rig, 1, 7)
    rig.submit(call(2, slots=(101,)), call(3, slots=(101,)), call(4, slots=(102, 103)))
    rig.finish(2, big(8))
    rig.finish(3, big(9))
    rig.finish(4, big(10))
    for version in (101, 102, 103):
        rig.release(version)
    assert launched(lose(rig, 10)) == [1]
    assert sorted(launched(rig.finish(1, big(11)))) == [2, 3]
    rig.finish(2, big(12))
    assert launched(rig.finish(3, big(13))) == [4]
    assert settled(rig.finish(4, big(14))) == {104: big(14)}
    assert set(rig.engine.state.segments) == {14}


def test_of_several_outputs_only_the_lost_one_is_replaced() -> None:
    rig = Rig()
    rig.submit(call(1, writes=(101, 102, 103), returns=3))
    rig.finish(1, big(7), big(8), value("x"))
    lose(rig, 8)
    assert settled(rig.finish(1, big(9), big(10), value("y"))) == {102: big(10)}
    assert set(rig.engine.state.segments) == {7, 10}
    assert rig.engine.state.versions[103].outcome == value("x")


def test_a_loss_of_a_second_output_while_the_task_runs_again() -> None:
    rig = Rig()
    rig.submit(call(1, writes=(101, 102), returns=2))
    rig.finish(1, big(7), big(8))
    lose(rig, 8)
    assert launched(lose(rig, 7)) == []
    assert settled(rig.finish(1, big(9), big(10))) == {101: big(9), 102: big(10)}


def test_a_version_that_is_being_changed_in_place_is_made_again_for_others() -> None:
    """The update goes on with what it has; the others must not read what it has half changed."""
    rig = Rig(lanes=3)
    delivered(rig, 1, 7)
    rig.submit(call(2, slots=(101,)))
    rig.finish(2, big(8))
    [launch] = [c for c in rig.tell(Submitted(updates(3, 101, 201), (101,))) if isinstance(c, Launch)]
    assert launch.in_place == (0,)
    assert launched(lose(rig, 8)) == [1]  # not 2, which would read segment 7
    assert rig.engine.state.segments == {7: 1}
    rig.finish(3, big(7))
    assert rig.engine.state.segments == {7: 1}
    [launch] = [c for c in rig.finish(1, big(9)) if isinstance(c, Launch)]
    assert (launch.task, launch.slots) == (2, (big(9),))
    rig.finish(2, big(10))
    assert rig.engine.state.segments == {7: 1, 10: 1}


def test_what_an_attempt_was_to_change_in_place_goes_when_it_begins_again() -> None:
    rig = Rig(lanes=3)
    delivered(rig, 1, 7)
    rig.submit(call(2, slots=(101,)))
    rig.finish(2, big(8))
    delivered(rig, 3, 6)
    one = call(4, slots=(101, 103), writable=(0,), writes=(201,), outputs=(Output((0,), 0),))
    [launch] = [c for c in rig.tell(Submitted(one, (101,))) if isinstance(c, Launch)]
    assert launch.in_place == (0,)
    lose(rig, 8)
    rig.fail(4, cannot_read(6))
    assert not rig.engine.state.segments
    assert rig.state(4) is TaskState.WAITING


def test_the_task_fails_when_it_is_run_again() -> None:
    rig = Rig()
    delivered(rig, 1, 7)
    rig.submit(call(2, slots=(101,)))
    rig.fail(2, cannot_read(7))
    told = settled(rig.fail(1))
    assert {version: outcome.kind for version, outcome in told.items() if isinstance(outcome, Failure)} == {
        101: FailureKind.EXCEPTION,
        102: FailureKind.DEPENDENCY,
    }
    assert (rig.engine.state.done, rig.engine.state.failed) == (0, 2)


def test_a_failure_that_is_ignored_then_too() -> None:
    rig = Rig()
    lenient = spec("f", on_failure=OnFailure.IGNORE)
    delivered(rig, 1, 7)
    rig.submit(updates(2, 101, 201, lenient))
    rig.fail(2)  # the update keeps the old content
    assert rig.engine.state.versions[201].outcome == big(7)
    assert rig.engine.state.failed == 1
    rig.release(101)
    assert launched(lose(rig, 7)) == [1]
    assert launched(rig.finish(1, big(8))) == [2]
    assert settled(rig.fail(2)) == {201: big(8)}
    assert (rig.engine.state.done, rig.engine.state.failed) == (1, 1)


def test_cancelled_while_it_runs_again() -> None:
    rig = Rig()
    delivered(rig, 1, 7)
    rig.submit(call(2, slots=(101,)))
    rig.fail(2, cannot_read(7))
    rig.cancel(1, kill=True)
    told = settled(rig.lose_worker(rig.lane_of(1)))
    assert {outcome.kind for outcome in told.values() if isinstance(outcome, Failure)} == {FailureKind.CANCELLED}
    assert not rig.engine.state.tasks


def test_a_consumer_cancelled_while_its_input_is_lost() -> None:
    rig = Rig()
    delivered(rig, 1, 7)
    rig.submit(call(2, slots=(101,)))
    rig.cancel(2, kill=True)
    assert failure_of(rig.fail(2, cannot_read(7)), 102).kind is FailureKind.CANCELLED


def test_what_the_program_made_is_lost_for_good() -> None:
    rig = Rig()
    rig.provide(50, big(7))
    rig.submit(call(2, slots=(50,)))
    told = settled(rig.fail(2, cannot_read(7)))
    assert [told[version].kind for version in (50, 102)] == [FailureKind.LOST, FailureKind.DEPENDENCY]  # type: ignore[union-attr]
    assert "/shm/s is gone" in told[102].message  # type: ignore[union-attr]
    late = settled(rig.submit(call(3, slots=(50,))))
    assert late[103].kind is FailureKind.DEPENDENCY  # type: ignore[union-attr]


def test_large_arguments_of_the_call_itself() -> None:
    rig = Rig()
    rig.submit(call(1, segments=(5,)))
    failure = failure_of(rig.fail(1, cannot_read(5)), 101)
    assert failure.kind is FailureKind.LOST
    assert "came with its call" in failure.message


@pytest.mark.parametrize("held", [False, True])
def test_large_arguments_must_still_be_there(held: bool) -> None:
    rig = Rig()
    if held:
        rig.hold_segment(5)
    rig.submit(call(1, segments=(5,)))
    rig.finish(1, big(7))
    commands = lose(rig, 7)
    if held:
        assert launched(commands) == [1]
        rig.finish(1, big(8))
    else:
        assert "arguments that came with the call are gone" in failure_of(commands, 101).message


def test_arguments_that_were_changed_in_place() -> None:
    """The segment is there, but holds what the task made of it."""
    rig = Rig()
    outputs = (Output((0,)),)
    args = Value(b"args", (Piece(5, False, 0, 1 << 20),))
    one = call(1, writes=(101, 102), returns=1, outputs=outputs, segments=(5,), writable_buffers=1)
    one = type(one)(**{name: getattr(one, name) for name in one.__struct_fields__} | {"args": args})
    [launch] = [command for command in rig.submit(one) if isinstance(command, Launch)]
    assert launch.args_in_place
    rig.finish(1, big(7), big(5))
    assert "changed arguments" in failure_of(lose(rig, 7), 101).message


def test_one_that_wrote_files_is_not_run_again() -> None:
    rig = Rig()
    one = call(1, writes=(101, 102), returns=1, outputs=(Output((0,), -1, "/out"),))
    rig.submit(one)
    rig.finish(1, big(7), FileRef("/out"))
    assert "wrote files" in failure_of(lose(rig, 7), 101).message


def test_one_that_read_a_file() -> None:
    rig = Rig()
    rig.submit(writes_file(1, 201, "/data"))
    rig.finish(1, FileRef("/data"))
    rig.submit(call(2, slots=(201,)))
    rig.finish(2, big(7))
    assert launched(lose(rig, 7)) == [2]  # the file's version lives
    rig.finish(2, big(8))
    rig.release(201)
    assert "may be another file" in failure_of(lose(rig, 8), 102).message


def test_early_outputs() -> None:
    rig = Rig()
    rig.submit(call(1, writes=(101, 102), returns=2))
    rig.hand_over(1, 0, big(7))
    assert failure_of(lose(rig, 7), 101).kind is FailureKind.LOST
    rig.finish(1, None, big(8))
    assert "before its end" in failure_of(lose(rig, 8), 102).message


def test_persistent_objects_that_a_task_changed() -> None:
    rig = Rig()
    rig.submit(call(1, writes=(101, 102), returns=2))
    rig.finish(1, big(7), Value(b"ref", states=("id\ntoken",)))
    assert "persistent objects" in failure_of(lose(rig, 7), 101).message


@pytest.mark.parametrize("updated", [False, True])
def test_persistent_objects_that_a_task_read(updated: bool) -> None:
    rig = Rig()
    rig.provide(50, Value(b"ref", states=("id\none",)))
    rig.submit(call(1, slots=(50,)))
    rig.finish(1, big(7))
    if updated:
        rig.release(50)
        assert "that state is gone" in failure_of(lose(rig, 7), 101).message
    else:
        assert launched(lose(rig, 7)) == [1]


def test_the_root_of_a_chain_that_cannot_be_made_is_named() -> None:
    rig = Rig()
    rig.submit(call(1, spec("load"), segments=(5,)))
    rig.finish(1, big(7))
    rig.submit(updates(2, 101, 201, spec("turn")))
    rig.release(101)
    rig.finish(2, big(7))
    rig.submit(updates(3, 201, 301, spec("cut")))
    rig.release(201)
    rig.finish(3, big(7))
    failure = failure_of(lose(rig, 7), 301)
    assert failure.path == ("cut#3",)
    assert "an output of task load#1 which is gone too; arguments that came with the call are gone" in failure.message
    assert not rig.engine.state.tasks


def test_it_is_given_up_after_three_times() -> None:
    rig = Rig()
    delivered(rig, 1, 7)
    for segment in (8, 9, 10):
        assert launched(lose(rig, segment - 1)) == [1]
        rig.finish(1, big(segment))
    assert "3 times" in failure_of(lose(rig, 10), 101).message
    assert rig.engine.state.done == 1


def test_a_reader_of_a_disk_that_spoils_everything_ends() -> None:
    rig = Rig()
    delivered(rig, 1, 7)
    rig.submit(call(2, slots=(101,)))
    segment = 7
    for _ in range(20):
        if rig.state(2) is None:
            break
        rig.fail(2, cannot_read(segment))
        if rig.state(1) is not None:
            segment += 1
            rig.finish(1, big(segment))
    assert rig.state(2) is None
    assert segment == 10


def test_an_attempt_that_blames_segments_it_never_had_ends() -> None:
    rig = Rig()
    rig.submit(call(1))
    for _ in range(10):
        if rig.state(1) is not None:
            rig.fail(1, cannot_read(99))
    assert rig.state(1) is None


def test_what_nobody_needs_is_not_made_again() -> None:
    rig = Rig()
    rig.provide(50, big(6))
    delivered(rig, 1, 6, 7)
    rig.submit(call(2))  # so that task 3 waits
    rig.submit(call(3, slots=(50, 101, 102)))
    rig.release(101)
    assert launched(lose(rig, 6)) == []  # 50 cannot be made, so 3 fails, and nobody reads 101
    assert 101 not in rig.engine.state.versions


def test_segments_that_nobody_knows() -> None:
    rig = Rig()
    assert lose(rig, 5) == []


def test_only_the_newest_origins_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origins, "MOST", 10)
    rig = Rig()
    for task in range(1, 30):
        delivered(rig, task, task)
    assert len(rig.engine.state.origins.by_task) == 10
    assert len(rig.engine.state.origins.makers) == 10
    assert "not known how" in failure_of(lose(rig, 5), 105).message
    assert launched(lose(rig, 25)) == [25]


def test_origins_take_so_many_bytes_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origins, "MOST_BYTES", 1000)
    rig = Rig()
    rig.provide(50, value("x" * 400))
    for task in (1, 2, 3):
        rig.submit(call(task, slots=(50,)))
        rig.finish(task, big(task))
    assert list(rig.engine.state.origins.by_task) == [2, 3]


def test_small_outputs_have_no_origin() -> None:
    rig = Rig()
    rig.submit(call(1))
    rig.finish(1)
    assert not rig.engine.state.origins.by_task


def test_small_buffers_beside_the_pickle_have_no_origin_either() -> None:
    rig = Rig()
    rig.submit(call(1))
    rig.finish(1, Value(b"array", (b"small", b"buffers")))
    rig.submit(call(2, slots=(101,)))
    rig.finish(2, Value(b"array", (b"small",)))
    assert not rig.engine.state.origins.by_task


def test_an_origin_goes_with_what_it_tells_of_and_with_what_needs_it() -> None:
    rig = Rig()
    kept = rig.engine.state.origins.by_task
    delivered(rig, 1, 1)
    rig.submit(call(2, slots=(101,)))
    rig.finish(2, big(2))
    rig.submit(call(3, slots=(101,)))
    rig.finish(3)
    rig.release(103)
    assert list(kept) == [1, 2]
    rig.release(101)
    assert list(kept) == [1, 2]  # without it, 102 could not be made again
    assert launched(lose(rig, 2)) == [1]
    rig.finish(1, big(11))
    rig.finish(2, big(12))
    assert list(kept) == [1, 2]
    rig.release(102)
    assert not kept


def test_a_long_chain_of_origins_goes_at_once() -> None:
    rig = Rig()
    delivered(rig, 1, 1)
    for task in range(2, 300):
        rig.submit(call(task, slots=(99 + task,)))
        rig.finish(task, big(task))
        rig.release(99 + task)
    assert len(rig.engine.state.origins.by_task) == 299
    rig.release(100 + 299)
    assert not rig.engine.state.origins.by_task
    assert not rig.engine.state.origins.nbytes


def test_nodes_that_are_gone_by_then() -> None:
    rig = Rig(lanes=0)
    rig.join("small", 1)
    rig.join("large", 4)
    rig.submit(call(1, spec("f", requirements=Requirements(cpus=4))))
    rig.finish(1, big(7))
    rig.lose_node("large")
    assert failure_of(lose(rig, 7), 101).kind is FailureKind.UNPLACEABLE
