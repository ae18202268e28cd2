"""stat and its kin: sizes are final before a consumer sees them; existence waits for the birth."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.interpose.stage import RULES, Stage, staged

from penstock.streaming.table_records import WaitKind

MAKE = "os.O_WRONLY|os.O_CREAT|os.O_TRUNC"
BUFFER = "ctypes.create_string_buffer(512)"


@pytest.mark.parametrize(
    "expression",
    [
        "os.stat('out').st_size",
        "os.lstat('out').st_size",
        "os.path.getsize('out')",
        "os.stat('out', dir_fd=os.open('.', os.O_RDONLY)).st_size",
        f"call('stat64', b'out', {BUFFER})",
        f"call('lstat64', b'out', {BUFFER})",
        f"call('fstatat64', -100, b'out', {BUFFER}, 0)",
        f"call('__xstat', 1, b'out', {BUFFER})",
        f"call('__xstat64', 1, b'out', {BUFFER})",
        f"call('__lxstat', 1, b'out', {BUFFER})",
        f"call('__lxstat64', 1, b'out', {BUFFER})",
        f"call('__fxstatat', 1, -100, b'out', {BUFFER}, 0)",
        f"call('__fxstatat64', 1, -100, b'out', {BUFFER}, 0)",
        f"call('statx', -100, b'out', 0, 0x7ff, {BUFFER})",
        f"call('syscall', 332 if os.uname().machine == 'x86_64' else 291, -100, b'out', 0, 0x7ff, {BUFFER})",
    ],
)
def test_sizes_by_path_wait_for_the_commit(stage: Stage, expression: str) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    out = maker(f"os.open('out', {MAKE})")
    taker.blocks(expression, WaitKind.COMMITTED)
    maker(f"os.write({out}, b'12345')")
    maker(f"os.close({out})")
    assert taker.answer() == (5 if "os." in expression and "call" not in expression else 0)


@pytest.mark.parametrize(
    "expression",
    [
        "os.fstat({fd}).st_size",
        f"call('fstat64', {{fd}}, {BUFFER})",
        f"call('__fxstat', 1, {{fd}}, {BUFFER})",
        f"call('__fxstat64', 1, {{fd}}, {BUFFER})",
        f"call('fstatat', {{fd}}, b'', {BUFFER}, 0x1000)",
        f"call('statx', {{fd}}, b'', 0x1000, 0x200, {BUFFER})",
    ],
)
def test_sizes_by_descriptor_wait_for_the_commit(stage: Stage, expression: str) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    out = maker(f"os.open('out', {MAKE})")
    fd = taker("os.open('out', os.O_RDONLY)")
    taker.blocks(expression.format(fd=fd), WaitKind.COMMITTED)
    maker(f"os.write({out}, b'12345')")
    maker(f"os.close({out})")
    assert taker.answer() == (5 if "st_size" in expression else 0)


@pytest.mark.parametrize(
    "expression",
    [
        "os.access('out', os.R_OK)",
        "os.access('out', os.R_OK, effective_ids=True)",
        "os.access('out', os.R_OK, dir_fd=os.open('.', os.O_RDONLY))",
        "call('eaccess', b'out', 4) == 0",
        "call('euidaccess', b'out', 4) == 0",
        f"call('statx', -100, b'out', 0, 1, {BUFFER}) == 0",  # only its kind
    ],
)
def test_existence_waits_for_the_birth(stage: Stage, expression: str) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    taker.blocks(expression, WaitKind.BORN)
    maker(f"os.open('out', {MAKE})")
    assert taker.answer() is True


@pytest.mark.parametrize(
    "expression",
    [
        "os.readlink('out.l')",
        "os.readlink('out.l', dir_fd=os.open('.', os.O_RDONLY))",
        "ctypes.string_at(ctypes.cast(libc.realpath, ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p, "
        "ctypes.c_void_p))(b'out.l', None)).decode().split('/')[-1]",
    ],
)
def test_links_wait_for_their_birth(stage: Stage, expression: str) -> None:
    (stage.root / "out.t").write_text("")
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    maker(f"os.close(os.open('out.t', {MAKE}))")
    taker.blocks(expression, WaitKind.BORN)
    maker("os.symlink('out.t', 'out.l')")
    assert taker.answer() == "out.t"


def test_a_directory_waits_for_its_birth_only(stage: Stage) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    taker.blocks("__import__('stat').S_ISDIR(os.stat('made').st_mode)", WaitKind.BORN)
    maker("os.mkdir('made')")
    assert taker.answer() is True


def test_a_directory_that_is_final_at_commit_is_seen_then(tmp_path: Path) -> None:
    """tar, for one, complains if the times of a directory change while it is read."""
    rules = RULES.replace(
        'directories = ["made"]\ncommit = "on_termination"\nfire = "no_update"',
        'directories = ["made"]\ncommit = "on_termination"\nfire = "update"',
    )
    assert rules != RULES
    with staged(tmp_path / "root", rules) as stage:
        maker, taker = stage.puppet("maker"), stage.puppet("taker")
        maker("os.mkdir('made')")
        taker.blocks("os.stat('made').st_nlink", WaitKind.COMMITTED)
        maker("os.mkdir('made/sub')")
        maker.end()
        stage.over("maker")
        assert taker.answer() == 3


def test_a_directory_that_is_there_is_there(stage: Stage) -> None:
    taker = stage.puppet("taker")
    assert taker("os.path.isdir('.')") is True
    (stage.root / "made").mkdir()
    assert taker("os.path.isdir('made')") is True


def test_a_step_may_ask_for_sizes_so_far(tmp_path: Path) -> None:
    rules = RULES.replace('name = "taker"', 'name = "taker"\nsizes = "so_far"')
    with staged(tmp_path / "root", rules) as stage:
        maker, taker = stage.puppet("maker"), stage.puppet("taker")
        taker.blocks("os.stat('late').st_size", WaitKind.BORN)
        out = maker(f"os.open('late', {MAKE})")
        assert taker.answer() == 0
        maker(f"os.write({out}, b'12345')")
        assert taker("os.stat('late').st_size") == 5
        assert taker("os.lseek(os.open('late', 0), 0, os.SEEK_END)") == 5
        assert taker("os.lseek(os.open('late', 0), 0, os.SEEK_HOLE)") == 5
        maker(f"os.close(os.open('closed', {MAKE})) or os.open('closed.2', {MAKE})")
        taker.blocks("os.stat('closed.2').st_size", WaitKind.COMMITTED)  # an update file: after commit all the same
