"""Tasks that hang in ways that only killing their process ends."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import threading
from collections.abc import Callable

from tests.faults.programs import Tally

from penstock import task


def hang_in_a_regular_expression() -> None:
    re.match(r"(a+)+$", "a" * 64 + "b")


def hang_holding_the_interpreter() -> None:
    ctypes.PyDLL(None).sleep(1000)


def hang_deaf_to_signals() -> None:
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    while True:
        signal.pause()


def hang_in_a_thread() -> None:
    thread = threading.Thread(target=signal.sigwait, args=({signal.SIGUSR1},))
    thread.start()
    thread.join()


def hang_stopped() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


HANGS = [
    hang_in_a_regular_expression,
    hang_holding_the_interpreter,
    hang_deaf_to_signals,
    hang_in_a_thread,
    hang_stopped,
]


@task(timeout=600)
def hang(how: Callable[[], None], tally: Tally) -> None:
    print("hanging", flush=True)
    tally.mark()
    how()
