"""lseek: the end of a file is known after commit; offsets are the program's own."""

from __future__ import annotations

import pytest
from tests.interpose.stage import Stage

from penstock.streaming.table_records import WaitKind

MAKE = "os.O_WRONLY|os.O_CREAT|os.O_TRUNC"


@pytest.mark.parametrize("whence", ["os.SEEK_END", "os.SEEK_DATA", "os.SEEK_HOLE"])
@pytest.mark.parametrize("call", ["os.lseek({fd}, 0, {whence})", "call('lseek64', {fd}, 0, {whence})"])
def test_the_end_waits_for_the_commit(stage: Stage, whence: str, call: str) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    out = maker(f"os.open('out', {MAKE})")
    maker(f"os.write({out}, b'12345')")
    fd = taker("os.open('out', os.O_RDONLY)")
    taker.blocks(call.format(fd=fd, whence=whence), WaitKind.COMMITTED)
    maker(f"os.write({out}, b'67890')")
    maker(f"os.close({out})")
    assert taker.answer() == (0 if whence == "os.SEEK_DATA" else 10)


def test_set_and_current_do_not_wait(stage: Stage) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    out = maker(f"os.open('out', {MAKE})")
    fd = taker("os.open('out', os.O_RDONLY)")
    assert taker(f"os.lseek({fd}, 4, os.SEEK_SET)") == 4
    assert taker(f"os.lseek({fd}, -1, os.SEEK_CUR)") == 3
    taker.blocks(f"os.read({fd}, 2)", WaitKind.RANGE)
    maker(f"os.write({out}, b'012345')")
    assert taker.answer() == b"34"


def test_the_kernel_and_the_library_agree_on_the_offset(stage: Stage) -> None:
    maker = stage.puppet("maker")
    fd = maker("os.open('out', os.O_RDWR|os.O_CREAT|os.O_TRUNC)")
    maker(f"os.write({fd}, b'0123456789')")
    maker(f"os.lseek({fd}, -4, os.SEEK_END)")
    maker(f"os.write({fd}, b'abcdefgh')")
    assert maker(f"os.lseek({fd}, 0, os.SEEK_CUR)") == 14
    assert stage.info("out").solid == 14
