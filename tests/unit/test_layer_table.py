"""The table on a layer: what programs say of themselves, whatever state they and the file are in."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from penstock.executors import layer_table
from penstock.executors.layer_table import LEASE, STALL, LayerTable, Line, leave_for, programs_on, tidy_on


def say(table: LayerTable, run: str, **fields: object) -> Line:
    with table.held() as held:
        line = held.mine(run) or table.line(run)
        for name, value in {"until": time.monotonic() + LEASE, **fields}.items():
            setattr(line, name, value)
        held.write(line)
        return line


def others(table: LayerTable, run: str = "") -> list[Line]:
    with table.held() as held:
        return held.others(run)


def a_dead_process() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that lives."""
    child = subprocess.Popen(["sleep", "600"])
    yield child
    child.kill()
    child.wait()


def test_each_program_reads_what_the_others_say(tmp_path: Path) -> None:
    table = LayerTable(str(tmp_path))
    first, second = say(table, "a", may_hold=3.0), say(table, "b", may_hold=4.0)
    assert others(table, "b") == [first]
    assert others(table) == [first, second]
    say(table, "a", may_hold=5.0)
    assert [line.may_hold for line in others(table)] == [5, 4]


def test_the_last_to_leave_removes_the_table(tmp_path: Path) -> None:
    table = LayerTable(str(tmp_path))
    say(table, "a"), say(table, "b")
    table.leave("a")
    assert os.listdir(tmp_path)
    table.leave("b")
    assert not os.listdir(tmp_path)


def test_a_guardian_leaves_for_its_program_and_others_only_for_those_that_are_gone(tmp_path: Path) -> None:
    table = LayerTable(str(tmp_path))
    say(table, "a", may_hold=3.0), say(table, "b", pid=a_dead_process(), may_hold=4.0)
    tidy_on(str(tmp_path))
    assert [line.run for line in others(table)] == ["a"]
    leave_for(str(tmp_path / "a"))
    assert not os.listdir(tmp_path)
    tidy_on(str(tmp_path))
    leave_for(str(tmp_path / "a"))
    assert not os.listdir(tmp_path), "a table was made only to be left"


def test_a_program_that_is_gone_has_no_line(tmp_path: Path) -> None:
    table = LayerTable(str(tmp_path))
    say(table, "a", pid=a_dead_process(), may_hold=3.0, fills=5)
    assert others(table) == []


def test_what_a_dead_program_has_left_counts_while_it_is_there(tmp_path: Path) -> None:
    table = LayerTable(str(tmp_path))
    (tmp_path / "a-layer").mkdir()
    say(table, "a", pid=a_dead_process(), may_hold=3.0, fills=5, may_fill=9)
    [line] = others(table)
    assert (line.over, line.may_hold, line.may_fill) == (True, 0, 5)
    (tmp_path / "a-layer").rmdir()
    assert others(table) == []


def test_a_stopped_program_that_says_nothing_in_time_holds_nothing_but_its_files(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    table = LayerTable(str(tmp_path))
    sleeper.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED | os.WNOWAIT)
    say(table, "a", pid=sleeper.pid, until=time.monotonic() - 1, may_hold=3.0, fills=5, may_fill=9)
    say(table, "b", pid=sleeper.pid, until=time.monotonic() - 1, may_hold=3.0)
    [line] = others(table)
    assert (line.run, line.over, line.may_hold, line.may_fill) == ("a", False, 0, 5)


def test_a_program_that_lives_is_believed_while_a_disk_may_stand_still(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    table = LayerTable(str(tmp_path))
    late = say(table, "a", pid=sleeper.pid, until=time.monotonic() - 1, may_hold=3.0, fills=5, may_fill=9)
    assert others(table) == [late]
    say(table, "a", pid=sleeper.pid, until=time.monotonic() - STALL - 1, may_hold=3.0, fills=5, may_fill=9)
    [line] = others(table)
    assert (line.may_hold, line.may_fill) == (0, 5)


def test_a_program_that_comes_late_goes_by_its_time_alone(tmp_path: Path) -> None:
    table = LayerTable(str(tmp_path))
    say(table, "a", until=time.monotonic() - 1, may_hold=3.0, fills=5, may_fill=9)
    with table.held() as held:
        mine = held.mine("a")
    assert mine is not None
    assert (mine.may_hold, mine.may_fill) == (0, 5)


def test_a_program_of_another_container_is_known_by_its_time_alone(tmp_path: Path) -> None:
    table = LayerTable(str(tmp_path))
    say(table, "a", numbering="pid:[1]", pid=a_dead_process(), may_hold=3.0)
    say(table, "b", numbering="pid:[1]", until=1.0)
    assert [line.run for line in others(table)] == ["a"]


def test_who_asks_sees_living_programs_that_have_something_and_changes_nothing(tmp_path: Path) -> None:
    table = LayerTable(str(tmp_path))
    assert programs_on(str(tmp_path)) == []
    assert not os.listdir(tmp_path)
    first = say(table, "a", may_hold=3.0)
    say(table, "b", may_hold=0.0)
    dead = a_dead_process()
    Path(table.path).write_bytes(Path(table.path).read_bytes() + b"garbage".ljust(1024))
    content = Path(table.path).read_bytes() + msgspec.json.encode(Line("c", dead, first.numbering, first.until, 1.0))
    Path(table.path).write_bytes(content)
    assert programs_on(str(tmp_path)) == [first]
    assert Path(table.path).read_bytes() == content


@pytest.mark.parametrize("garbage", [b"", b"\0" * 5000, b"{" * 100, b'{"run": 1}', b"\xff\xfe" * 2000, b"[]\n" * 700])
def test_garbage_is_no_line(tmp_path: Path, garbage: bytes) -> None:
    table = LayerTable(str(tmp_path))
    Path(table.path).write_bytes(garbage)
    assert others(table) == []
    line = say(table, "a")
    assert others(table) == [line]


def test_a_line_that_was_half_written_is_none(tmp_path: Path) -> None:
    table = LayerTable(str(tmp_path))
    say(table, "a")
    line = say(table, "b")
    content = Path(table.path).read_bytes()
    Path(table.path).write_bytes(content[:100].ljust(1024) + content[1024:])
    assert others(table) == [line]


def test_a_lock_that_nobody_lets_go_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer_table, "LEASE", 0.05)
    monkeypatch.setattr(layer_table, "STALL", 0.05)
    table = LayerTable(str(tmp_path))
    say(table, "a")
    with open(table.path, "rb") as stopped:
        fcntl.flock(stopped, fcntl.LOCK_EX)
        assert others(table) == []


def test_where_there_are_no_locks_it_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match="No locks"):
        others(LayerTable(str(tmp_path)))


@pytest.mark.parametrize(("folder", "file"), [(0o755, 0o600), (0o2775, 0o660), (0o777, 0o660)])
def test_a_group_that_may_write_to_the_folder_shares_the_table(tmp_path: Path, folder: int, file: int) -> None:
    tmp_path.chmod(folder)
    table = LayerTable(str(tmp_path))
    say(table, "a")
    about = os.stat(table.path)
    assert stat.S_IMODE(about.st_mode) == file
    assert about.st_gid == tmp_path.stat().st_gid
    whose = f"g{about.st_gid}" if file == 0o660 else f"u{os.getuid()}"
    assert os.path.basename(table.path).startswith(f".penstock-{whose}-")
