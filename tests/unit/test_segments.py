"""Segments in memory and on disk: found wherever they are, checked where a disk may have changed them."""

from __future__ import annotations

import errno
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.programs import segments_in
from tests.own_place import memory_dir

from penstock.data import huge_pages, spilled
from penstock.data.diversion import Diversion
from penstock.data.huge_pages import HUGE
from penstock.data.segments import Access, SegmentLost, Segments
from penstock.errors import PenstockError
from penstock.model.data import Piece

FIRST, SECOND = os.urandom(100_001), os.urandom(3_000_000)


@pytest.fixture(params=[False, True], ids=["shared", "alone"])
def segments(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Segments]:
    for name in ("memory", "spill", "disk"):
        (tmp_path / name).mkdir()
    made = Segments(
        str(tmp_path / "memory"),
        str(tmp_path / "spill"),
        1,
        alone=request.param,
        layer_dirs={"disk": str(tmp_path / "disk" / "spilled")},
    )
    yield made
    made.close()


def written(segments: Segments) -> Piece:
    return segments.write([memoryview(FIRST), SECOND])[1]


def content(segments: Segments, piece: Piece, access: Access = Access.READ) -> bytes:
    return bytes(segments.map(piece.segment, spilled=piece.spilled, access=access).view[piece.offset :][: piece.size])


def nothing(copied: int) -> None:
    """Nobody watches."""


def on_disk(segments: Segments, piece: Piece) -> Path:
    return Path(segments.layer_dirs["disk"], f"s{piece.segment}")


def test_a_segment_is_found_before_and_after_each_move(segments: Segments) -> None:
    piece = written(segments)
    disk = segments.layer_dirs["disk"]
    for _ in range(2):
        segments.spill(piece.segment, disk, nothing)
        assert content(segments, piece) == SECOND
        assert os.listdir(disk) == [f"s{piece.segment}"]
        assert not segments_in(segments.memory_dir)
        segments.restore(piece.segment, disk, nothing)
        assert content(segments, piece) == SECOND
        assert os.listdir(disk) == []


def test_a_segment_written_to_disk_can_be_restored(segments: Segments) -> None:
    segments.diversion.set(True)
    piece = written(segments)
    assert piece.spilled
    segments.restore(piece.segment, segments.spill_dir, nothing)
    assert content(segments, piece) == SECOND


@pytest.mark.parametrize("trouble", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ESTALE])
def test_what_a_disk_does_not_take_stays_in_memory(
    segments: Segments, trouble: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> None:
        raise OSError(trouble, os.strerror(trouble))

    monkeypatch.setattr("penstock.data.segments.write_checked", refuse)
    segments.diversion.set(True)
    piece = written(segments)
    assert not piece.spilled
    assert content(segments, piece) == SECOND
    assert segments_in(segments.spill_dir) == []
    monkeypatch.undo()
    assert written(segments).spilled


def test_a_full_disk_is_not_filled_up_only_to_see_that_it_is_full(
    segments: Segments, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Disk:
        f_blocks, f_bavail, f_frsize = 10, 1, 4096

    def refuse(*args: object) -> None:
        raise AssertionError("something was written to the disk")

    monkeypatch.setattr(os, "statvfs", lambda path: Disk)
    monkeypatch.setattr("penstock.data.segments.write_checked", refuse)
    segments.diversion.set(True)
    assert not written(segments).spilled


@pytest.mark.parametrize("diverted", [False, True])
def test_when_neither_has_room_the_message_names_both(
    segments: Segments, diverted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("penstock.data.segments.write_checked", refuse)
    monkeypatch.setattr("penstock.data.segments._fill", refuse)
    segments.diversion.set(diverted)
    with pytest.raises(PenstockError) as caught:
        written(segments)
    for part in (segments.memory_dir, segments.spill_dir, "free of", "spill_dir", "memory_dir", "3.1 MB"):
        assert part in str(caught.value)
    assert segments_in(segments.memory_dir, segments.spill_dir) == []


@pytest.mark.parametrize("full", ["", "memory", "spill"])
def test_all_processes_see_the_same_diversion_wherever_there_was_room_for_it(tmp_path: Path, full: str) -> None:
    folders = [str(tmp_path / name) for name in ("memory", "spill")]
    for folder in folders:
        if os.path.basename(folder) != full:
            os.mkdir(folder)  # where there is no directory, nothing can be written either
    first, second = Diversion(folders), Diversion(folders)
    for folder in folders:
        os.makedirs(folder, exist_ok=True)
    third = Diversion(folders)
    first.set(True)
    assert second
    assert third
    first.set(False)
    assert not second
    assert not third


def test_a_run_without_any_room_says_so(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match=f"{tmp_path}/memory .*{tmp_path}/spill .*memory_dir"):
        Diversion([str(tmp_path / "memory"), str(tmp_path / "spill")])


def test_a_spilled_segment_is_never_changed_in_place(segments: Segments) -> None:
    piece = written(segments)
    segments.spill(piece.segment, segments.layer_dirs["disk"], nothing)
    mapping = segments.map(piece.segment, spilled=False, access=Access.IN_PLACE)
    assert mapping.spilled
    mapping.view[piece.offset] ^= 1
    assert content(segments, piece) == SECOND
    segments.restore(piece.segment, segments.layer_dirs["disk"], nothing)
    mapping = segments.map(piece.segment, spilled=False, access=Access.IN_PLACE)
    assert not mapping.spilled
    mapping.view[piece.offset] ^= 1
    assert content(segments, piece) != SECOND


@pytest.mark.parametrize("position", [0, 1_000_000, -1, -spilled.TRAILER, -spilled.TRAILER - 1])
def test_a_changed_byte_is_found_wherever_it_is(segments: Segments, position: int) -> None:
    piece = written(segments)
    segments.spill(piece.segment, segments.layer_dirs["disk"], nothing)
    path = on_disk(segments, piece)
    damaged = bytearray(path.read_bytes())
    damaged[position] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(SegmentLost, match=f"{path}.*damaged"):
        content(segments, piece)
    with pytest.raises(SegmentLost, match=f"{path}.*damaged") as caught:
        segments.restore(piece.segment, segments.layer_dirs["disk"], nothing)
    assert caught.value.segment == piece.segment
    assert not segments_in(segments.memory_dir)


@pytest.mark.parametrize("length", [0, 10, spilled.TRAILER, 1_000_000])
def test_a_file_cut_short_is_found(segments: Segments, length: int) -> None:
    piece = written(segments)
    segments.spill(piece.segment, segments.layer_dirs["disk"], nothing)
    os.truncate(on_disk(segments, piece), length)
    with pytest.raises(SegmentLost, match="damaged: it is not complete"):
        content(segments, piece)


def test_a_segment_that_is_nowhere_is_lost(segments: Segments) -> None:
    piece = written(segments)
    segments.spill(piece.segment, segments.layer_dirs["disk"], nothing)
    on_disk(segments, piece).unlink()
    with pytest.raises(SegmentLost, match="is gone"):
        content(segments, piece)
    with pytest.raises(SegmentLost, match="is gone"):
        segments.restore(piece.segment, segments.layer_dirs["disk"], nothing)
    with pytest.raises(SegmentLost, match="is gone"):
        segments.spill(piece.segment, segments.layer_dirs["disk"], nothing)


def test_a_move_that_breaks_off_leaves_the_segment_where_it_was(segments: Segments) -> None:
    piece = written(segments)
    disk = segments.layer_dirs["disk"]

    def break_off(copied: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        segments.spill(piece.segment, disk, break_off)
    assert os.listdir(disk) == []
    assert content(segments, piece) == SECOND
    segments.spill(piece.segment, disk, nothing)
    with pytest.raises(OSError, match="No space left"):
        segments.restore(piece.segment, disk, break_off)
    assert segments_in(segments.memory_dir) == []
    assert content(segments, piece) == SECOND


def test_a_removed_segment_is_gone_from_wherever_it_was(segments: Segments) -> None:
    pieces = [written(segments), written(segments)]
    segments.spill(pieces[0].segment, segments.layer_dirs["disk"], nothing)
    for piece in pieces:
        segments.remove(piece.segment)
        with pytest.raises(SegmentLost):
            content(segments, piece)


def test_what_a_writer_has_left_is_found_in_all_places(segments: Segments) -> None:
    piece = written(segments)
    segments.spill(piece.segment, segments.layer_dirs["disk"], nothing)
    assert segments.made_by(1) == [piece.segment]
    assert segments.made_by(2) == []


def test_a_reader_finds_a_segment_that_moves_all_the_time(segments: Segments) -> None:
    [piece] = segments.write([FIRST])
    disk, over = segments.layer_dirs["disk"], threading.Event()

    def move() -> None:
        for _ in range(150):
            segments.spill(piece.segment, disk, nothing)
            segments.restore(piece.segment, disk, nothing)
        over.set()

    thread = threading.Thread(target=move)
    thread.start()
    try:
        while not over.is_set():
            assert content(segments, piece) == FIRST
    finally:
        thread.join()


# --- large ones -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alone", [False, True], ids=["shared", "alone"])
@pytest.mark.parametrize("sizes", [[HUGE], [HUGE - 64, 65], [10, 3 * HUGE + 5, 70_000], [HUGE + 1, HUGE - 1, 5 * HUGE]])
def test_large_buffers_are_what_was_written(tmp_path: Path, sizes: list[int], alone: bool) -> None:
    with tempfile.TemporaryDirectory(dir=memory_dir()) as folder:
        segments = Segments(folder, str(tmp_path), 1, alone=alone)
        buffers = [os.urandom(size) for size in sizes]
        pieces = segments.write(buffers)
        for access in Access:
            for buffer, piece in zip(buffers, pieces, strict=True):
                assert content(segments, piece, access) == buffer
        changed = segments.map(pieces[0].segment, spilled=False, access=Access.IN_PLACE).view
        changed[0] ^= 255
        assert content(segments, pieces[0])[0] == buffers[0][0] ^ 255
        segments.spill(pieces[0].segment, str(tmp_path), nothing)
        segments.restore(pieces[0].segment, str(tmp_path), nothing)
        for buffer, piece in list(zip(buffers, pieces, strict=True))[1:]:
            assert content(segments, piece) == buffer
        segments.remove(pieces[0].segment)
        segments.close()


def test_large_buffers_without_huge_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huge_pages, "_possible", False)
    segments = Segments(str(tmp_path), str(tmp_path), 1, alone=True)
    buffer = os.urandom(2 * HUGE + 3)
    [piece] = segments.write([buffer])
    assert content(segments, piece) == buffer
    segments.close()
