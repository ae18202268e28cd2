"""open and its kin: a consumer waits for the birth, a producer never waits for its own."""

from __future__ import annotations

import errno
import time
from pathlib import Path

import pytest
from tests.interpose.stage import Stage, aged, staged

from penstock.streaming.table_records import AppState, Flag, WaitKind

MAKE = "os.O_WRONLY|os.O_CREAT|os.O_TRUNC"


def test_a_consumer_waits_for_the_birth(stage: Stage) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    taker.blocks("os.open('out', os.O_RDONLY)", WaitKind.BORN)
    maker(f"os.open('out', {MAKE})")
    assert taker.answer() > 2


def test_a_producer_that_probes_its_own_missing_output_is_told_at_once(stage: Stage) -> None:
    maker = stage.puppet("maker")
    for probe in ("os.open('out', os.O_RDONLY)", "os.stat('out')", "os.access('out', 0) or os.lstat('out')"):
        began = time.monotonic()
        with pytest.raises(OSError) as caught:
            maker(probe)
        assert caught.value.errno == errno.ENOENT
        assert time.monotonic() - began < 60
    assert not stage.table.waits()


def test_nobody_waits_for_what_nobody_makes(stage: Stage) -> None:
    taker = stage.puppet("taker")
    with pytest.raises(OSError) as caught:
        taker("os.open('undeclared', os.O_RDONLY)")
    assert caught.value.errno == errno.ENOENT
    (stage.root / "config").write_text("plain")
    assert taker("open('config').read()") == "plain"


def test_missing_when_all_producers_are_over(stage: Stage) -> None:
    taker = stage.puppet("taker")
    taker.blocks("os.open('out', os.O_RDONLY)", WaitKind.BORN)
    stage.over("maker")
    with pytest.raises(OSError) as caught:
        taker.answer()
    assert caught.value.errno == errno.ENOENT


def test_an_error_when_the_producer_failed(stage: Stage) -> None:
    taker = stage.puppet("taker")
    taker.blocks("os.open('out', os.O_RDONLY)", WaitKind.BORN)
    stage.over("maker", AppState.FAILED, "was killed by signal 9")
    with pytest.raises(OSError) as caught:
        taker.answer(patience=5)
    assert caught.value.errno == errno.EIO


def test_a_file_of_an_earlier_run_is_not_born(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "out").write_text("stale")
    with staged(tmp_path / "root") as stage:
        maker, taker = stage.puppet("maker"), stage.puppet("taker")
        taker.blocks("os.open('out', os.O_RDONLY)", WaitKind.BORN)
        out = maker(f"os.open('out', {MAKE})")
        fd = taker.answer()
        maker(f"os.write({out}, b'fresh')")
        maker(f"os.close({out})")
        assert taker(f"os.read({fd}, 10)") == b"fresh"


@pytest.mark.parametrize(
    "expression",
    [
        "call('open', b'out', 0)",
        "call('open64', b'out', 0)",
        "call('openat', -100, b'out', 0)",
        "call('openat64', -100, b'out', 0)",
        "call('__open_2', b'out', 0)",
        "call('__open64_2', b'out', 0)",
        "call('__openat_2', -100, b'out', 0)",
        "call('__openat64_2', -100, b'out', 0)",
        "call('syscall', 257 if os.uname().machine == 'x86_64' else 56, -100, b'out', 0)",
        "os.open('out', os.O_RDONLY, dir_fd=os.open('.', os.O_RDONLY))",
        "bool(libc.fopen(b'out', b'r')) * 9",
        "os.open(os.path.abspath('out'), os.O_RDONLY)",
        "os.open('./x/../out', os.O_RDONLY)",
        "call('open', b'out', os.O_RDWR)",  # for update: means the file that is to come
    ],
)
def test_every_spelling_waits(stage: Stage, expression: str) -> None:
    (stage.root / "x").mkdir()
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    taker.blocks(expression, WaitKind.BORN)
    maker(f"os.open('out', {MAKE})")
    assert taker.answer() > 2


@pytest.mark.parametrize(
    "expression",
    [
        f"os.open('out', {MAKE})",
        "call('creat', b'out', 0o644)",
        "call('creat64', b'out', 0o644)",
        "os.open('out', os.O_RDWR|os.O_CREAT)",
        "os.open('out', os.O_WRONLY|os.O_CREAT|os.O_APPEND)",
        "open('out', 'w').fileno()",
        "call('mkstemp', ctypes.create_string_buffer(b'outXXXXXX'))",
    ],
)
def test_every_way_to_create_is_a_birth(stage: Stage, expression: str) -> None:
    maker = stage.puppet("maker")
    maker("!opened = []")
    maker(f"opened.append({expression})")
    born = [info for info in stage.table.iterate(Flag.BORN) if info.name.startswith("out")]
    assert len(born) == 1


def test_truncating_open_takes_the_bytes_back(stage: Stage) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    first = maker(f"os.open('late', {MAKE})")
    maker(f"os.write({first}, b'0123456789')")
    assert stage.info("late").solid == 10
    second = maker(f"os.open('late', {MAKE})")
    assert stage.info("late").solid == 0
    fd = taker("os.open('late', os.O_RDONLY)")
    taker.blocks(f"os.read({fd}, 4)", WaitKind.RANGE)
    maker(f"os.write({second}, b'new!')")
    assert taker.answer() == b"new!"


def test_a_foreign_writer_is_allowed_and_noted(stage: Stage) -> None:
    taker = stage.puppet("taker")
    stage.table.drain()
    fd = taker(f"os.open('out', {MAKE})")
    assert taker(f"os.write({fd}, b'mine')") == 4
    assert any(record.kind == 11 for record in stage.table.drain())


def test_a_link_made_by_the_run_leads_to_the_file_behind_it(stage: Stage) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    out = maker(f"os.open('out.3', {MAKE})")
    taker.blocks("os.open('out.latest', os.O_RDONLY)", WaitKind.BORN)
    maker("os.symlink('out.3', 'out.latest')")
    fd = taker.answer()
    taker.blocks(f"os.read({fd}, 3)", WaitKind.RANGE)
    maker(f"os.write({out}, b'abc')")
    assert taker.answer() == b"abc"


def test_an_update_file_is_opened_when_it_is_final(stage: Stage) -> None:
    """The producer replaces the file; batch order opens the last one."""
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    maker(f"!out = os.open('closed', {MAKE})\nos.write(out, b'first')")
    taker.blocks("open('closed').read()", WaitKind.COMMITTED)
    maker("open('tmp', 'w').write('second') and os.rename('tmp', 'closed')")
    maker("os.close(out)")
    assert taker.answer() == "second"


# --- names of what is open already, and opens that only name a file ---------------------------------------------------


@pytest.mark.parametrize("second_run", [False, True])
@pytest.mark.parametrize(
    "path",
    [
        "/proc/self/fd/{here}/out",
        "/proc/thread-self/fd/{here}/out",
        "/proc/{pid}/fd/{here}/out",
        "/dev/fd/{here}/out",
        "/proc/self/cwd/out",
        "/proc/self/root{root}/out",
    ],
)
def test_names_by_way_of_what_is_open(stage: Stage, path: str, second_run: bool) -> None:
    if second_run:
        (stage.root / "out").write_text("old")
        aged(stage.root / "out")
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    here = taker("os.open('.', os.O_RDONLY)")
    name = path.format(here=here, pid=taker.pid, root=stage.root)
    taker.blocks(f"os.read(os.open({name!r}, os.O_RDONLY), 3)", WaitKind.BORN)
    maker(f"!out = os.open('out', {MAKE})")
    stage.await_wait(taker.pid, WaitKind.RANGE)
    maker("os.write(out, b'new')")
    assert taker.answer() == b"new"


@pytest.mark.parametrize("second_run", [False, True])
def test_an_open_that_only_names_a_file_waits_for_it(stage: Stage, second_run: bool) -> None:
    """And so does all that is done through the descriptor."""
    if second_run:
        (stage.root / "out").write_text("older")
        aged(stage.root / "out")
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    taker.blocks("os.open('out', os.O_PATH)", WaitKind.BORN)
    maker(f"!os.path.exists('out') and os.unlink('out')\nout = os.open('out', {MAKE})\nos.write(out, b'n')")
    named = taker.answer()
    assert taker(f"os.read(os.open('/proc/self/fd/{named}', os.O_RDONLY), 1)") == b"n"
    taker.blocks(f"os.fstat({named}).st_size", WaitKind.COMMITTED)
    maker("os.write(out, b'ew') and os.close(out)")
    assert taker.answer() == 3
    assert taker(f"open('/dev/fd/{named}').read()") == "new"
    with pytest.raises(OSError, match="Bad file descriptor"):
        taker(f"os.read({named}, 1)")


def test_an_open_that_only_names_a_file_is_no_writer_of_it(stage: Stage) -> None:
    (stage.root / "out").write_text("old")
    maker = stage.puppet("maker")
    maker("os.open('out', os.O_PATH|os.O_RDWR|os.O_TRUNC)")
    assert (stage.root / "out").read_text() == "old"
    assert not stage.has("out", Flag.BORN)


def test_a_directory_that_is_only_named_leads_to_its_entries(stage: Stage) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    here = taker("os.open('.', os.O_PATH|os.O_DIRECTORY)")
    taker.blocks(f"os.close(os.open('out', os.O_RDONLY, dir_fd={here}))", WaitKind.BORN)
    maker(f"os.open('out', {MAKE})")
    assert taker.answer() is None
