"""The processes of a workflow, watched by the kernel: the end of each is noticed, however it ends.

A pidfd becomes readable when its process is gone, be it a child or not, and never means another process that got the
same number later. The server hears of a process from the shared table and hands it here; steps are handed here too.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
from collections.abc import Callable, Iterable, Iterator

__all__ = [
    "Watcher",
    "adopt_orphans",
    "collect_orphans",
    "descendants",
    "die_with_parent",
    "ended",
    "is_alive",
    "marked",
    "signal_all",
    "signals_held",
    "started_at",
]

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
#: what others send to have a program end
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
#: looked up here, since a child between fork and exec must not ask the loader for anything
_prctl = ctypes.CDLL(None, use_errno=True).prctl


def started_at(pid: int) -> int:
    """When a process started, in the kernel's ticks since boot, or 0 if there is none; with the number, who it is."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return 0
    # The name, in parentheses, may contain anything.
    fields = text[text.rindex(b")") + 2 :].split()
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])


def is_alive(pid: int, started: int) -> bool:
    """Whether this very process still runs; a zombie does not."""
    return pid > 0 and started_at(pid) == started != 0


def ended(status: int) -> str:
    """How a process ended, in words, from its exit status or minus its signal."""
    if status >= 0:
        return f"exited with status {status}"
    name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
    return f"was killed by {name}"


def adopt_orphans() -> None:
    """Become the parent of all that descends from this process, so that nothing it started can get away."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    """Called in a child between fork and exec: it is killed when its parent is, even by a signal nobody can catch.

    Only for a parent without other threads.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """Meanwhile, signals that ask for an end wait; a process that is forked here never hears any.

    Without this, one that comes right after a fork makes a second Penstock of the child, which unwinds the stack of the
    first and tidies up on its behalf.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Watcher:
    """Calls back, in the event loop, when processes end."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        #: one descriptor per request: two parties may watch one process
        self._watched: set[int] = set()

    def watch(self, pid: int, started: int, gone: Callable[[int], None]) -> None:
        """Call ``gone(pid)`` once when the process that started at this tick is no more, at once if it is not there."""
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            self._loop.call_soon(gone, pid)
            return
        # The number may have been given to another process before it was pinned down.
        if started and started_at(pid) != started:
            os.close(descriptor)
            self._loop.call_soon(gone, pid)
            return
        self._watched.add(descriptor)
        self._loop.add_reader(descriptor, self._ended, descriptor, pid, gone)

    def _ended(self, descriptor: int, pid: int, gone: Callable[[int], None]) -> None:
        self._forget(descriptor)
        gone(pid)

    def _forget(self, descriptor: int) -> None:
        self._watched.discard(descriptor)
        self._loop.remove_reader(descriptor)
        os.close(descriptor)

    def close(self) -> None:
        """Stop watching all of them."""
        for descriptor in list(self._watched):
            self._forget(descriptor)


def _parents() -> dict[int, tuple[int, bytes]]:
    """Parent and state of every process."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    text = file.read()
            except OSError:
                continue  # it ended meanwhile
            state, parent = text[text.rindex(b")") + 2 :].split(None, 2)[:2]
            found[int(name)] = (int(parent), state)
    return found


def descendants() -> set[int]:
    """The numbers of all processes that descend from this one."""
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in _parents().items():
        children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    waiting = [os.getpid()]
    while waiting:
        new = [pid for pid in children.get(waiting.pop(), ()) if pid not in found]
        found.update(new)
        waiting.extend(new)
    return found


def marked(variable: str) -> list[int]:
    """The processes that were started with this, ``NAME=VALUE``, in their environment; as far as we may look."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                if variable.encode() in file.read().split(b"\0"):
                    found.append(int(name))
    return found


def signal_all(number: int, groups: Iterable[int], spared: set[int]) -> None:
    """Send a signal to process groups, and to every descendant of this process that left them and is not spared."""
    reached = set(groups)
    for group in reached:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
    for pid in descendants() - spared:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getpgid(pid) not in reached:
                os.kill(pid, number)


def collect_orphans(known: set[int]) -> None:
    """Collect children that ended and that nobody else here waits for: orphans that this process adopted."""
    try:
        if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return  # nobody has ended, as nearly always
    except ChildProcessError:
        return
    own = os.getpid()
    for pid, (parent, state) in _parents().items():
        if parent == own and state == b"Z" and pid not in known:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
