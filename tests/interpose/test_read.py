"""read and its kin: a consumer gets what batch order would give, as soon as it is written."""

from __future__ import annotations

import errno
import os

import pytest
from tests.interpose.stage import Stage

from penstock.streaming.table_records import AppState, Flag, WaitKind

RDONLY, MAKE = "os.O_RDONLY", "os.O_WRONLY|os.O_CREAT|os.O_TRUNC"


def test_a_reader_that_opens_between_creation_and_first_byte_does_not_see_the_end(stage: Stage) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    out = maker(f"os.open('out', {MAKE})")
    fd = taker(f"os.open('out', {RDONLY})")
    taker.blocks(f"os.read({fd}, 5)", WaitKind.RANGE)
    maker(f"os.write({out}, b'hello')")
    assert taker.answer() == b"hello"
    taker.blocks(f"os.read({fd}, 5)", WaitKind.RANGE)
    maker(f"os.close({out})")
    assert taker.answer() == b""


def test_a_reader_is_woken_by_the_write_it_waits_for(stage: Stage) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    out = maker(f"os.open('out', {MAKE})")
    fd = taker(f"os.open('out', {RDONLY})")
    for turn in range(20):
        record = b"%4d" % turn
        taker.blocks(f"os.read({fd}, 4)", WaitKind.RANGE)
        maker(f"os.write({out}, {record!r})")
        assert taker.answer(patience=5) == record  # no further write comes


def test_a_short_read_comes_only_after_commit(stage: Stage) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    out = maker(f"os.open('out', {MAKE})")
    fd = taker(f"os.open('out', {RDONLY})")
    maker(f"os.write({out}, b'abc')")
    taker.blocks(f"os.read({fd}, 10)", WaitKind.RANGE)
    maker(f"os.write({out}, b'def')")
    maker(f"os.close({out})")
    assert taker.answer() == b"abcdef"
    assert taker(f"os.read({fd}, 10)") == b""


def test_update_files_are_read_after_commit(stage: Stage) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    out = maker(f"os.open('closed', {MAKE})")
    maker(f"os.write({out}, b'draft')")
    taker.blocks(f"os.read(os.open('closed', {RDONLY}), 5)", WaitKind.COMMITTED)
    maker(f"os.pwrite({out}, b'final', 0)")
    maker(f"os.close({out})")
    assert taker.answer() == b"final"


def test_pread_waits_for_its_own_range(stage: Stage) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    out = maker(f"os.open('out', {MAKE})")
    fd = taker(f"os.open('out', {RDONLY})")
    taker.blocks(f"os.pread({fd}, 4, 8)", WaitKind.RANGE)
    maker(f"os.write({out}, b'01234567')")
    assert stage.table.waits()
    maker(f"os.pwrite({out}, b'89ab', 8)")
    assert taker.answer() == b"89ab"
    assert taker(f"os.read({fd}, 2)") == b"01"  # pread leaves the offset alone


@pytest.mark.parametrize(
    "expression",
    [
        "call('read', {fd}, ctypes.create_string_buffer(4), 4)",
        "call('__read_chk', {fd}, ctypes.create_string_buffer(4), 4, 4)",
        "call('pread', {fd}, ctypes.create_string_buffer(4), 4, 0)",
        "call('pread64', {fd}, ctypes.create_string_buffer(4), 4, 0)",
        "call('__pread_chk', {fd}, ctypes.create_string_buffer(4), 4, 0, 4)",
        "call('__pread64_chk', {fd}, ctypes.create_string_buffer(4), 4, 0, 4)",
        "os.readv({fd}, [bytearray(1), bytearray(3)])",
        "os.preadv({fd}, [bytearray(1), bytearray(3)], 0)",
        "os.preadv({fd}, [bytearray(1), bytearray(3)], 0, 0)",
    ],
)
def test_every_spelling_waits_and_reads(stage: Stage, expression: str) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    out = maker(f"os.open('out', {MAKE})")
    fd = taker(f"os.open('out', {RDONLY})")
    taker.blocks(expression.format(fd=fd), WaitKind.RANGE)
    maker(f"os.write({out}, b'four')")
    assert taker.answer() == 4


def test_a_reader_ends_when_the_producers_are_over(stage: Stage) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    out = maker(f"os.open('late', {MAKE})")
    maker(f"os.write({out}, b'abc')")
    maker(f"os.close({out})")
    fd = taker(f"os.open('late', {RDONLY})")
    assert taker(f"os.read({fd}, 3)") == b"abc"
    taker.blocks(f"os.read({fd}, 3)", WaitKind.RANGE)  # closed, but its maker may open it again
    maker.end()
    stage.over("maker")
    assert taker.answer() == b""


def test_the_reader_of_a_killed_producer_gets_an_error(stage: Stage) -> None:
    maker = stage.puppet("maker")
    taker = stage.puppet("taker")
    out = maker(f"os.open('out', {MAKE})")
    maker(f"os.write({out}, b'abc')")
    fd = taker(f"os.open('out', {RDONLY})")
    taker.blocks(f"os.read({fd}, 10)", WaitKind.RANGE)
    maker.process.kill()
    maker.end()
    assert not stage.has("out", Flag.COMMITTED)  # a vanished process has closed nothing
    stage.over("maker", AppState.FAILED, "was killed by signal 9")
    with pytest.raises(OSError) as caught:
        taker.answer(patience=5)
    assert caught.value.errno == errno.EIO


def test_a_writer_without_the_library_is_noticed(stage: Stage) -> None:
    taker = stage.puppet("taker")
    taker.blocks(f"os.open('out', {RDONLY})", WaitKind.BORN)
    with open(stage.root / "out", "wb", buffering=0) as unseen:
        fd = taker.answer()
        taker.blocks(f"os.read({fd}, 5)", WaitKind.RANGE)
        unseen.write(b"bytes")
        assert taker.answer(patience=5) == b"bytes"
        taker.blocks(f"os.read({fd}, 5)", WaitKind.RANGE)
    stage.over("maker")
    assert taker.answer() == b""


def test_threads_that_share_a_descriptor_get_every_byte_once(stage: Stage) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    out = maker(f"os.open('out', {MAKE})")
    fd = taker(f"os.open('out', {RDONLY})")
    taker("!import threading")
    taker(
        "!def work():\n"
        "    while True:\n"
        f"        record = os.read({fd}, 8)\n"
        "        if not record: return\n"
        "        keep.setdefault('all', []).append(record)\n"
        "threads = [threading.Thread(target=work) for _ in range(4)]\n"
        "[t.start() for t in threads]"
    )
    records = [b"%8d" % number for number in range(500)]
    for start in range(0, 500, 50):
        maker(f"[os.write({out}, r) for r in {records[start : start + 50]!r}] and None")
    maker(f"os.close({out})")
    taker("[t.join() for t in threads] and None")
    assert sorted(taker("keep['all']")) == records


def test_offsets_are_shared_across_fork(stage: Stage) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    maker(f"keep.update(out=os.open('out', {MAKE})) or os.write(keep['out'], b'0123456789') and os.close(keep['out'])")
    fd = taker(f"os.open('out', {RDONLY})")
    assert taker(f"os.read({fd}, 2)") == b"01"
    taker(f"!pid = os.fork()\nif pid == 0:\n    os.read({fd}, 3)\n    os._exit(0)\nos.waitpid(pid, 0)")
    assert taker(f"os.read({fd}, 2)") == b"56"


def test_a_producer_reads_its_own_file_at_once(stage: Stage) -> None:
    maker = stage.puppet("maker")
    fd = maker("os.open('closed', os.O_RDWR|os.O_CREAT)")
    assert maker(f"os.read({fd}, 5)") == b""
    maker(f"os.write({fd}, b'abc')")
    maker(f"os.lseek({fd}, 0, os.SEEK_SET)")
    assert maker(f"os.read({fd}, 5)") == b"abc"
    maker(f"os.write({fd}, b'def')")
    assert stage.info("closed").solid == 6
    assert maker("os.stat('closed').st_size") == 6
    assert os.path.getsize(stage.root / "closed") == 6
