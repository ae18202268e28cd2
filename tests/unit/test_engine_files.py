"""Files: a writer never waits for readers, and no reader sees a file change."""

from __future__ import annotations

import sys

import pytest
from msgspec.structs import replace
from tests.unit.engine_rig import Rig, call, settled, spec, writes_file

from penstock.model.commands import Discard, Launch, Publish, Settle
from penstock.model.data import FileRef
from penstock.model.events import Finished, Released, Submitted
from penstock.model.tasks import OnFailure, TaskState

FILE = "/data/out"


def publishes(rig: Rig, task: int) -> bool:
    """Whether the running attempt of a task was told to give its files their names."""
    return rig.launches[task].publish


class FileRig(Rig):
    def __init__(self) -> None:
        self.launches: dict[int, Launch] = {}
        super().__init__(lanes=8)

    def tell(self, event):  # type: ignore[no-untyped-def]
        commands = super().tell(event)
        self.launches |= {command.task: command for command in commands if type(command) is Launch}
        return commands


@pytest.fixture
def rig() -> FileRig:
    return FileRig()


def scratch(number: int) -> FileRef:
    return FileRef(f"/data/.private{number}")


def test_a_file_nobody_reads_takes_its_name_at_once(rig: FileRig) -> None:
    rig.submit(writes_file(1, 11, FILE))
    assert publishes(rig, 1)
    assert rig.finish(1, FileRef(FILE)) == [Settle(11, FileRef(FILE))]
    assert rig.release(11) == []
    assert rig.empty


def test_a_file_that_lay_there_is_told_to_nobody(rig: FileRig) -> None:
    assert rig.provide(10, FileRef(FILE)) == []
    rig.submit(call(1, slots=(10,)))
    assert rig.launches[1].slots == (FileRef(FILE),)
    rig.release(10)
    rig.finish(1)
    rig.release(101)
    assert rig.empty


def test_a_writer_does_not_wait_for_readers_and_its_file_takes_the_name_after_them(rig: FileRig) -> None:
    rig.provide(10, FileRef(FILE))
    rig.submit(call(1, slots=(10,)), call(2, slots=(10,)), writes_file(3, 11, FILE))
    rig.release(10)
    assert not publishes(rig, 3)
    assert rig.finish(3, scratch(3)) == [Settle(11, scratch(3))]
    rig.finish(1)
    assert rig.finish(2)[1:] == [Publish(11, scratch(3).path, FILE), Discard(scratch(3).path)]


def test_a_version_the_program_holds_does_not_keep_the_next_one_waiting(rig: FileRig) -> None:
    rig.provide(10, FileRef(FILE))
    rig.submit(call(1, slots=(10,)), writes_file(2, 11, FILE))
    rig.finish(2, scratch(2))
    assert Publish(11, scratch(2).path, FILE) in rig.finish(1)


def test_a_reader_of_a_version_that_waits_for_its_name_reads_the_private_copy(rig: FileRig) -> None:
    rig.provide(10, FileRef(FILE))
    rig.submit(call(1, slots=(10,)), writes_file(2, 11, FILE), call(3, slots=(11,)))
    rig.release(10)
    rig.finish(2, scratch(2))
    assert rig.launches[3].slots == (scratch(2),)
    assert rig.finish(1)[1:] == [Publish(11, scratch(2).path, FILE)]
    rig.submit(call(4, slots=(11,)))
    assert rig.launches[4].slots == (scratch(2),)  # the name may not be given yet; the copy is there
    rig.finish(3)
    assert rig.finish(4)[1:] == [Discard(scratch(2).path)]
    rig.submit(call(5, slots=(11,)))
    assert rig.launches[5].slots == (FileRef(FILE),)


def test_versions_take_the_name_in_the_order_of_the_calls(rig: FileRig) -> None:
    rig.submit(writes_file(1, 11, FILE), writes_file(2, 12, FILE), writes_file(3, 13, FILE))
    for version in (11, 12, 13):
        rig.release(version)
    assert [publishes(rig, task) for task in (1, 2, 3)] == [True, False, False]
    assert rig.finish(3, scratch(3)) == []
    assert rig.finish(2, scratch(2)) == []
    assert rig.finish(1, FileRef(FILE)) == [
        Publish(12, scratch(2).path, FILE),
        Discard(scratch(2).path),
        Publish(13, scratch(3).path, FILE),
        Discard(scratch(3).path),
    ]
    assert rig.empty


def test_an_early_file_waits_for_its_name_like_any_other(rig: FileRig) -> None:
    rig.provide(10, FileRef(FILE))
    rig.submit(call(1, slots=(10,)), writes_file(2, 11, FILE))
    assert rig.hand_over(2, 0, scratch(2)) == [Settle(11, scratch(2))]
    assert rig.finish(2, None) == []
    assert rig.finish(1)[1:] == [Publish(11, scratch(2).path, FILE), Discard(scratch(2).path)]


def test_a_writer_that_failed_does_not_keep_the_next_one_waiting(rig: FileRig) -> None:
    rig.provide(10, FileRef(FILE))
    rig.submit(call(1, slots=(10,)), writes_file(2, 11, FILE), writes_file(3, 12, FILE))
    rig.finish(3, scratch(3))
    rig.fail(2)
    assert rig.finish(1)[1:] == [Publish(12, scratch(3).path, FILE), Discard(scratch(3).path)]


def test_a_failed_version_in_the_middle_is_forgotten(rig: FileRig) -> None:
    rig.provide(10, FileRef(FILE))
    rig.submit(call(1, slots=(10,)), writes_file(2, 11, FILE))
    rig.release(11)
    rig.fail(2)
    assert not rig.engine.lives(11)


def test_a_file_is_never_updated_in_place(rig: FileRig) -> None:
    rig.provide(10, FileRef(FILE))
    rig.submit(call(9))
    rig.submit(replace(writes_file(1, 11, FILE, old=10), reads=(10, 109)))
    rig.release(10)
    rig.finish(9)
    assert rig.launches[1].in_place == ()
    assert publishes(rig, 1)


def test_a_private_copy_is_never_updated_in_place(rig: FileRig) -> None:
    rig.provide(10, FileRef(FILE))
    rig.submit(call(1, slots=(10,)), writes_file(2, 11, FILE), writes_file(3, 12, FILE, old=11))
    rig.release(10)
    rig.release(11)
    rig.finish(2, scratch(2))
    assert rig.launches[3].in_place == ()
    assert rig.finish(1)[1:] == [Publish(11, scratch(2).path, FILE)]
    assert rig.finish(3, scratch(3)) == [
        Settle(12, scratch(3)),
        Discard(scratch(2).path),
        Publish(12, scratch(3).path, FILE),
        Discard(scratch(3).path),
    ]


def test_an_ignored_update_of_a_private_copy_keeps_that_content(rig: FileRig) -> None:
    lenient = spec("lenient", on_failure=OnFailure.IGNORE)
    rig.provide(10, FileRef(FILE))
    rig.submit(call(1, slots=(10,)), writes_file(2, 11, FILE), writes_file(3, 12, FILE, old=11, of=lenient))
    rig.release(10)
    rig.release(11)
    rig.finish(2, scratch(2))
    assert rig.fail(3) == [Settle(12, scratch(2))]
    assert rig.finish(1)[1:] == [Publish(12, scratch(2).path, FILE), Discard(scratch(2).path)]


def test_an_ignored_update_of_a_file_at_its_name_leaves_it_there(rig: FileRig) -> None:
    lenient = spec("lenient", on_failure=OnFailure.IGNORE)
    rig.provide(10, FileRef(FILE))
    rig.submit(writes_file(1, 11, FILE, old=10, of=lenient))
    assert rig.fail(1) == [Settle(11, FileRef(FILE))]


def test_a_file_that_a_second_attempt_writes_again_is_discarded(rig: FileRig) -> None:
    rig.provide(10, FileRef(FILE))
    rig.submit(call(1, slots=(10,)), writes_file(2, 11, FILE))
    rig.hand_over(2, 0, scratch(2))
    rig.lose_worker(1)
    assert rig.finish(2, scratch(22)) == [Discard(scratch(22).path)]


def test_a_long_queue_of_versions_takes_the_name_without_deep_recursion(rig: FileRig) -> None:
    rig.provide(10, FileRef(FILE))
    rig.submit(call(1, slots=(10,)))
    rig.release(10)
    rig.checking = False  # a thousand looks at a thousand versions take seconds
    last = 1000 + sys.getrecursionlimit() + 200
    engine = rig.engine
    for number in range(1000, last):
        engine.handle(Submitted(writes_file(number, number, FILE)), 0.0)
        engine.handle(Released((number,)), 0.0)
        engine.handle(Finished(number, 1, [scratch(number)], 0.1), 0.0)
    commands = rig.finish(1)
    assert sum(type(command) is Publish for command in commands) == last - 1000
    assert commands[-2] == Publish(last - 1, scratch(last - 1).path, FILE)


def test_a_cancelled_writer_leaves_the_file_to_the_others(rig: FileRig) -> None:
    rig.submit(call(1), call(5, slots=(101,), writes=(11,), outputs=writes_file(5, 11, FILE).outputs))
    rig.submit(writes_file(2, 12, FILE))
    rig.finish(2, scratch(2))
    assert rig.state(5) is TaskState.WAITING
    commands = rig.cancel(5)
    assert set(settled(commands)) == {11}
    assert Publish(12, scratch(2).path, FILE) in commands


def test_several_files_of_one_call(rig: FileRig) -> None:
    other = "/data/other"
    rig.provide(10, FileRef(FILE))
    both = call(2, writes=(11, 12), outputs=(*writes_file(2, 11, FILE).outputs, *writes_file(2, 12, other).outputs))
    rig.submit(call(1, slots=(10,)), both)
    assert not publishes(rig, 2)
    assert rig.finish(2, scratch(1), scratch(2)) == [
        Settle(11, scratch(1)),
        Settle(12, scratch(2)),
        Publish(12, scratch(2).path, other),  # nobody reads an older version of this one
        Discard(scratch(2).path),
    ]
    assert rig.finish(1)[1:] == [Publish(11, scratch(1).path, FILE), Discard(scratch(1).path)]
