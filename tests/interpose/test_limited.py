"""Bounded memory, as programs meet it: what was given back is not read as zeros, and every write asks for room."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.interpose.stage import RULES, Puppet, Stage, staged
from tests.patience import PATIENCE

from penstock.streaming.table_records import WaitKind

MAKE = "os.O_RDWR|os.O_CREAT|os.O_TRUNC"
BLOCK = 1 << 18


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[Stage]:
    with staged(tmp_path / "root", 'temporary = ["late*"]\n' + RULES, limit=4 * BLOCK) as stage:
        yield stage


def written(stage: Stage, blocks: int) -> Puppet:
    """Who has written so much of ``late`` and has it open."""
    maker = stage.puppet("maker")
    maker(f"!out = os.open('late', {MAKE})\nblock = b'x' * {BLOCK}")
    for _ in range(blocks):
        maker("os.write(out, block)")
    return maker


def give_back(stage: Stage, end: int) -> None:
    """What the server does when all readers are known to be beyond a place; none is asked here."""
    slot = stage.table.lookup("late")
    assert slot is not None
    stage.table.punched(slot, end)
    descriptor = os.open(stage.root / "late", os.O_WRONLY)
    os.pwrite(descriptor, bytes(end), 0)
    os.close(descriptor)
    stage.table.freed(slot, end)


@pytest.mark.parametrize(
    "read",
    [
        "os.read(fd, 4000)",
        "os.pread(fd, 4000, 0)",
        "os.sendfile(1, fd, 0, 4000)",
        "(os.dup2(fd, 0), os.read(0, 4000))[1]",
    ],
)
def test_bytes_that_go_while_they_are_read_are_an_error_not_zeros(
    limited: Stage, program: Callable[..., str], read: str
) -> None:
    """Another process of the same step was ahead, and the server knows the furthest only."""
    written(limited, 1)
    held = program("waits_before_reading.c", "-shared", "-fPIC")
    at, go = os.pipe(), os.pipe()
    script = f"import os; fd = os.open('late', os.O_RDONLY); got = {read}; os._exit(0 if got else 1)"
    reader = limited.start(
        "taker",
        [sys.executable, "-S", "-E", "-c", script],
        env={"LD_PRELOAD": f"{limited.library} {held}", "AT": str(at[1]), "GO": str(go[0])},
        pass_fds=(at[1], go[0]),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    os.close(at[1])
    os.close(go[0])
    assert os.read(at[0], 1) == b"."
    give_back(limited, 8192)
    os.write(go[1], b".")
    told = reader.communicate(timeout=PATIENCE)[1]
    os.close(at[0])
    os.close(go[1])
    assert reader.returncode == 1 and f"[Errno {errno.EIO}]" in told and "was given back" in told


def test_what_was_given_back_is_not_mapped(limited: Stage) -> None:
    maker = written(limited, 1)
    maker("os.close(out)")
    limited.commit("late")
    give_back(limited, 8192)
    taker = limited.puppet("taker")
    taker("!import mmap\nfd = os.open('late', os.O_RDONLY)")
    with pytest.raises(OSError) as caught:
        taker("len(mmap.mmap(fd, 0, prot=mmap.PROT_READ))")
    assert caught.value.errno == errno.EIO


@pytest.mark.parametrize(
    "write", ["os.write(add, block)", "os.writev(add, [block])", "os.pwritev(out, [block], 0, os.RWF_APPEND)"]
)
def test_who_appends_asks_for_room_at_the_end_of_the_file(limited: Stage, write: str) -> None:
    """Its offset is at the beginning until it has written, as that of each `>>` of a shell is."""
    maker = written(limited, 3)
    maker("!add = os.open('late', os.O_WRONLY|os.O_APPEND)\nos.RWF_APPEND = 16")
    assert maker(write) == BLOCK
    maker("!add = os.open('late', os.O_WRONLY|os.O_APPEND)")
    maker.blocks(write, WaitKind.ROOM)
    slot = limited.table.lookup("late")
    assert slot is not None and limited.table.taken == 4 * BLOCK
    taker = limited.puppet("taker")
    fd = taker("os.open('late', os.O_RDONLY)")
    assert taker(f"len(os.read({fd}, {BLOCK}))") == BLOCK
    limited.table.freed(slot, BLOCK)
    assert maker.answer() == BLOCK


@pytest.mark.parametrize(
    "read",
    [
        "os.pread(out, 10, 0)",
        "(os.lseek(out, 0, 0), os.read(out, 10))[1]",
        "os.read(os.open('late', os.O_RDONLY), 10)",
        "os.pread(os.open('late', os.O_RDWR), 10, 4096)",
        "open('late').read(10)",
        "os.sendfile(1, out, 0, 10)",
        "mmap.mmap(out, 8192, prot=mmap.PROT_READ)[:10]",
    ],
)
def test_the_maker_of_a_file_reads_no_zeros_either(limited: Stage, read: str) -> None:
    maker = written(limited, 1)
    maker("!import mmap")
    assert maker("os.pread(out, 10, 8192)") == b"x" * 10
    give_back(limited, 8192)
    with pytest.raises(OSError) as caught:
        maker(read)
    assert caught.value.errno == errno.EIO
    assert maker("os.pread(out, 10, 8192)") == b"x" * 10
