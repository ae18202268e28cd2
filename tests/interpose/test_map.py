"""mmap: a consumer's mapping waits for the commit; a producer's counts as a writer until it is unmapped."""

from __future__ import annotations

import pytest
from tests.interpose.stage import Stage

from penstock.streaming.table_records import Flag, WaitKind

MAKE = "os.O_RDWR|os.O_CREAT|os.O_TRUNC"


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('mmap').mmap({fd}, 5, prot=1)[:5]",
        "ctypes.string_at(libc.mmap(None, 5, 1, 2, {fd}, 0), 5)",
        "ctypes.string_at(libc.mmap64(None, 5, 1, 2, {fd}, 0), 5)",
    ],
)
def test_a_mapping_waits_for_the_commit(stage: Stage, expression: str) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    taker("!libc.mmap64.restype = ctypes.c_void_p")
    out = maker(f"os.open('out', {MAKE})")
    fd = taker("os.open('out', os.O_RDONLY)")
    taker.blocks(expression.format(fd=fd), WaitKind.COMMITTED)
    maker(f"os.write({out}, b'whole')")
    maker(f"os.close({out})")
    assert taker.answer() == b"whole"


def test_a_shared_mapping_is_a_writer_after_the_close(stage: Stage) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    fd = maker(f"os.open('out', {MAKE})")
    maker(f"os.ftruncate({fd}, 8192)")
    maker(f"!at = libc.mmap(None, 8192, 3, 1, {fd}, 0)")
    maker(f"os.close({fd})")
    assert not stage.has("out", Flag.COMMITTED)
    reading = taker("os.open('out', os.O_RDONLY)")
    taker.blocks(f"os.read({reading}, 4)", WaitKind.RANGE)
    maker("!ctypes.memmove(at, b'late', 4)")
    maker("libc.munmap(ctypes.c_void_p(at), 4096)")
    assert not stage.has("out", Flag.COMMITTED)  # one page is left
    maker("libc.munmap(ctypes.c_void_p(at + 4096), 4096)")
    assert taker.answer() == b"late"
    assert stage.has("out", Flag.COMMITTED)


def test_a_moved_mapping_still_counts(stage: Stage) -> None:
    maker = stage.puppet("maker")
    maker("!libc.mremap.restype = ctypes.c_void_p")
    fd = maker(f"os.open('out', {MAKE})")
    maker(f"os.ftruncate({fd}, 4096)")
    maker(f"!at = libc.mmap(None, 4096, 3, 1, {fd}, 0)\nos.close({fd})")
    maker("!at = libc.mremap(ctypes.c_void_p(at), 4096, 1 << 20, 1)")
    assert not stage.has("out", Flag.COMMITTED)
    maker("libc.munmap(ctypes.c_void_p(at), 1 << 20)")
    assert stage.has("out", Flag.COMMITTED)


def test_private_mappings_do_not_count(stage: Stage) -> None:
    maker = stage.puppet("maker")
    fd = maker(f"os.open('out', {MAKE})")
    maker(f"os.write({fd}, b'x' * 4096) and (keep.update(at=libc.mmap(None, 4096, 3, 2, {fd}, 0)) or os.close({fd}))")
    assert stage.has("out", Flag.COMMITTED)
