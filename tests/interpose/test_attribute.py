"""Rights, owners, times, extended attributes: those of another step's file are those of the file as it leaves it."""

from __future__ import annotations

import errno
import os

import pytest
from tests.interpose.stage import Stage, aged

from penstock.streaming.table_records import WaitKind

MAKE = "os.O_WRONLY|os.O_CREAT|os.O_TRUNC"
ROOM = "ctypes.create_string_buffer(512)"
CHANGES = [
    "os.chmod('out', 0o600)",
    "os.chmod('out', 0o600, dir_fd=os.open('.', os.O_RDONLY))",
    "libc.lchmod(b'out', 0o600) * 0",
    "os.chown('out', os.getuid(), os.getgid())",
    "os.lchown('out', os.getuid(), os.getgid())",
    "os.chown('out', os.getuid(), os.getgid(), dir_fd=os.open('.', os.O_RDONLY))",
    "os.utime('out')",
    "os.utime('out', follow_symlinks=False)",
    "call('utime', b'out', None)",
    "call('utimes', b'out', None)",
    "call('lutimes', b'out', None)",
    "call('futimesat', -100, b'out', None)",
    "os.setxattr('out', 'user.a', b'1')",
    "os.setxattr('out', 'user.a', b'1', follow_symlinks=False)",
    "libc.removexattr(b'out', b'user.none') + 1",
    "libc.lremovexattr(b'out', b'user.none') + 1",
]
LOOKS = [
    "os.listxattr('out') or None",
    "os.listxattr('out', follow_symlinks=False) or None",
    f"libc.getxattr(b'out', b'user.none', {ROOM}, 512) + 1",
    f"libc.lgetxattr(b'out', b'user.none', {ROOM}, 512) + 1",
]
UTIMENSAT = {"x86_64": 280, "aarch64": 88}[os.uname().machine]
#: by number: fchmodat, fchownat, utimensat, getxattr
BY_NUMBER = {
    "x86_64": [
        "call('syscall', 268, -100, b'out', 0o600)",
        "call('syscall', 260, -100, b'out', -1, -1, 0)",
        f"call('syscall', {UTIMENSAT}, -100, b'out', None, 0)",
        "libc.syscall(191, b'out', b'user.none', None, 0) + 1",
    ],
    "aarch64": [
        "call('syscall', 53, -100, b'out', 0o600)",
        "call('syscall', 54, -100, b'out', -1, -1, 0)",
        f"call('syscall', {UTIMENSAT}, -100, b'out', None, 0)",
        "libc.syscall(8, b'out', b'user.none', None, 0) + 1",
    ],
}[os.uname().machine]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("expression", [*CHANGES, *LOOKS, *BY_NUMBER])
def test_attributes_by_path_wait_for_the_commit(stage: Stage, expression: str) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    taker.blocks(expression, WaitKind.BORN)
    out = maker(f"os.open('out', {MAKE})")
    stage.await_wait_for("out", WaitKind.COMMITTED)
    maker(f"os.close({out})")
    assert taker.answer() in (None, 0)


@pytest.mark.parametrize(
    "expression",
    [
        "os.fchmod({fd}, 0o600)",
        "os.fchown({fd}, os.getuid(), os.getgid())",
        "os.utime({fd})",
        "call('futimes', {fd}, None)",
        f"call('syscall', {UTIMENSAT}, {{fd}}, None, None, 0)",
        "call('fchownat', {fd}, b'', -1, -1, 0x1000)",
        "os.setxattr({fd}, 'user.a', b'1')",
        "libc.fremovexattr({fd}, b'user.none') + 1",
        "os.listxattr({fd}) or None",
        f"libc.fgetxattr({{fd}}, b'user.none', {ROOM}, 512) + 1",
    ],
)
def test_attributes_by_descriptor_wait_for_the_commit(stage: Stage, expression: str) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    out = maker(f"os.open('out', {MAKE})")
    fd = taker("os.open('out', os.O_RDONLY)")
    taker.blocks(expression.format(fd=fd), WaitKind.COMMITTED)
    maker(f"os.close({out})")
    assert taker.answer() in (None, 0)


@pytest.mark.parametrize(
    "expression",
    [
        "os.statvfs('out') and None",
        f"call('statfs', b'out', {ROOM})",
        f"call('statfs64', b'out', {ROOM})",
        f"call('statvfs64', b'out', {ROOM})",
        "os.pathconf('out', 'PC_NAME_MAX') and None",
        "libc.inotify_add_watch(libc.inotify_init(), b'out', 2) - 1",
        f"libc.name_to_handle_at(-100, b'out', {ROOM}, {ROOM}, 0) + 1",
    ],
)
def test_what_only_asks_for_the_file_waits_for_the_birth(stage: Stage, expression: str) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    taker.blocks(expression, WaitKind.BORN)
    maker(f"os.open('out', {MAKE})")
    assert taker.answer() in (None, 0)


@pytest.mark.parametrize("name", ["out", "closed", "late"])
def test_what_an_earlier_run_left_is_not_acted_on(stage: Stage, name: str) -> None:
    """Its producer puts another file in its place, which is the one that is meant."""
    (stage.root / name).write_text("old")
    aged(stage.root / name)
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    taker.blocks(f"os.chmod({name!r}, 0o640)", WaitKind.BORN)
    maker(f"os.close(os.open('tmp', {MAKE}, 0o600)) or os.rename('tmp', {name!r})")
    maker.end()
    stage.over("maker")
    taker.answer()
    assert (stage.root / name).stat().st_mode & 0o777 == 0o640


def test_a_producer_does_not_wait_for_its_own(stage: Stage) -> None:
    maker = stage.puppet("maker")
    maker(f"os.open('out', {MAKE})")
    maker("os.chmod('out', 0o600) or os.utime('out') or os.listxattr('out')")
    assert maker("libc.chmod(b'out.none', 0o600)") == -1


@pytest.mark.parametrize(
    "expression",
    [
        "libc.symlink(b'nowhere', b'out')",
        "libc.symlinkat(b'nowhere', -100, b'out')",
        "libc.link(b'own', b'out')",
        "libc.mkfifo(b'out', 0o600)",
        "libc.mknod(b'out', 0o100600, 0)",
    ],
)
def test_what_is_made_under_the_name_of_another_step_finds_it_there(stage: Stage, expression: str) -> None:
    (stage.root / "own").write_text("")
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    taker.blocks(f"[{expression}, ctypes.get_errno()]", WaitKind.BORN)
    maker(f"os.close(os.open('out', {MAKE}))")
    assert taker.answer() == [-1, errno.EEXIST]
    assert (stage.root / "out").is_file() and not (stage.root / "out").is_symlink()


@pytest.mark.parametrize("mode", ["0o100600", "0o600"])
def test_a_node_that_is_a_file_is_a_birth(stage: Stage, mode: str) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    taker.blocks("os.access('out', os.R_OK)", WaitKind.BORN)
    maker(f"os.mknod('out', {mode})")
    assert taker.answer() is True


def test_nobody_makes_it_after_all(stage: Stage) -> None:
    taker = stage.puppet("taker")
    taker.blocks("[libc.chmod(b'out', 0o600), ctypes.get_errno()]", WaitKind.BORN)
    stage.over("maker")
    assert taker.answer() == [-1, errno.ENOENT]
