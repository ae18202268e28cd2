"""Versions and segments: who keeps them, when they are freed, and when an update works in place."""

from __future__ import annotations

import gc
import weakref

import pytest
from tests.unit.engine_rig import BOOM, Rig, big, call, launched, settled, spec, updates, value

from penstock.errors import InternalError
from penstock.model.commands import Command, Free, Launch, Settle
from penstock.model.events import Finished
from penstock.model.tasks import OnFailure, TaskSpec


def in_place(commands: list[Command]) -> dict[int, tuple[int, ...]]:
    return {command.task: command.in_place for command in commands if type(command) is Launch}


def test_a_version_lives_while_the_program_holds_it_or_a_task_reads_it() -> None:
    rig = Rig()
    rig.submit(call(1), call(2, slots=(101,)))
    rig.finish(1, big(7))
    assert rig.release(101) == []
    assert rig.engine.lives(101)
    assert rig.engine.state.versions[101].uses == 1
    assert rig.finish(2, value("b")) == [Settle(102, value("b")), Free(7)]
    assert not rig.engine.lives(101)


def test_a_call_that_reads_what_is_gone_is_refused_as_a_whole() -> None:
    rig = Rig()
    rig.provide(50, value("a"))
    with pytest.raises(InternalError, match=r"reads versions that are gone: \[51\]"):
        rig.submit(call(1, slots=(50, 51)))
    assert rig.engine.unfinished == 0
    assert rig.engine.state.versions[50].uses == 0
    assert rig.engine.waits() == []


def test_an_output_that_nobody_will_read_is_freed_at_once() -> None:
    rig = Rig()
    rig.submit(call(1))
    rig.release(101)
    assert sorted(rig.finish(1, big(7, 8)), key=repr) == [Free(7), Free(8)]
    assert rig.empty


def test_a_segment_is_freed_once_after_its_last_holder() -> None:
    rig = Rig()
    rig.hold_segment(7)
    rig.submit(call(1, slots=(big(7),), segments=(7,)))
    assert rig.release_segment(7) == []
    rig.finish(1, big(7))
    assert rig.release(101) == [Free(7)]
    assert rig.empty


def test_the_segments_of_arguments_are_held_until_the_task_is_over_however_it_ends() -> None:
    rig = Rig(lanes=1)
    for task in (1, 2, 3):
        rig.hold_segment(task)
        rig.submit(call(task, segments=(task,), slots=(big(task),)))
        rig.release_segment(task)
    assert Free(2) in rig.cancel(2)
    assert Free(1) in rig.fail(1)
    assert Free(3) in rig.finish(3)


def test_a_writer_does_not_wait_for_readers_and_they_keep_the_old_version() -> None:
    rig = Rig(lanes=3)
    rig.provide(50, big(7))
    rig.submit(call(1, slots=(50,)))
    [launch] = rig.submit(updates(2, 50, 51))
    assert type(launch) is Launch
    assert launch.slots == (big(7),)
    assert launch.in_place == ()
    rig.release(50)
    assert rig.finish(2, big(8)) == [Settle(51, big(8))]
    assert rig.finish(1)[-1] == Free(7)


def test_the_last_user_updates_in_place_and_the_segment_passes_to_the_new_version() -> None:
    rig = Rig(lanes=1)
    rig.provide(50, big(7))
    rig.submit(call(1), updates(2, 50, 51))
    rig.release(50)
    assert in_place(rig.finish(1)) == {2: (0,)}
    assert rig.finish(2, big(7)) == [Settle(51, big(7))]
    assert rig.release(51) == [Free(7)]


@pytest.mark.parametrize(
    "of",
    [
        spec("retried", retries=1),
        spec("retried", on_failure=OnFailure.RETRY),
        spec("ignored", on_failure=OnFailure.IGNORE),
    ],
)
def test_an_update_whose_input_must_survive_it_works_on_a_copy(of: TaskSpec) -> None:
    rig = Rig(lanes=1)
    rig.provide(50, big(7))
    rig.submit(call(1), updates(2, 50, 51, of))
    rig.release(50)
    assert in_place(rig.finish(1)) == {2: ()}


def test_an_update_is_not_in_place_while_the_program_or_another_value_uses_the_segment() -> None:
    rig = Rig(lanes=1)
    rig.provide(50, big(7))
    rig.provide(60, big(7))
    rig.submit(call(1), updates(2, 50, 51))
    rig.release(50)
    assert in_place(rig.finish(1)) == {2: ()}
    assert Free(7) not in rig.finish(2, big(8))
    rig.submit(updates(3, 60, 61))
    assert rig.release(60) == []
    rig.finish(3, big(9))


def test_an_update_is_not_in_place_while_another_task_reads_the_same_version() -> None:
    rig = Rig(lanes=1)
    rig.provide(50, big(7))
    rig.submit(call(1), updates(2, 50, 51), call(3, slots=(50,)))
    rig.release(50)
    assert in_place(rig.finish(1)) == {2: ()}
    rig.finish(2, big(8))
    assert rig.finish(3)[-1] == Free(7)


def test_a_small_value_is_sent_by_value_so_its_update_can_be_tried_again() -> None:
    rig = Rig(lanes=1)
    rig.provide(50, value("small"))
    rig.submit(call(1), updates(2, 50, 51))
    rig.release(50)
    assert in_place(rig.finish(1)) == {2: ()}
    assert launched(rig.lose_worker(0)) == [2]


def test_an_argument_stored_for_one_call_is_updated_in_place() -> None:
    rig = Rig()
    rig.hold_segment(7)
    rig.submit(call(1), call(2))
    rig.submit(updates(3, big(7), 51, segments=(7,)))
    rig.release_segment(7)
    assert in_place(rig.finish(1)) == {3: (0,)}
    assert rig.finish(3, big(7)) == [Settle(51, big(7))]
    assert rig.release(51) == [Free(7)]


def test_an_update_in_place_that_died_is_not_tried_again() -> None:
    rig = Rig(lanes=1)
    rig.provide(50, big(7))
    rig.submit(call(1), updates(2, 50, 51))
    rig.release(50)
    rig.finish(1)
    told = settled(rig.lose_worker(0, "killed by SIGKILL"))
    assert told[51].message.startswith("killed by SIGKILL; it was changing its INOUT argument in place")  # type: ignore[union-attr]


def test_an_output_that_did_not_change_keeps_the_old_content() -> None:
    rig = Rig(lanes=1)
    rig.provide(50, big(7))
    rig.submit(updates(1, 50, 51))
    rig.release(50)
    assert rig.finish(1, None) == [Settle(51, big(7))]
    assert rig.release(51) == [Free(7)]


def test_what_a_second_attempt_makes_again_is_freed() -> None:
    rig = Rig(lanes=1)
    rig.submit(call(1, writes=(101, 102), returns=2))
    assert settled(rig.hand_over(1, 0, big(7))) == {101: big(7)}
    rig.lose_worker(0)
    assert rig.hand_over(1, 0, big(8)) == [Free(8)]
    assert rig.finish(1, big(9), big(10)) == [Free(9), Settle(102, big(10))]
    assert rig.release(101) == [Free(7)]


def test_what_a_lost_attempt_delivers_late_is_freed() -> None:
    rig = Rig(lanes=1)
    rig.submit(call(1))
    rig.lose_worker(0)
    assert rig.tell(Finished(1, 1, [big(7)], 1.0)) == [Free(7)]


def test_an_early_output_survives_the_failure_of_its_producer() -> None:
    rig = Rig()
    rig.submit(call(1, writes=(101, 102), returns=2), call(2, slots=(101,)), call(3, slots=(102,)))
    rig.hand_over(1, 0, big(7))
    assert set(settled(rig.fail(1, BOOM))) == {102, 103}
    rig.finish(2)
    assert rig.release(101) == [Free(7)]


def test_a_failed_consumer_gives_up_its_uses() -> None:
    rig = Rig(lanes=1)
    rig.provide(50, big(7))
    rig.submit(call(1), call(2, slots=(50, 101)), call(3, slots=(50,)))
    rig.release(50)
    rig.fail(1)
    assert rig.finish(3)[-1] == Free(7)


def test_releasing_twice_does_no_harm() -> None:
    rig = Rig(lanes=1)
    rig.submit(call(1), call(2, slots=(101,)))
    rig.release(101)
    rig.release(101)
    rig.finish(1)
    rig.finish(2)
    assert rig.release(101) == []


def test_an_engine_with_tasks_that_wait_goes_when_nobody_has_it() -> None:
    rig = Rig(lanes=1)
    rig.submit(call(1), call(2, slots=(101,)), call(3, slots=(101, 102)))
    assert rig.engine.state.versions[101].waiters
    state = weakref.ref(rig.engine.state)  # versions are nothing to the garbage collector: they are in no cycle
    del rig
    gc.collect()
    assert state() is None
