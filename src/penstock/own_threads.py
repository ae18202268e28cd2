"""Threads of ours in the program's process: signals that are meant for the program are not theirs to take.

The kernel gives a signal to any thread that does not block it. It prefers the main thread, but not while the process
is stopped (Ctrl-Z): after that the first to run takes it, and Python, which calls handlers in the main thread, would
not wake that up from a wait or a sleep. What a user's callback starts from here must not inherit that.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

__all__ = ["OwnThread", "as_the_program"]

P = ParamSpec("P")
R = TypeVar("R")


@functools.cache
def _mask() -> tuple[Callable[[int, Any], object], int, int, tuple[int, ...]]:
    """What changes the signals that a thread takes, with the words for less and for more, and those of the program."""
    import signal  # when there is a thread: it takes longer than most of our modules

    ending = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    told = (signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2)
    return signal.pthread_sigmask, signal.SIG_BLOCK, signal.SIG_UNBLOCK, (*ending, *told)


class OwnThread(threading.Thread):
    """A daemon that works beside the program; its name begins with ``penstock-``."""

    def __init__(self, name: str, target: Callable[..., Any], *args: Any) -> None:
        super().__init__(target=target, args=args, name=f"penstock-{name}", daemon=True)

    def run(self) -> None:
        change, block, _, signals = _mask()
        change(block, signals)
        super().run()


def as_the_program(function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Call something of the user's, or what starts a process, so that what it starts can be sent signals as ever."""
    if type(threading.current_thread()) is not OwnThread:
        return function(*args, **kwargs)
    change, block, let_through, signals = _mask()
    change(let_through, signals)
    try:
        return function(*args, **kwargs)
    finally:
        change(block, signals)
