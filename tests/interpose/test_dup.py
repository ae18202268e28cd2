"""Descriptors: duplicates are one writer, and the number means what the kernel says it means."""

from __future__ import annotations

import errno

import pytest
from tests.interpose.stage import Stage

from penstock.streaming.table_records import Flag, WaitKind

MAKE = "os.O_WRONLY|os.O_CREAT|os.O_TRUNC"


@pytest.mark.parametrize(
    "copy",
    [
        "os.dup({fd})",
        "os.dup2({fd}, 77)",
        "call('dup2', {fd}, 77)",
        "call('dup3', {fd}, 77, 0)",
        "__import__('fcntl').fcntl({fd}, 0, 60)",
        "call('fcntl64', {fd}, 1030, 60)",
        "os.open('/dev/fd/{fd}', os.O_WRONLY)",
        "os.open('/proc/self/fd/{fd}', os.O_WRONLY)",
    ],
)
def test_a_copy_keeps_the_writer(stage: Stage, copy: str) -> None:
    maker = stage.puppet("maker")
    fd = maker(f"os.open('out', {MAKE})")
    other = maker(copy.format(fd=fd))
    maker(f"os.close({fd})")
    assert not stage.has("out", Flag.COMMITTED)
    maker(f"os.write({other}, b'by the copy')")
    assert stage.info("out").solid == 11
    maker(f"os.close({other})")
    assert stage.has("out", Flag.COMMITTED)


@pytest.mark.parametrize(
    "close",
    [
        "os.close({fd})",
        "os.dup2(0, {fd})",
        "os.closerange({fd}, {fd} + 1)",
        "call('close_range', {fd}, {fd}, 0)",
        "call('closefrom', {fd})",
        "call('syscall', 3 if os.uname().machine == 'x86_64' else 57, {fd})",
        "call('fclose', ctypes.c_void_p(libc.fdopen({fd}, b'w')))",
    ],
)
def test_every_way_to_close_is_a_close(stage: Stage, close: str) -> None:
    maker = stage.puppet("maker")
    fd = maker(f"os.dup2(os.open('out', {MAKE}), 90)")
    maker(
        "[os.close(n) for n in range(3, 90) if n > 2 and os.path.islink(f'/proc/self/fd/{n}')"
        " and os.readlink(f'/proc/self/fd/{n}').endswith('/out')] and None"
    )
    maker(close.format(fd=fd))
    assert stage.has("out", Flag.COMMITTED)


def test_a_number_used_again_is_a_new_file(stage: Stage) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    out = maker(f"os.open('out', {MAKE})")
    fd = taker("os.open('out', os.O_RDONLY)")
    taker(f"os.close({fd})")
    taker("!pipe = os.pipe()")
    taker("os.write(pipe[1], b'pipe')")
    assert taker("os.read(pipe[0], 10)") == b"pipe"
    maker(f"os.close({out})")


def test_a_message_brings_a_descriptor(stage: Stage) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    maker(f"!import socket\nout = os.open('out', {MAKE})\nos.write(out, b'one')")
    fd = taker(
        "!import socket\npair = socket.socketpair()\nfd = os.open('out', os.O_RDONLY)\n"
        "socket.send_fds(pair[0], [b'x'], [fd])\nreceived = socket.recv_fds(pair[1], 1, 1)[1][0]"
    )
    assert fd is None
    assert taker("os.read(received, 3)") == b"one"
    taker.blocks("os.read(received, 3)", WaitKind.RANGE)
    maker("os.write(out, b'two')")
    assert taker.answer() == b"two"


def test_append_set_later(stage: Stage) -> None:
    maker = stage.puppet("maker")
    fd = maker(f"os.open('late', {MAKE})")
    maker(f"os.write({fd}, b'0123456789')")
    maker(f"os.lseek({fd}, 0, os.SEEK_SET)")
    maker(f"__import__('fcntl').fcntl({fd}, 4, os.O_APPEND)")
    maker(f"os.write({fd}, b'end')")
    assert stage.info("late").solid == 13


def test_errors_stay_errors(stage: Stage) -> None:
    maker = stage.puppet("maker")
    for call in ("os.close(99)", "os.dup(99)", "os.read(99, 1)", "call('dup3', 1, 1, 0)", "os.dup2(99, 98)"):
        with pytest.raises(OSError) as caught:
            maker(call)
        assert caught.value.errno == (errno.EINVAL if "dup3" in call else errno.EBADF)
