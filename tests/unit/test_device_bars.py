"""How storage is drawn in the live view, from wide terminals to narrow ones, and what a plain line says of it."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from penstock.observe.device_bars import storage_part
from penstock.observe.device_tally import ConstraintTally, DeviceLine
from penstock.observe.progress import plain_line, progress_picture
from penstock.observe.tally import Line, Snapshot

MB = 1_000_000
SSD = DeviceLine("ssd", 320.0 * MB, 450.0 * MB, 40, 312.0 * MB, 12_000 * MB, 200_000 * MB)
IDLE = DeviceLine("nvme", 0.0, 3_000.0 * MB, 0, 0.0, 0, None)
GPFS = DeviceLine("gpfs", 50.0 * MB, 12_000.0 * MB, 2, 0.0, 0, None)
LEARNING = ConstraintTally("checkpoint", "ssd", 8.0 * MB)
CHOSEN = ConstraintTally("trace", "ssd", 8.0 * MB, 56)


def line(name: str = "save") -> Line:
    return Line(name, 3, 2, 10, 0, 0, 1.5, 10.0, 20.0)


def snapshot(*devices: DeviceLine, constraints: list[ConstraintTally] | None = None, waiting: int = 0) -> Snapshot:
    return Snapshot([line()], line("total"), list(devices), constraints or [], waiting)


def drawn(
    picture: Snapshot, *, width: int = 80, height: int = 30, encoding: str = "utf-8", colour: bool = False
) -> str:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(
        file=stream, width=width, height=height, force_terminal=colour, color_system="standard" if colour else None
    )
    with console.capture() as capture:
        console.print(progress_picture(picture, console))
    return "\n".join(row.rstrip() for row in capture.get().splitlines())


def test_a_run_without_storage_shows_none() -> None:
    assert "storage" not in drawn(snapshot())
    assert len(drawn(snapshot()).splitlines()) == 2


def test_a_bar_for_each_device_at_80_columns() -> None:
    rows = drawn(snapshot(IDLE, SSD, waiting=12)).splitlines()
    assert rows[2:] == [
        "",
        "storage                        used  running  waiting       rate            room",
        "nvme     ░░░░░░░░░      0 of 3 GB/s        0                   –",
        "ssd      ██████░░░  320 of 450 MB/s       40       12   312 MB/s    12 of 200 GB",
    ]


def test_the_bar_grows_with_the_terminal() -> None:
    row = drawn(snapshot(SSD), width=120).splitlines()[-1]
    assert row.count("█") == 23  # 320/450 of 32
    assert row.count("░") == 9


@pytest.mark.parametrize("width", [30, 50, 60, 70, 75, 80, 100, 200])
def test_no_line_is_broken_and_what_matters_stays(width: int) -> None:
    picture = snapshot(SSD, GPFS, constraints=[LEARNING, CHOSEN], waiting=12)
    rows = drawn(picture, width=width).splitlines()
    assert len(rows) == 8
    assert all(len(row) <= width for row in rows)
    assert rows[4].startswith("ssd ")
    assert "█" in rows[4]
    if width >= 40:
        assert "320 of 450 MB/s" in rows[4]


def test_the_last_columns_go_first_on_a_narrow_terminal() -> None:
    headings = drawn(snapshot(SSD), width=56).splitlines()[3]
    assert headings.split() == ["storage", "used", "running", "waiting"]


def test_a_little_is_more_than_nothing() -> None:
    row = drawn(snapshot(GPFS)).splitlines()[-1]
    assert row.split()[1].startswith("█░")
    assert "0.05 of 12 GB/s" in row


def test_room_is_shown_where_a_capacity_is_known() -> None:
    assert "room" not in drawn(snapshot(GPFS))
    rows = drawn(snapshot(SSD, GPFS)).splitlines()
    assert rows[-2].endswith("12 of 200 GB")
    assert rows[-1].endswith("–")


def test_the_queue_is_told_once_beside_the_fastest_device_in_use() -> None:
    rows = drawn(snapshot(SSD, GPFS, waiting=7777)).splitlines()
    assert [("7,777" in row) for row in rows[-2:]] == [True, False]
    rows = drawn(snapshot(IDLE, GPFS, waiting=7777)).splitlines()
    assert [("7,777" in row) for row in rows[-2:]] == [False, True]
    rows = drawn(snapshot(IDLE, waiting=7777)).splitlines()
    assert "7,777" in rows[-1]


def test_learned_constraints_are_told_below() -> None:
    rows = drawn(snapshot(SSD, constraints=[LEARNING, CHOSEN, ConstraintTally("late[0]", "ssd")])).splitlines()
    assert rows[-3:] == [
        "  checkpoint on ssd: learning 8 MB/s",
        "  trace on ssd: 8 MB/s, 56 at a time",
        "  late[0] on ssd: learning",
    ]


def test_names_are_shown_as_they_are_and_cut_if_long() -> None:
    odd = DeviceLine("[red]disk", 1.0 * MB, 2.0 * MB, 1, 0.0, 0, None)
    assert "[red]disk" in drawn(snapshot(odd))
    long = DeviceLine("a" * 60, 1.0 * MB, 2.0 * MB, 1, 0.0, 0, 10 * MB)
    assert "aaa…" in drawn(snapshot(long)).splitlines()[-1]


def test_a_terminal_that_knows_only_ascii_gets_plain_bars() -> None:
    row = drawn(snapshot(SSD), encoding="ascii").splitlines()[-1]
    assert "######--" in row


def test_colours_are_left_out_if_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[36m" in drawn(snapshot(SSD), colour=True)
    monkeypatch.setenv("NO_COLOR", "1")
    text = drawn(snapshot(SSD), colour=True)
    assert "\x1b[36m" not in text
    assert "██████" in text


@pytest.mark.parametrize("height", [4, 6, 8, 10, 14, 24])
def test_functions_and_devices_share_a_low_terminal(height: int) -> None:
    many = [DeviceLine(f"disk{number}", 0.0, 1.0 * MB, number == 9, 0.0, 0, None) for number in range(10)]
    picture = Snapshot([line(f"f{number}") for number in range(20)], line("total"), many, [LEARNING] * 9)
    rows = drawn(picture, height=height).splitlines()
    assert len(rows) <= height
    assert any(row.startswith("f0") for row in rows)
    if height >= 8:
        assert any(row.startswith("disk9") for row in rows)  # it is in use, so it is among those shown


def test_a_plain_line_names_the_devices_in_use() -> None:
    assert storage_part(snapshot(IDLE, SSD, waiting=12)) == "ssd 320/450 MB/s, 12 waiting"
    assert storage_part(snapshot(SSD, GPFS)) == "ssd 320/450 MB/s, gpfs 0.05/12 GB/s"
    assert storage_part(snapshot(IDLE, waiting=12)) == ""
    assert plain_line(snapshot(IDLE, SSD, waiting=12)) == (
        "penstock 10 s: 10 done, 2 running, 3 waiting, 1.5/s, 20 s left; ssd 320/450 MB/s, 12 waiting"
    )
    assert plain_line(snapshot()).endswith("20 s left")
