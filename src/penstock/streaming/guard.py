"""A second process that outlives Penstock by a moment: if Penstock is killed, it ends the steps and tidies up.

It is forked before anything else is started and waits at the end of a pipe. When the pipe breaks without a farewell,
Penstock was killed by a signal that nobody can catch: the process groups of the steps are ended, the user's directory
is put back, tables are removed. If the guard is killed too, the next start does the tidying.

There is no moment at which it knows too little. It is told of a directory before that is put aside; a process that it
has not been told of yet, or that has left its group, bears the guard's mark in its environment; and one that does not
bear it yet, between fork and exec, holds the pipe open. The pipe breaks while Penstock still has its locks and counts
as alive: so the guard waits for the end of the process as well.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time

from penstock.errors import ConfigError
from penstock.streaming.processes import marked, signals_held

__all__ = ["Guard"]

#: names the guard in the environment of all that it ends
_MARK = "_PENSTOCK_GUARD"
#: seconds between asking and killing
_GRACE = 1.0


class Guard:
    """Started by ``Guard()``, in a process that has no other threads yet."""

    def __init__(self) -> None:
        mark = os.urandom(8).hex()
        #: belongs into the environment of everything that is to end with Penstock
        self.environment = {_MARK: mark}
        reading, self._pipe = os.pipe()
        penstock = os.pidfd_open(os.getpid())
        with signals_held():
            self._pid = os.fork()
            if self._pid == 0:
                _stand_by(penstock, reading, self._pipe, mark)
        os.close(reading)
        os.close(penstock)

    def cover(self, group: int) -> None:
        """End this process group if Penstock is killed."""
        self._say(f"+{group}")

    def forget(self, group: int) -> None:
        """The group is gone; its number may soon belong to somebody else."""
        self._say(f"-{group}")

    def mind(self, root: str) -> None:
        """Put this directory back if Penstock is killed; said before it is put aside."""
        self._say(f"@{root}")

    def _say(self, text: str) -> None:
        with contextlib.suppress(OSError):  # a guard that is gone is missed only if Penstock is killed too
            os.write(self._pipe, os.fsencode(text) + b"\0")

    def close(self) -> None:
        """All is well."""
        self._say("done")
        os.close(self._pipe)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


def _stand_by(penstock: int, reading: int, writing: int, mark: str) -> None:
    """The life of the guard; does not return."""
    try:
        os.close(writing)
        os.setsid()
        # Who reads Penstock's output must see its end when Penstock ends.
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        text = b""
        while piece := os.read(reading, 65536):
            text += piece
        words = [os.fsdecode(word) for word in text.split(b"\0") if word]
        if "done" not in words:
            gone = select.poll()
            gone.register(penstock, select.POLLIN)
            gone.poll()
            _tidy_up(words, f"{_MARK}={mark}")
    finally:
        os._exit(0)


def _tidy_up(words: list[str], mark: str) -> None:
    groups: dict[int, None] = {}
    for word in words:
        if word[0] == "+":
            groups[int(word[1:])] = None
        elif word[0] == "-":
            groups.pop(int(word[1:]), None)
    for number in (signal.SIGTERM, signal.SIGCONT, signal.SIGKILL):
        if number == signal.SIGKILL and (any(map(_exists, groups)) or marked(mark)):
            time.sleep(_GRACE)
        for group in groups:
            with contextlib.suppress(OSError):
                os.killpg(group, number)
        for pid in marked(mark):
            with contextlib.suppress(OSError):
                if os.getpgid(pid) not in groups:
                    os.kill(pid, number)
    from penstock.streaming.folders import lock_directory, remove_remains
    from penstock.streaming.placement import repair

    for root in (word[1:] for word in words if word[0] == "@"):
        with contextlib.suppress(ConfigError, OSError), lock_directory(root):  # who has it by now has repaired it
            repair(root)
    remove_remains()


def _exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except OSError:
        return False
    return True
