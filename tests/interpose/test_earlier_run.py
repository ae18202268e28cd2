"""What an earlier run left: for its producer it is there, for consumers only once it is made anew or left as it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interpose.stage import RULES, Puppet, Stage, staged

from penstock.streaming.table_records import Flag, WaitKind

MAKE = "os.O_WRONLY|os.O_CREAT|os.O_TRUNC"
#: opens that change nothing of a file which is there
LOOKS = ["os.O_RDWR", "os.O_WRONLY", "os.O_RDWR|os.O_CREAT", "os.O_WRONLY|os.O_APPEND", "os.O_RDONLY|os.O_CREAT"]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A directory with outputs of an earlier run."""
    root = tmp_path / "root"
    root.mkdir()
    for name in ("out", "closed", "late"):
        (root / name).write_bytes(b"stale bytes")
    (root / "out-empty").touch()
    with staged(root) as stage:
        yield stage


def waits_for_the_birth(taker: Puppet, name: str) -> None:
    taker.blocks(f"open({name!r}, 'rb').read()", WaitKind.BORN)


@pytest.mark.parametrize("flags", LOOKS)
@pytest.mark.parametrize("name", ["out", "closed", "late", "out-empty"])
def test_a_look_at_an_old_output_makes_nothing_new(stage: Stage, name: str, flags: str) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    out = maker(f"os.open({name!r}, {flags})")
    waits_for_the_birth(taker, name)
    maker(f"os.close({out})")
    assert not stage.has(name, Flag.BORN) and not stage.has(name, Flag.COMMITTED)
    assert stage.info(name).closes == 0
    maker(f"open({name!r}, 'wb').write(b'fresh')")
    maker.end()
    stage.over("maker")
    assert taker.answer() == b"fresh"


@pytest.mark.parametrize("mode", ["r+b", "ab"])
def test_streams_of_the_library_too(stage: Stage, mode: str) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    assert (
        maker(f"[keep.update(f=libc.fopen(b'closed', {mode.encode()!r})), libc.fclose(ctypes.c_void_p(keep['f']))][1]")
        == 0
    )
    waits_for_the_birth(taker, "closed")
    maker("open('closed', 'wb').write(b'fresh')")
    assert taker.answer() == b"fresh"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("os.pwrite({out}, b'FRESH', 0)", b"FRESH bytes"),
        ("os.ftruncate({out}, 5)", b"stale"),
        ("call('writev', {out}, ctypes.byref((ctypes.c_char_p * 2)(b'FRESH', 5)), 1)", b"FRESH bytes"),
        ("[__import__('mmap').mmap({out}, 0).write(b'FRESH'), __import__('gc').collect()] and 0", b"FRESH bytes"),
        ("os.sendfile({out}, os.open('input', os.O_RDONLY), 0, 5)", b"FRESH bytes"),
        ("os.copy_file_range(os.open('input', os.O_RDONLY), {out}, 5)", b"FRESH bytes"),
    ],
)
def test_the_first_change_makes_it_new_and_its_close_counts(stage: Stage, change: str, expected: bytes) -> None:
    (stage.root / "input").write_bytes(b"FRESH")
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    out = maker("os.open('closed', os.O_RDWR)")
    waits_for_the_birth(taker, "closed")
    maker(change.format(out=out))
    assert stage.has("closed", Flag.BORN)
    maker(f"os.close({out})")
    assert taker.answer() == expected
    assert stage.info("closed").closes == 1


def test_truncating_by_name_makes_it_new(stage: Stage) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    waits_for_the_birth(taker, "late")
    maker("os.truncate('late', 5)")
    assert stage.has("late", Flag.BORN)
    maker.end()
    stage.over("maker")
    assert taker.answer() == b"stale"


def test_bytes_of_an_earlier_run_are_not_taken_for_new_ones(stage: Stage) -> None:
    """gfortran and `sort -o` open what they overwrite without O_TRUNC."""
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    out = maker("os.open('late', os.O_RDWR|os.O_CREAT)")
    taker.blocks("os.open('late', os.O_RDONLY)", WaitKind.BORN)
    maker(f"os.write({out}, b'fre')")
    fd = taker.answer()
    taker.blocks(f"os.read({fd}, 5)", WaitKind.RANGE)
    maker(f"os.write({out}, b'sh')")
    assert taker.answer() == b"fresh"
    taker.blocks(f"os.read({fd}, 5)", WaitKind.RANGE)
    maker(f"os.ftruncate({out}, 5)")
    maker.end()
    stage.over("maker")
    assert taker.answer() == b""
    assert not stage.has("late", Flag.WARNED)


def test_what_is_added_follows_what_was_there(stage: Stage) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    out = maker("os.open('out', os.O_WRONLY|os.O_APPEND)")
    taker.blocks("os.open('out', os.O_RDONLY)", WaitKind.BORN)
    maker(f"os.write({out}, b' and more')")
    fd = taker.answer()
    assert taker(f"os.read({fd}, 20)") == b"stale bytes and more"


def test_a_child_that_writes_for_its_parent_makes_it_new(stage: Stage) -> None:
    taker = stage.puppet("taker")
    waits_for_the_birth(taker, "closed")
    stage.run("maker", "exec 3<>closed; true; sh -c 'printf FRESH >&3'; exec 3>&-")
    assert taker.answer() == b"FRESH bytes"
    assert stage.info("closed").closes == 1


def test_a_program_that_a_shell_lets_add_is_no_writer_before_it_writes(stage: Stage) -> None:
    taker = stage.puppet("taker")
    waits_for_the_birth(taker, "closed")
    stage.run("maker", "true >> closed")
    assert not stage.has("closed", Flag.BORN)
    stage.run("maker", "printf ' and more' >> closed")
    assert taker.answer() == b"stale bytes and more"


@pytest.mark.parametrize("target", ["out-2", "closed-2", "late-2"])
def test_an_old_file_that_is_renamed_before_it_is_written_is_seen_as_it_is_then(stage: Stage, target: str) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    out = maker("os.open('out', os.O_RDWR)")
    waits_for_the_birth(taker, target)
    maker(f"os.rename('out', {target!r})")
    stage.await_wait(taker.pid, WaitKind.RANGE, WaitKind.COMMITTED)
    maker(f"os.write({out}, b'FRESH')")
    maker(f"os.close({out})")
    if target == "late-2":
        maker.end()
        stage.over("maker")
    assert taker.answer() == b"FRESH bytes"


@pytest.mark.parametrize("target", ["out-2", "closed-2"])
def test_an_old_file_that_is_renamed_and_closed_is_final(stage: Stage, target: str) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    out = maker("os.open('out', os.O_RDWR)")
    waits_for_the_birth(taker, target)
    maker(f"os.rename('out', {target!r})")
    assert not stage.has(target, Flag.COMMITTED)
    maker(f"os.close({out})")
    assert taker.answer() == b"stale bytes"


def test_a_new_file_under_the_old_name_is_new(stage: Stage) -> None:
    taker = stage.puppet("taker")
    waits_for_the_birth(taker, "closed")
    stage.run("maker", "printf fresh > tmp-1 && mv tmp-1 closed")
    assert taker.answer() == b"fresh"


@pytest.mark.parametrize("name", ["out", "closed", "late"])
def test_what_its_producer_leaves_alone_is_there_when_the_producer_has_ended(stage: Stage, name: str) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    maker(f"os.close(os.open({name!r}, os.O_RDWR))")
    waits_for_the_birth(taker, name)
    maker.end()
    stage.over("maker")
    assert taker.answer() == b"stale bytes"


def test_what_its_producer_removes_is_missing_when_the_producer_has_ended(stage: Stage) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    waits_for_the_birth(taker, "closed")
    maker("os.unlink('closed')")
    maker.end()
    stage.over("maker")
    with pytest.raises(FileNotFoundError):
        taker.answer()


def test_only_closes_that_changed_something_are_counted(tmp_path: Path) -> None:
    rules = RULES.replace('commit = "on_close"\nfire = "update"', 'commit = "on_close:2"\nfire = "update"')
    assert rules != RULES
    with staged(tmp_path / "root", rules) as stage:
        maker, taker = stage.puppet("maker"), stage.puppet("taker")
        maker("open('closed', 'wb').write(b'one')")
        for flags in LOOKS:
            maker(f"os.close(os.open('closed', {flags}))")
        taker.blocks("open('closed', 'rb').read()", WaitKind.COMMITTED)
        maker("open('closed', 'ab').write(b' two')")
        assert taker.answer() == b"one two"
