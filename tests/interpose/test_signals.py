"""Signals: EINTR where read(2) would say it, restarts where it would restart, handlers that open files."""

from __future__ import annotations

import errno
import os
import select
import signal
import time
from collections.abc import Callable

import pytest
from tests.interpose.stage import Puppet, Stage

from penstock.streaming.table_records import WaitKind

MAKE = "os.O_WRONLY|os.O_CREAT|os.O_TRUNC"
READ = "call('read', {fd}, ctypes.create_string_buffer(4), 4)"


def interrupted(puppet: Puppet) -> int | None:
    """The errno of the call that signals interrupt. One that comes a moment before the sleep is not seen by it."""
    for _ in range(500):
        os.kill(puppet.pid, signal.SIGUSR1)
        if select.select([puppet.answers], [], [], 0.02)[0]:
            break
    with pytest.raises(OSError) as caught:
        puppet.answer()
    return caught.value.errno


def test_a_handler_interrupts_a_read(stage: Stage) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    maker(f"!out = os.open('out', {MAKE})")
    fd = taker("os.open('out', os.O_RDONLY)")
    taker("!import signal\nsignal.signal(signal.SIGUSR1, lambda *_: None)")
    taker.blocks(READ.format(fd=fd), WaitKind.RANGE)
    assert interrupted(taker) == errno.EINTR
    maker("os.write(out, b'data')")
    assert taker(f"os.read({fd}, 4)") == b"data"


def test_a_restarting_handler_does_not(stage: Stage) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    maker(f"!out = os.open('out', {MAKE})")
    fd = taker("os.open('out', os.O_RDONLY)")
    taker(
        "!import signal\nsignal.signal(signal.SIGUSR1, lambda *_: None)\nsignal.siginterrupt(signal.SIGUSR1, False)\n"
        "signal.signal(signal.SIGINT, signal.SIG_DFL)"
    )
    taker.blocks(READ.format(fd=fd), WaitKind.RANGE)
    os.kill(taker.pid, signal.SIGUSR1)
    time.sleep(0.05)  # nothing may happen: there is no event to wait for
    assert stage.table.waits()
    maker("os.write(out, b'data')")
    assert taker.answer() == 4


def test_calls_that_nothing_interrupts_natively_wait_on(stage: Stage) -> None:
    maker, taker = stage.puppet("maker"), stage.puppet("taker")
    maker(f"!out = os.open('out', {MAKE})")
    taker("!import signal\nsignal.signal(signal.SIGUSR1, lambda *_: None)")
    taker.blocks("os.stat('out').st_size", WaitKind.COMMITTED)
    os.kill(taker.pid, signal.SIGUSR1)
    time.sleep(0.05)
    maker("os.write(out, b'data') and os.close(out)")
    assert taker.answer() == 4


def test_an_interrupted_open_says_so(stage: Stage) -> None:
    taker = stage.puppet("taker")
    taker("!import signal\nsignal.signal(signal.SIGUSR1, lambda *_: None)")
    taker.blocks("call('open', b'out', 0)", WaitKind.BORN)
    assert interrupted(taker) == errno.EINTR


def test_a_deadly_signal_ends_a_waiting_program(stage: Stage) -> None:
    taker = stage.puppet("taker")
    taker("!import signal\nsignal.signal(signal.SIGINT, signal.SIG_DFL)")
    taker.blocks("os.stat('out')", WaitKind.BORN)
    os.kill(taker.pid, signal.SIGINT)
    assert taker.process.wait(60) == -signal.SIGINT


def test_handlers_that_open_write_and_close(stage: Stage, program: Callable[..., str]) -> None:
    """A timer fires 2,000 times a second into a program that opens, writes and renames; its handler does too."""
    assert stage.run("maker", [program("writes_in_handlers")]).startswith("good")
