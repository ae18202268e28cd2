"""Moving files between layers through the engine: down when no I/O runs, home when asked for, everything at the end."""

from __future__ import annotations

import pytest
from tests.unit.engine_rig import FileRef, call, launched, writes_file
from tests.unit.storage_rig import FAST, SLOW, StorageRig, io, of_kind, on_disk, reads, where, writes

from penstock.model.commands import Discard, Launch, Move, Publish
from penstock.model.events import Moved
from penstock.model.resources import StorageLayer

W = io("w", bw=10)
A = "/fast/ours/1/a"
MIDDLE = StorageLayer("middle", "/middle", 60e6)


def moving(**rules: object) -> StorageRig:
    return StorageRig(FAST, MIDDLE, SLOW, data_movement=True, **rules)


def written(rig: StorageRig, task: int, name: str, *, temp: bool = False, size: int = 10) -> list[Move | Discard]:
    """A file is written on the fast layer and let go by the program; what is done about it."""
    rig.submit(writes(task, name, W, temp=temp))
    commands = rig.wrote(task, size=size) + rig.release(100 + task)
    return of_kind(commands, Move, Discard)  # type: ignore[return-value]


# --- down, when no I/O runs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "temp", "layer"),
    [
        ("/a", False, ""),
        ("/slow/a", False, ""),
        ("/middle/a", False, ""),
        ("/a", True, "slow"),
        ("/fast/a", True, "slow"),
    ],
    ids=["home on no layer", "home on the lowest", "home in the middle", "temporary", "temporary, with a fast name"],
)
def test_a_file_goes_home_and_what_has_no_home_sinks(name: str, temp: bool, layer: str) -> None:
    rig = moving()
    assert written(rig, 1, name, temp=temp) == [Move(101, f"/fast/ours/1{name}", layer, name, temp)]


def test_nothing_moves_unless_asked_for() -> None:
    rig = StorageRig(FAST, MIDDLE, SLOW)
    assert written(rig, 1, "/a") == []


def test_a_layer_without_room_is_passed_over() -> None:
    rig = StorageRig(FAST, MIDDLE, StorageLayer("slow", "/slow", 40e6, 5), data_movement=True)
    assert written(rig, 1, "/a", temp=True) == [Move(101, A, "middle", "/a", temp=True)]


def test_a_file_with_no_room_further_down_stays() -> None:
    small = StorageLayer("slow", "/slow", 40e6, 5)
    rig = StorageRig(FAST, small, data_movement=True)
    assert written(rig, 1, "/slow/a") == []


def test_the_target_is_charged_when_the_move_begins_and_the_source_credited_when_the_copy_is_gone() -> None:
    rig = moving()
    [move] = written(rig, 1, "/slow/a")
    assert (rig.device("fast").stored, rig.device("slow").stored) == (10, 10)
    [discard] = rig.moved(move)
    assert discard == Discard("/fast/ours/1/slow/a", tell=True)
    assert (rig.device("fast").stored, rig.device("slow").stored) == (10, 10)
    rig.discarded(discard)
    assert (rig.device("fast").stored, rig.device("slow").stored) == (0, 10)
    assert not rig.engine.lives(101)


def test_the_oldest_moves_first_and_one_at_a_time() -> None:
    rig = moving()
    rig.submit(*(writes(task, f"/{task}", W) for task in (1, 2, 3)))
    moves = []
    for task in (2, 1, 3):
        moves += of_kind(rig.wrote(task) + rig.release(100 + task), Move)
    assert [move.version for move in moves] == [102]  # type: ignore[union-attr]
    [move] = moves
    [discard, move] = rig.moved(move)
    assert type(move) is Move and move.version == 101
    rig.discarded(discard)
    [discard, move] = rig.moved(move)
    assert type(move) is Move and move.version == 103


def test_nothing_moves_while_io_runs() -> None:
    rig = moving()
    rig.submit(call(9, io("u")), writes(1, "/a", W))
    rig.wrote(1)
    assert on_disk(rig.release(101)) == []
    assert on_disk(rig.finish(9)) == [Move(101, A, "", "/a", temp=False)]


def test_compute_tasks_do_not_keep_files_from_moving() -> None:
    rig = moving()
    rig.submit(call(9))
    assert written(rig, 1, "/a") == [Move(101, A, "", "/a", temp=False)]


def test_nothing_moves_that_will_be_read_or_replaced() -> None:
    rig = moving(lanes=0)
    rig.submit(writes(1, "/a", W), writes(2, "/b", W), reads(3, 101), writes_file(4, 104, "/b"))
    for task in (1, 2):
        rig.wrote(task)
        assert of_kind(rig.release(100 + task), Move) == []
    assert of_kind(rig.cancel(3), Move) == [Move(101, A, "", "/a", temp=False)]


def test_a_reader_that_comes_while_a_file_moves_reads_the_old_copy_which_stays_for_it() -> None:
    rig = moving()
    [move] = written(rig, 1, "/a")
    [launch] = rig.submit(reads(2, 101))
    assert type(launch) is Launch and launch.slots == (FileRef(A, 10),)
    assert on_disk(rig.moved(move)) == []
    assert on_disk(rig.finish(2)) == [Discard(A, tell=True)]


def test_a_reader_that_comes_after_a_move_reads_the_new_copy() -> None:
    rig = moving()
    [move] = written(rig, 1, "/a", temp=True)
    rig.moved(move)
    [launch] = rig.submit(reads(2, 101))
    assert type(launch) is Launch and launch.slots == (FileRef("/slow/ours/-101/a", 10),)


def test_a_newer_version_waits_for_the_name_until_the_move_is_over() -> None:
    rig = moving()
    [move] = written(rig, 1, "/a")
    rig.submit(writes(2, "/a", W))
    assert on_disk(rig.wrote(2)) == []
    rig.release(102)
    assert on_disk(rig.moved(move))[:2] == [Discard(A, tell=True), Publish(102, "/fast/ours/2/a", "/a", link=True)]


def test_a_writer_that_may_not_publish_during_a_move_sets_its_file_aside() -> None:
    rig = moving()
    [move] = written(rig, 1, "/a")
    [launch] = rig.submit(writes_file(2, 102, "/a"))
    assert type(launch) is Launch and not launch.publish
    assert on_disk(rig.finish(2, FileRef("/.private/a", 10))) == []
    assert Publish(102, "/.private/a", "/a") in on_disk(rig.moved(move))


def test_what_could_not_be_moved_stays_and_is_not_tried_again() -> None:
    rig = moving()
    [move] = written(rig, 1, "/slow/a")
    assert rig.moved(move, error="no space left on device") == []
    assert (rig.device("fast").stored, rig.device("slow").stored) == (10, 0)
    rig.submit(call(2, W))
    assert rig.finish(2)[1:] == []


# --- what the program asks for ----------------------------------------------------------------------------------------


def test_a_file_that_the_program_will_change_comes_home() -> None:
    rig = StorageRig()
    written(rig, 1, "/a")
    [move] = rig.want_home("/a")
    assert move == Move(101, A, "", "/a", temp=False)
    assert rig.moved(move) == [Discard(A, tell=True)]
    assert not rig.engine.lives(101)


def test_a_file_that_is_wanted_home_while_it_moves_elsewhere_comes_home_next() -> None:
    rig = moving()
    [move] = written(rig, 1, "/a", temp=True)
    assert rig.want_home("/a") == []
    home = Move(101, "/slow/ours/-101/a", "", "/a", temp=True)
    assert home in rig.moved(move)


def test_a_file_that_was_wanted_home_in_vain_can_be_wanted_again() -> None:
    rig = StorageRig()
    written(rig, 1, "/a")
    [move] = rig.want_home("/a")
    assert rig.moved(move, error="no space left on device") == []
    assert rig.want_home("/a") == [move]


def test_a_deleted_file_leaves_its_layer() -> None:
    rig = StorageRig()
    written(rig, 1, "/a")
    [discard] = rig.drop_file("/a")
    assert discard == Discard(A, tell=True)
    rig.discarded(discard)
    assert rig.device("fast").stored == 0
    assert rig.empty


def test_a_file_that_is_deleted_while_it_moves_does_not_come_back() -> None:
    rig = moving()
    [move] = written(rig, 1, "/a")
    assert rig.drop_file("/a") == []
    commands = rig.moved(move)
    assert set(commands) == {Discard("/a"), Discard(A, tell=True)}
    assert rig.empty


def test_room_of_a_deleted_file_at_home_is_free() -> None:
    rig = StorageRig()
    rig.submit(writes(1, "/fast/a", W))
    rig.wrote(1, path="/fast/a", size=10)
    rig.release(101)
    assert rig.drop_file("/fast/a") == []
    assert rig.device("fast").stored == 0


# --- the end ----------------------------------------------------------------------------------------------------------


def test_at_the_end_permanent_files_go_home_one_by_one_and_temporary_ones_go() -> None:
    rig = StorageRig()
    for task, name in ((1, "/a"), (2, "/b"), (4, "/c")):
        written(rig, task, name)
    written(rig, 3, "/t", temp=True)
    commands = rig.drain()
    assert set(commands) == {
        Discard("/t"),
        Discard("/fast/ours/3/t", tell=True),
        Move(101, A, "", "/a", temp=False),
    }
    [move] = of_kind(commands, Move)
    rig.discarded(*(c for c in commands if type(c) is Discard and c.tell))
    names = []
    while move is not None:
        assert type(move) is Move
        names.append(move.name)
        commands = rig.moved(move)
        rig.discarded(*of_kind(commands, Discard))
        move = next(iter(of_kind(commands, Move)), None)  # type: ignore[assignment]
    assert names == ["/a", "/b", "/c"]
    assert rig.device("fast").stored == 0
    assert rig.empty


def test_nothing_starts_at_the_end() -> None:
    rig = StorageRig(executors=1)
    rig.submit(call(1, W), call(2, W), call(3), call(4))
    assert launched(rig.drain()) == []
    assert launched(rig.finish(1)) == []
    assert launched(rig.finish(3)) == []


def test_at_the_end_only_the_newest_finished_version_goes_home() -> None:
    rig = StorageRig()
    rig.submit(writes(1, "/a", W), writes(2, "/a", W), reads(3, 101))
    rig.wrote(2)
    rig.wrote(1)
    [move] = rig.drain()
    assert move == Move(102, "/fast/ours/2/a", "", "/a", temp=False, linked=False)
    # Until then the name has meant the older one.
    assert set(rig.moved(move)) == {Discard(A, tell=True), Discard("/fast/ours/2/a", tell=True)}


def test_a_file_whose_name_the_program_took_away_is_kept_and_takes_its_room() -> None:
    rig = StorageRig()
    written(rig, 1, "/a")
    stored = rig.device("fast").stored
    [move] = rig.drain()
    assert type(move) is Move and move.linked
    assert rig.tell(Moved(move.version, "/a", astray=True)) == []
    assert not rig.engine.state.placed and list(rig.engine.state.astray) == [move.source]
    assert rig.device("fast").stored == stored > 0


def test_a_file_deleted_while_it_goes_astray_is_gone() -> None:
    rig = StorageRig()
    written(rig, 1, "/a")
    [move] = rig.want_home("/a")
    assert type(move) is Move
    rig.drop_file("/a")
    [discard] = rig.tell(Moved(move.version, "/a", astray=True))
    assert discard == Discard(move.source, tell=True)
    assert not rig.engine.state.astray


def test_at_the_end_one_file_that_cannot_be_moved_does_not_keep_others() -> None:
    rig = StorageRig()
    written(rig, 1, "/a")
    written(rig, 2, "/b")
    [move] = rig.drain()
    [move] = rig.moved(move, error="permission denied")
    assert type(move) is Move and move.name == "/b"
    rig.discarded(*rig.moved(move))
    [left] = rig.engine.state.placed.values()
    assert left.placed is not None and left.placed.error == "permission denied"


@pytest.mark.parametrize("temp_first", [True, False], ids=["temporary, then permanent", "permanent, then temporary"])
@pytest.mark.parametrize("newer", ["finished", "finished first", "older one is read", "failed", "abandoned"])
def test_the_newest_version_that_exists_decides_whether_a_name_stays(temp_first: bool, newer: str) -> None:
    rig = StorageRig()
    rig.submit(writes(1, "/a", W, temp=temp_first), writes(2, "/a", W, temp=not temp_first))
    if newer == "older one is read":
        rig.submit(reads(3, 101))
    if newer == "finished first":
        rig.wrote(2)
    rig.wrote(1)
    if newer in ("finished", "older one is read"):
        rig.wrote(2)
    elif newer == "failed":
        rig.fail(2)
    temp = temp_first if newer in ("failed", "abandoned") else not temp_first
    commands = rig.drain()
    assert (Discard("/a") in commands) == temp
    assert (len(of_kind(commands, Move)) == 1) == (not temp)


def test_the_file_of_another_is_not_removed_because_a_temporary_one_was_to_take_its_name() -> None:
    rig = StorageRig()
    rig.submit(writes(1, "/a", W, temp=True))
    rig.fail(1)
    rig.release(101)
    assert rig.drain() == []


def test_a_temporary_file_that_moves_when_the_run_ends_goes_afterwards() -> None:
    rig = moving()
    [move] = written(rig, 1, "/a", temp=True)
    before = rig.drain()
    after = rig.moved(move)
    assert Discard("/a") in after
    copies = [c for c in before + after if type(c) is Discard and c.tell]
    assert {c.path for c in copies} == {A, "/slow/ours/-101/a"}
    rig.discarded(*copies)
    assert rig.empty
    assert where(before + after) == []
