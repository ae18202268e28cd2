"""Copies inside the kernel: what is there goes, the end is believed after commit, the copy is published."""

from __future__ import annotations

import pytest
from tests.interpose.stage import Stage

from penstock.streaming.table_records import WaitKind

MAKE = "os.O_RDWR|os.O_CREAT|os.O_TRUNC"

COPIES = {
    "sendfile": "os.sendfile({to}, {fd}, None, 1 << 20)",
    "sendfile at": "os.sendfile({to}, {fd}, {at}, 1 << 20)",
    "copy_file_range": "os.copy_file_range({fd}, {to}, 1 << 20)",
    "copy_file_range at": "os.copy_file_range({fd}, {to}, 1 << 20, {at}, {at})",
}


@pytest.mark.parametrize("way", COPIES)
def test_what_is_there_is_copied_as_it_comes(stage: Stage, way: str) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    out = maker(f"os.open('out', {MAKE})")
    fd, to = taker("os.open('out', os.O_RDONLY)"), taker(f"os.open('copy', {MAKE})")
    taker.blocks(COPIES[way].format(fd=fd, to=to, at=0), WaitKind.RANGE)
    maker(f"os.write({out}, b'one')")
    assert taker.answer() == 3
    taker.blocks(COPIES[way].format(fd=fd, to=to, at=3), WaitKind.RANGE)
    maker(f"os.write({out}, b'four')")
    assert taker.answer() == 4
    assert stage.info("copy").solid == 7
    taker.blocks(COPIES[way].format(fd=fd, to=to, at=7), WaitKind.RANGE)
    maker(f"os.close({out})")
    assert taker.answer() == 0
    assert (stage.root / "copy").read_bytes() == b"onefour"


def test_splice_both_ways(stage: Stage) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    out = maker(f"os.open('out', {MAKE})")
    fd, to = taker("os.open('out', os.O_RDONLY)"), taker(f"os.open('copy', {MAKE})")
    taker("!pipe = os.pipe()")
    taker.blocks(f"os.splice({fd}, pipe[1], 100)", WaitKind.RANGE)
    maker(f"os.write({out}, b'spliced')")
    assert taker.answer() == 7
    assert taker(f"os.splice(pipe[0], {to}, 100)") == 7
    assert stage.info("copy").solid == 7
    assert taker(f"os.lseek({to}, 0, os.SEEK_CUR)") == 7
    taker(f"os.write({to}, b'!')")
    assert stage.info("copy").solid == 8


def test_cp_and_cat_of_a_file_that_is_being_written(stage: Stage) -> None:
    maker = stage.puppet("maker")
    out = maker(f"os.open('out', {MAKE})")
    copy, cat = stage.start("taker", ["cp", "out", "copy"]), stage.start("taker", "cat < out > catted")
    maker(f"[os.write({out}, b'0123456789' * 1000) for _ in range(20)] and None")
    maker(f"os.close({out})")
    assert copy.wait(60) == 0 and cat.wait(60) == 0
    whole = b"0123456789" * 20000
    assert (stage.root / "copy").read_bytes() == whole
    assert (stage.root / "catted").read_bytes() == whole
