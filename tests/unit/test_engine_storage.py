"""I/O tasks on storage devices through the engine: admission, refunds, room, full layers, and where files are."""

from __future__ import annotations

import pytest
from tests.unit.engine_rig import (
    BOOM,
    FileRef,
    Rig,
    big,
    call,
    failure_of,
    launched,
    settled,
    spec,
    updates,
    value,
    writes_file,
)
from tests.unit.storage_rig import FAST, FULL, MB, SLOW, StorageRig, io, of_kind, on_disk, reads, where, writes

from penstock.engine.crowding import GRACE
from penstock.model.commands import Discard, Launch, Move, Publish, Recall, Settle
from penstock.model.events import Finished, LeftMeasured, NodeJoined, Published
from penstock.model.resources import Node, Requirements, StorageLayer
from penstock.model.tasks import FailureKind, OnFailure, TaskState

W = io("w", bw=40)
FAST_FILE = "/fast/ours/1/a"


# --- admission ------------------------------------------------------------------------------------------------------


def test_a_task_goes_to_the_fastest_layer_with_enough_bandwidth_and_waits_if_there_is_none() -> None:
    rig = StorageRig(executors=9)
    commands = rig.submit(*(call(task, W) for task in range(1, 6)))
    assert where(commands) == [(1, "fast", 40.0), (2, "fast", 40.0), (3, "slow", 40.0)]
    assert rig.free("fast")[0] == 20.0
    assert rig.free("slow")[0] == 0.0
    assert where(rig.finish(3)) == [(4, "slow", 40.0)]
    assert where(rig.finish(1)) == [(5, "fast", 40.0)]


def test_the_command_says_where_to_write() -> None:
    rig = StorageRig(executors=2, lanes=3)
    task = writes(1, "/a", W)
    assert rig.submit(task) == [Launch(1, 1, "n", 3, task, layer="fast", bandwidth=40 * MB, redirected=(0,))]


def test_a_file_whose_name_lies_on_the_layer_is_written_in_place() -> None:
    rig = StorageRig()
    task = writes(1, "/fast/a", W)
    assert rig.submit(task) == [Launch(1, 1, "n", 1, task, layer="fast", bandwidth=40 * MB)]
    assert on_disk(rig.wrote(1, path="/fast/a", size=10)) == []
    assert rig.engine.state.at_home["/fast/a"][1] == 10
    assert rig.device("fast").stored == 10


def test_an_io_task_takes_no_computing_unit() -> None:
    rig = StorageRig(executors=2, lanes=1)
    assert launched(rig.submit(call(1), call(2, W), call(3, io("u")), call(4))) == [1, 2, 3]
    assert rig.engine.state.ledger.nodes["n"].free_cpus == 0
    assert launched(rig.finish(2)) == []
    assert launched(rig.finish(1)) == [4]


def test_executors_bound_tasks_that_say_nothing_of_storage() -> None:
    rig = StorageRig(executors=2)
    assert where(rig.submit(*(call(task, io("u")) for task in range(1, 5)))) == [(1, "", 0.0), (2, "", 0.0)]
    assert launched(rig.finish(1)) == [3]


def test_memory_given_back_by_a_compute_task_lets_an_io_task_start() -> None:
    rig = Rig(lanes=0)
    rig.tell(NodeJoined(Node("n", 1, 100, io_executors=1)))
    rig.submit(call(1, spec("compute", requirements=Requirements(1, 60))))
    assert launched(rig.submit(call(2, spec("io", requirements=Requirements(0, 60, io=True))))) == []
    assert launched(rig.finish(1)) == [2]


def test_a_task_that_reads_a_file_on_a_layer_and_writes_none_uses_that_layer() -> None:
    rig = StorageRig(executors=9)
    hog = io("hog", bw=80)
    rig.submit(call(9, hog), writes(1, "/a", io("w", bw=30)))
    assert on_disk(rig.wrote(1)) == [Publish(101, "/slow/ours/1/a", "/a", link=True)]
    rig.finish(9)
    assert where(rig.submit(reads(2, 101, of=io("r", bw=5)))) == [(2, "slow", 5.0)]
    assert where(rig.submit(reads(3, of=io("r", bw=5)))) == [(3, "fast", 5.0)]


def test_a_shared_layer_has_one_budget_for_all_nodes() -> None:
    pfs = StorageLayer("pfs", "/pfs", 100 * MB, 50, shared=True)
    rig = StorageRig(pfs, nodes=2)
    commands = rig.submit(*(call(task, io("w", bw=30, size=10)) for task in range(1, 6)))
    assert [(c.task, c.node) for c in commands if type(c) is Launch] == [(1, "n0"), (2, "n0"), (3, "n0")]
    assert rig.device("pfs", "n0") is rig.device("pfs", "n1")
    assert rig.free("pfs", "n1") == (10.0, 20)
    rig.lose_node("n0")  # its attempts give back, and start on the other node
    assert rig.free("pfs", "n1") == (10.0, 20)
    assert {task.lane.node.name for task in rig.engine.state.tasks.values() if task.lane} == {"n1"}


def test_a_layer_that_is_not_shared_has_a_budget_on_each_node() -> None:
    rig = StorageRig(FAST, nodes=2)
    rig.submit(*(call(task, io("w", bw=60)) for task in range(1, 4)))
    assert rig.free("fast", "n0")[0] == rig.free("fast", "n1")[0] == 40.0
    assert rig.state(3) is TaskState.READY


# --- what an attempt takes is given back, however it ends -------------------------------------------------------------


@pytest.mark.parametrize("end", ["finished", "failed", "worker lost", "killed", "full", "recalled", "node lost"])
def test_bandwidth_and_room_come_back_when_an_attempt_ends(end: str) -> None:
    rig = StorageRig(StorageLayer("fast", "/fast", 100 * MB, 100), executors=1)
    rig.submit(call(1, io("w", bw=60, size=30, retries=0)))
    assert rig.free("fast") == (40.0, 70)
    lane = rig.lane_of(1)
    device = rig.device("fast")
    match end:
        case "finished":
            rig.finish(1)
        case "failed":
            rig.fail(1, BOOM)
        case "worker lost":
            rig.lose_worker(lane)
        case "killed":
            rig.cancel(1, kill=True)
            assert rig.free("fast") == (40.0, 70)
            rig.lose_worker(lane)
        case "full":
            rig.fail(1, FULL)
            assert device.full_until > rig.now
            device.full_until = 0.0
        case "recalled":
            rig.recalled(lane, 1)
        case "node lost":
            rig.lose_node("n")
    assert (device.free_bandwidth, device.free_capacity) == (100 * MB, 100)


def test_short_tasks_sent_ahead_pass_their_bandwidth_on_and_have_their_room_set_aside() -> None:
    rig = StorageRig(StorageLayer("fast", "/fast", 100 * MB, 100), executors=1)
    short = io("short", bw=60, size=30)
    rig.submit(call(1, short))
    rig.finish(1, seconds=0.0001)
    rig.submit(*(call(task, short) for task in range(2, 7)))
    assert [rig.state(task) for task in (2, 3, 4, 5)] == [
        TaskState.RUNNING,
        TaskState.QUEUED,
        TaskState.QUEUED,
        TaskState.READY,
    ]
    assert rig.free("fast") == (40.0, 10)
    rig.finish(2, seconds=0.0001)
    assert rig.free("fast") == (40.0, 10)  # the fourth is sent when the second's room is free
    assert rig.state(3) is TaskState.RUNNING
    [recall] = rig.tick(1.0)
    assert type(recall) is Recall
    rig.recalled(rig.lane_of(3), *(task for task in (4, 5) if rig.state(task) is TaskState.QUEUED))
    assert rig.free("fast")[0] == 40.0


def test_what_a_file_really_fills_stays_taken() -> None:
    rig = StorageRig(StorageLayer("fast", "/fast", 100 * MB, 100))
    rig.submit(writes(1, "/a", io("w", bw=60, size=30)))
    assert rig.free("fast") == (40.0, 70)
    rig.wrote(1, size=12)
    assert rig.free("fast") == (100.0, 88)


# --- full layers ------------------------------------------------------------------------------------------------------


def test_declared_room_decides_and_what_has_none_overflows_to_the_next_layer() -> None:
    small = StorageLayer("fast", "/fast", 100 * MB, 25)
    rig = StorageRig(small, SLOW, executors=9)
    w = io("w", bw=1, size=10)
    assert where(rig.submit(*(call(task, w) for task in range(1, 4)))) == [
        (1, "fast", 1.0),
        (2, "fast", 1.0),
        (3, "slow", 1.0),
    ]


def test_what_earlier_runs_left_takes_room_and_is_pointed_out() -> None:
    small = StorageLayer("fast", "/fast", 100 * MB, 100, taken=70)
    rig = StorageRig(small, SLOW, executors=9)
    w = io("w", bw=1, size=20)
    assert where(rig.submit(*(call(task, w) for task in (1, 2)))) == [(1, "fast", 1.0), (2, "slow", 1.0)]
    rig.tell(LeftMeasured("fast", 30))  # some of it was brought home
    assert where(rig.submit(call(3, w))) == [(3, "fast", 1.0)]
    alone = StorageRig(small)
    assert alone.submit(call(1, io("w", bw=1, size=50))) == []  # it has so much, though not now
    failure = settled(alone.tick(GRACE))[101]
    assert "fast has 30 B of 100 B left (70 B are of runs that are gone: `penstock recover`" in failure.message  # type: ignore[union-attr]


def test_a_layer_that_says_it_is_full_is_left_alone_for_a_while_and_that_is_no_retry() -> None:
    rig = StorageRig()
    once = io("w", bw=10, retries=0)
    rig.submit(call(1, once))
    assert where(rig.fail(1, FULL)) == [(1, "slow", 10.0)]
    assert where(rig.submit(call(2, once))) == [(2, "slow", 10.0)]
    assert rig.tick(0.6) == []
    assert where(rig.submit(call(3, once))) == [(3, "fast", 10.0)]
    assert settled(rig.fail(1, BOOM)).keys() == {101}


def test_a_full_layer_is_asked_again_at_once_when_something_on_it_is_gone() -> None:
    rig = StorageRig()
    rig.submit(writes(1, "/fast/a", W))
    rig.wrote(1, path="/fast/a")
    rig.release(101)
    rig.submit(call(2, W))
    rig.fail(2, FULL)
    assert rig.state(2) is TaskState.RUNNING
    rig.drop_file("/fast/a")
    assert where(rig.submit(call(3, W))) == [(3, "fast", 40.0)]


def test_an_attempt_that_changes_its_input_in_place_is_not_repeated_on_another_layer_with_the_spoilt_input() -> None:
    rig = StorageRig()
    rig.submit(call(1), updates(2, 101, 202, of=W))
    rig.release(101)
    [launch] = [c for c in rig.finish(1, big(7)) if type(c) is Launch]
    commands = rig.fail(2, FULL)
    assert not launch.in_place or failure_of(commands, 202).kind is FailureKind.STORAGE_FULL
    assert launch.in_place or launched(commands) == [2]


def test_tasks_without_a_layer_fail_when_their_disk_is_full() -> None:
    rig = StorageRig()
    rig.submit(call(1, io("u", retries=2, on_failure=OnFailure.RETRY)))
    assert failure_of(rig.fail(1, FULL), 101).kind is FailureKind.STORAGE_FULL


def test_who_waits_for_room_has_files_moved_out_of_the_way() -> None:
    rig = StorageRig(StorageLayer("fast", "/fast", 100 * MB, 10), executors=9)
    w = io("w", bw=1, size=10)
    rig.submit(writes(1, "/a", w))
    rig.wrote(1, size=10)
    rig.release(101)
    [move] = rig.submit(writes(2, "/b", w))
    assert move == Move(101, FAST_FILE, "", "/a", temp=False)
    [discard] = rig.moved(move)
    assert discard == Discard(FAST_FILE, tell=True)
    assert rig.state(2) is TaskState.READY  # the room is free when the copy is gone
    assert where(rig.discarded(discard)) == [(2, "fast", 1.0)]


def test_who_waits_for_room_in_vain_is_refused_after_a_while_saying_what_is_full() -> None:
    rig = StorageRig(StorageLayer("fast", "/fast", 100 * MB, 10))
    w = io("w", bw=1, size=8)
    rig.submit(writes(1, "/fast/a", w))
    rig.wrote(1, path="/fast/a", size=8)
    rig.release(101)
    rig.submit(writes(2, "/fast/b", w), reads(3, 102))
    assert rig.engine.next_look() == rig.now + GRACE
    assert rig.tick(GRACE - 1) == []
    told = settled(rig.tick(1.5))
    assert told[102].kind is FailureKind.STORAGE_FULL  # type: ignore[union-attr]
    assert "fast has 2" in told[102].message  # type: ignore[union-attr]
    assert told[103].kind is FailureKind.DEPENDENCY  # type: ignore[union-attr]


def test_whose_last_attempt_meets_a_full_layer_after_that_while_is_told_what_is_full_too() -> None:
    rig = StorageRig(StorageLayer("fast", "/fast", 100 * MB))
    rig.submit(writes(1, "/a", io("w", bw=1)))
    rig.fail(1, FULL)
    assert launched(rig.tick(1.0)) == [1]
    rig.tick(GRACE)  # it writes for long before it finds out
    told = settled(rig.fail(1, FULL))
    assert told[101].kind is FailureKind.STORAGE_FULL  # type: ignore[union-attr]
    assert told[101].message.startswith(FULL.message)  # type: ignore[union-attr]
    assert "fast (/fast) is full" in told[101].message  # type: ignore[union-attr]


@pytest.mark.parametrize("other_is_told_too", [False, True])
def test_who_meets_a_full_layer_late_is_tried_again_while_another_may_make_room(other_is_told_too: bool) -> None:
    rig = StorageRig(StorageLayer("fast", "/fast", 100 * MB))
    w = io("w", bw=1)
    rig.submit(writes(1, "/a", w), writes(2, "/b", w))
    rig.fail(1, FULL)
    if other_is_told_too:
        rig.fail(2, FULL)
    rig.tick(1.0)
    rig.tick(GRACE)
    told = settled(rig.fail(1, FULL))
    assert bool(told) == other_is_told_too
    rig.tick(8.0)
    assert rig.state(2) is TaskState.RUNNING
    if not other_is_told_too:
        assert rig.state(1) is TaskState.RUNNING


def test_who_comes_late_to_full_layers_has_a_grace_period_of_its_own() -> None:
    rig = StorageRig(StorageLayer("fast", "/fast", 100 * MB))
    w = io("w", bw=1)
    rig.submit(writes(1, "/a", w))
    rig.fail(1, FULL)
    rig.tick(GRACE + 1)
    rig.submit(writes(2, "/b", w))
    assert not settled(rig.fail(2, FULL))


def test_nobody_is_refused_while_compute_tasks_run_and_everybody_is_looked_at_when_they_end() -> None:
    rig = StorageRig(StorageLayer("fast", "/fast", 100 * MB, 10))
    w = io("w", bw=1, size=8)
    rig.submit(writes(1, "/fast/a", w))
    rig.wrote(1, path="/fast/a", size=8)
    rig.release(101)
    rig.submit(call(9), writes(2, "/fast/b", w))
    assert rig.tick(GRACE * 2) == []
    rig.finish(9)
    assert rig.engine.next_look() == rig.now + GRACE


def test_nobody_is_refused_for_want_of_an_executor() -> None:
    rig = StorageRig(executors=1)
    rig.submit(call(1, W))
    rig.cancel(1, kill=True)
    rig.finish(1)
    rig.submit(call(2, W), call(3, io("u")))
    rig.tick(1.0)
    assert rig.tick(GRACE * 2) == []  # the process takes its time to die
    assert launched(rig.lose_worker(1)) == [2]


# --- where files are --------------------------------------------------------------------------------------------------


def test_a_finished_file_stays_on_its_layer_and_its_name_becomes_a_link() -> None:
    rig = StorageRig()
    rig.submit(writes(1, "/a", W), reads(2, 101))
    task = rig.engine.state.tasks[2].call
    assert rig.wrote(1, size=10) == [
        Settle(101, FileRef(FAST_FILE, 10)),
        Publish(101, FAST_FILE, "/a", link=True),
        Launch(2, 1, "n", 0, task, slots=(FileRef(FAST_FILE, 10),)),
    ]
    rig.release(101)
    assert rig.finish(2) == [Settle(102, value("x"))]
    assert rig.engine.lives(101)  # until it is home


def test_a_newer_version_takes_the_name_and_the_older_copy_goes_after_its_readers() -> None:
    rig = StorageRig()
    rig.submit(writes(1, "/a", W))
    rig.wrote(1)
    rig.submit(reads(2, 101), writes(3, "/a", W))
    rig.release(101)
    assert on_disk(rig.wrote(3)) == []
    assert on_disk(rig.finish(2)) == [
        Publish(103, "/fast/ours/3/a", "/a", link=True),
        Discard(FAST_FILE, tell=True),
    ]


def test_an_update_of_a_file_on_a_layer_reads_it_there() -> None:
    rig = StorageRig()
    rig.submit(writes(1, "/a", W))
    rig.wrote(1)
    [launch] = rig.submit(writes(2, "/a", W, old=101))
    assert type(launch) is Launch
    assert (launch.slots, launch.layer, launch.redirected) == ((FileRef(FAST_FILE, 10),), "fast", (0,))


def test_the_failure_of_a_newer_writer_leaves_the_older_file_to_be_read() -> None:
    rig = StorageRig()
    rig.submit(writes(1, "/a", W))
    rig.wrote(1)
    rig.release(101)
    rig.submit(writes(2, "/a", W))
    rig.fail(2)
    rig.release(102)
    rig.provide(3, FileRef("/a"))  # as the program does once it has seen the failure
    assert launched(rig.submit(reads(4, 3))) == [4]
    assert on_disk(rig.release(3)) == []
    assert on_disk(rig.finish(4)) == []
    assert on_disk(rig.drain()) == [Move(101, FAST_FILE, "", "/a", temp=False)]


def test_an_ignored_failure_to_update_leaves_the_file_where_it_is() -> None:
    rig = StorageRig()
    rig.submit(writes(1, "/a", W))
    rig.wrote(1)
    rig.submit(writes(2, "/a", io("i", bw=1, on_failure=OnFailure.IGNORE), old=101))
    rig.release(101)
    assert on_disk(rig.fail(2)) == []
    rig.release(102)
    [move] = on_disk(rig.drain())
    assert type(move) is Move
    assert (move.source, move.layer, move.name) == (FAST_FILE, "", "/a")


def test_an_update_at_home_is_given_its_name_by_a_rename_and_counted_once() -> None:
    rig = StorageRig()
    rig.submit(writes(1, "/fast/a", W))
    rig.wrote(1, path="/fast/a", size=10)
    rig.submit(writes(2, "/fast/a", W, old=101))
    rig.release(101)
    aside = "/fast/.private/a"
    assert on_disk(rig.wrote(2, path=aside, size=12)) == [Publish(102, aside, "/fast/a"), Discard(aside)]
    assert rig.device("fast").stored == 12


def test_room_at_home_is_free_when_a_newer_version_is_written_elsewhere() -> None:
    rig = StorageRig()
    rig.submit(writes(1, "/fast/a", io("w", bw=1)))
    rig.wrote(1, path="/fast/a", size=10)
    rig.release(101)
    rig.submit(call(9, io("hog", bw=100)), writes(2, "/fast/a", io("w", bw=1)))
    rig.wrote(2, size=12)
    assert (rig.device("fast").stored, rig.device("slow").stored) == (0, 12)


def test_a_plain_task_writes_over_a_file_on_a_layer() -> None:
    rig = StorageRig()
    rig.submit(writes(1, "/a", W))
    rig.wrote(1)
    rig.release(101)
    rig.submit(writes_file(2, 102, "/a"))
    assert on_disk(rig.finish(2, FileRef("/a", 10))) == [Discard(FAST_FILE, tell=True)]


def test_room_of_a_version_that_is_replaced_at_home_lets_a_task_start() -> None:
    rig = StorageRig(StorageLayer("pfs", "/pfs", 100 * MB, 16), lanes=2)
    w = io("w", bw=1, size=4)
    rig.submit(call(9), writes(1, "/pfs/c", w))
    rig.wrote(1, path="/pfs/c", size=4)
    rig.submit(reads(2, 101), writes(3, "/pfs/c", w), writes(4, "/pfs/d", w))
    rig.release(101)
    rig.wrote(3, path="/pfs/.private/c", size=4)
    rig.wrote(4, path="/pfs/d", size=4)
    rig.submit(call(5, io("x", bw=1, size=6)))
    assert rig.state(5) is TaskState.READY
    assert launched(rig.finish(2)) == [5]  # nobody reads the older one any more, and the newer one took its place


def test_a_newer_version_that_could_not_be_named_is_not_replaced_by_the_older_one_in_the_end() -> None:
    rig = StorageRig()
    rig.submit(writes(1, "/a", W))
    rig.wrote(1)
    rig.release(101)
    rig.submit(writes(2, "/a", W))
    newer = "/fast/ours/2/a"
    rig.engine.handle(Finished(2, 1, [FileRef(newer, 10)], 1.0), rig.now)
    rig.release(102)
    rig.tell(Published(102, newer))  # it stays where it is
    moves = of_kind(rig.want_home("/a"), Move)
    for move in moves:
        moves += of_kind(rig.moved(move), Move)
    moves += of_kind(rig.drain(), Move)
    assert [(move.version, move.name) for move in moves] == [(102, "/a")]  # type: ignore[union-attr]
