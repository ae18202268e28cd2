"""Threads that a body starts while it runs in a thread of the program, inline: they are inside the task as well.

In a worker all threads are. In the program there are others beside them, and who has started a thread cannot be asked
later: so as long as there is an inline executor, ``Thread.start`` notes it. Were such a thread taken for one of the
program, its calls of tasks would wait for the body to end, which may be waiting for the thread.
"""

from __future__ import annotations

import functools
import threading
from typing import Any, NamedTuple

from penstock.executors.early import followed
from penstock.executors.inside import inside_task, threads_of_bodies

__all__ = ["forget_threads", "note_threads", "stop_noting_threads"]


class _Body(NamedTuple):
    """What a thread knows of the body that has started it."""

    #: the thread that carries out the task
    carrier: threading.Thread
    #: takes outputs that are handed over early
    release: Any


class _Noting:
    """How many inline executors there are."""

    executors = 0


_plain_start = threading.Thread.start


@functools.wraps(_plain_start)
def _noted_start(thread: threading.Thread) -> None:
    if inside_task():
        starter = threading.current_thread()
        known = threads_of_bodies.get(starter)
        threads_of_bodies[thread] = _Body(starter if known is None else known.carrier, followed())
    try:
        _plain_start(thread)
    except BaseException:
        threads_of_bodies.pop(thread, None)
        raise


def note_threads() -> None:
    """From now on, threads that bodies start are known."""
    global _plain_start
    _Noting.executors += 1
    if _Noting.executors == 1 and threading.Thread.start is not _noted_start:
        _plain_start = threading.Thread.start
        threading.Thread.start = _noted_start  # type: ignore[assignment, method-assign]


def stop_noting_threads() -> None:
    """An inline executor is closed; after the last, starting a thread is as it was."""
    _Noting.executors -= 1
    if _Noting.executors == 0 and threading.Thread.start is _noted_start:
        threading.Thread.start = _plain_start  # type: ignore[method-assign]


def forget_threads() -> None:
    """The body that this thread carried out is over: what threads of it are left are like any others."""
    if threads_of_bodies:
        carrier = threading.current_thread()
        for thread, body in list(threads_of_bodies.items()):
            if body.carrier is carrier:
                threads_of_bodies.pop(thread, None)
