"""What ends badly ends: readers of killed producers and clients of killed servers get an error within seconds."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.interpose.stage import RULES, Stage, staged

from penstock.streaming.table_records import AppState, WaitKind

MAKE = "os.O_WRONLY|os.O_CREAT|os.O_TRUNC"

WAITS = {
    "open": ("os.open('out', os.O_RDONLY)", False),
    "stat": ("os.stat('out')", True),
    "read": ("os.read(os.open('out', os.O_RDONLY), 10)", True),
    "listing": ("os.listdir('made')", True),
    "mmap": ("__import__('mmap').mmap(os.open('out', os.O_RDONLY), 5, prot=1)", True),
    "stdio": ("[libc.fgetc(keep['f']) for _ in range(4)] and call('fgetc', keep['f'])", True),
    "rename": ("os.rename('out', 'mine')", True),
}


@pytest.mark.parametrize("way", WAITS)
def test_everybody_who_waits_for_a_failed_app_is_told(
    stage: Stage, way: str, capfd: pytest.CaptureFixture[str]
) -> None:
    expression, exists = WAITS[way]
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    if exists:
        maker(f"os.mkdir('made') or os.write(os.open('out', {MAKE}), b'some') and None")
    if way == "stdio":
        taker("keep.update(f=ctypes.c_void_p(libc.fopen(b'out', b'r')))")
    taker.blocks(expression, *[kind for kind in WaitKind if kind])
    maker.process.kill()
    maker.end()
    stage.over("maker", AppState.FAILED, "was killed by signal 9")
    began = time.monotonic()
    with pytest.raises(OSError) as caught:
        taker.answer()
    assert caught.value.errno == errno.EIO
    assert time.monotonic() - began < 60
    told = capfd.readouterr().err
    assert "maker" in told and "killed by signal 9" in told


SERVER = """
import sys
sys.path.insert(0, {path!r})
from penstock.streaming.table import Table
from penstock.streaming.table_records import ServerState
table = Table.attach({table!r})
table.serve(ServerState.RUNS)
print("serving", flush=True)
sys.stdin.read()
"""


@pytest.mark.one_in(2)
@pytest.mark.parametrize("way", ["open", "stat", "read", "listing"])
def test_the_client_of_a_killed_server_is_told(stage: Stage, way: str, capfd: pytest.CaptureFixture[str]) -> None:
    expression, exists = WAITS[way]
    source = SERVER.format(path=str(Path(__file__).parents[2] / "src"), table=stage.table.path)
    server = subprocess.Popen([sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    stage.processes.append(server)
    assert server.stdout is not None and server.stdout.readline() == b"serving\n"
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    if exists:
        maker(f"os.mkdir('made') or os.write(os.open('out', {MAKE}), b'some') and None")
    taker.blocks(expression, *[kind for kind in WaitKind if kind])
    server.kill()
    server.wait()
    began = time.monotonic()
    with pytest.raises(OSError) as caught:
        taker.answer()
    assert caught.value.errno == errno.EIO
    assert time.monotonic() - began < 60
    assert "server" in capfd.readouterr().err


def test_an_aborted_workflow_wakes_everybody(stage: Stage) -> None:
    one, two = stage.puppet("taker"), stage.puppet("taker")
    one.blocks("os.open('out', os.O_RDONLY)", WaitKind.BORN)
    two.blocks("os.open('out.2', os.O_RDONLY)", WaitKind.BORN)
    stage.table.abort("the workflow was stopped")
    for puppet in (one, two):
        with pytest.raises(OSError) as caught:
            puppet.answer(patience=5)
        assert caught.value.errno == errno.EIO


def test_a_writer_too_far_ahead_waits_for_its_reader(tmp_path: Path) -> None:
    rules = 'temporary = ["late*"]\n' + RULES
    with staged(tmp_path / "root", rules, limit=1 << 20) as stage:
        maker, taker = stage.puppet("maker"), stage.puppet("taker")
        maker(f"!out = os.open('late', {MAKE})\nblock = b'x' * (1 << 18)")
        fd = taker("os.open('late', os.O_RDONLY)")
        assert maker("[os.write(out, block) for _ in range(4)][-1]") == 1 << 18
        maker.blocks("os.write(out, block)", WaitKind.ROOM)
        assert taker(f"len(os.read({fd}, 1 << 20))") == 1 << 20
        slot = stage.table.lookup("late")
        assert slot is not None and stage.table.consumed_by_all(slot) == 1 << 20
        # What is read takes room until it is given back.
        assert stage.table.waits()[0].kind is WaitKind.ROOM
        stage.table.freed(slot, 1 << 18)
        assert maker.answer() == 1 << 18


def test_a_reader_that_waits_at_the_end_does_not_make_room(tmp_path: Path) -> None:
    rules = 'temporary = ["late*"]\n' + RULES
    with staged(tmp_path / "root", rules, limit=1 << 20) as stage:
        maker, fast = stage.puppet("maker"), stage.puppet("taker")
        maker(f"!out = os.open('late', {MAKE})\nblock = b'x' * (1 << 18)")
        assert maker("[os.write(out, block) for _ in range(4)][-1]") == 1 << 18
        fd = fast("os.open('late', os.O_RDONLY)")
        assert fast(f"len(os.read({fd}, 1 << 20))") == 1 << 20
        fast.blocks(f"os.read({fd}, 1 << 16)", WaitKind.RANGE)
        maker.blocks("os.write(out, block)", WaitKind.ROOM)


def test_a_reader_that_asks_for_more_than_the_limit_allows_gets_it(tmp_path: Path) -> None:
    rules = 'temporary = ["late*"]\n' + RULES
    with staged(tmp_path / "root", rules, limit=1 << 20) as stage:
        maker, taker = stage.puppet("maker"), stage.puppet("taker")
        maker(f"!out = os.open('late', {MAKE})")
        fd = taker("os.open('late', os.O_RDONLY)")
        taker.blocks(f"len(os.read({fd}, 3 << 20))", WaitKind.RANGE)
        assert maker("os.write(out, bytes(4 << 20))") == 4 << 20
        assert taker.answer() == 3 << 20


def test_a_full_process_of_descriptors_behaves_as_natively(stage: Stage) -> None:
    maker = stage.puppet("maker")
    maker("!import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))")
    maker(
        "!opened = []\ntry:\n    while True: opened.append(os.open(f'out.{len(opened)}', os.O_WRONLY|os.O_CREAT))\n"
        "except OSError as error: code = error.errno"
    )
    assert maker("code") == errno.EMFILE
    assert maker("[os.close(fd) for fd in opened] and None") is None
    assert all(info.writers == 0 for info in stage.table.iterate() if info.name.startswith("out."))
    assert os.path.exists(stage.root / "out.0")
