"""When is a step over? Bookkeeping of the programs of each step; pure, so that the server only has to report.

A step that Penstock started, or that ``exec`` started, is over when its commands have ended and none of its processes
lives. One that users start with the library alone is over when as many programs as it has instances came, and all
are gone.
"""

from __future__ import annotations

import enum

from msgspec import Struct

from penstock.streaming.language.model import Step

__all__ = ["App", "Elsewhere", "State"]


class State(enum.IntEnum):
    """The life of a step; the numbers are those of the shared table."""

    COMING = 0
    RUNS = 1
    OVER = 2
    FAILED = 3


class Elsewhere(Struct, frozen=True):
    """What another node says of a step."""

    #: programs that ended there
    came: int
    lives: bool


class App:
    """One step, and its processes on this node."""

    def __init__(self, step: Step, number: int) -> None:
        self.step = step
        self.name = step.name
        self.number = number
        self.state = State.COMING
        #: exit status, or minus a signal, of the end
        self.status = 0
        #: how it failed, in words
        self.how = ""
        #: processes that live, by number and time of start
        self.processes: set[tuple[int, int]] = set()
        #: commands that are known to run, by a key of whoever started them
        self._running: set[object] = set()
        self._ended = 0
        self._came = 0
        self._wrapped = False
        #: by name of the node, where there are several
        self.elsewhere: dict[str, Elsewhere] = {}

    @property
    def bit(self) -> int:
        """Its place in masks of apps."""
        return 1 << self.number

    @property
    def ended(self) -> bool:
        """Whether nothing will come from it any more."""
        return self.state in (State.OVER, State.FAILED)

    @property
    def lives(self) -> bool:
        """Whether anything of it runs on this node."""
        return bool(self._running or self.processes)

    @property
    def came(self) -> int:
        """How many of its programs have run on this node; those that live count only where nobody says how they end."""
        return self._ended if self._wrapped else self._came

    def command_began(self, key: object) -> None:
        """A command of this step was started by somebody who will say how it ends."""
        self._wrapped = True
        self._running.add(key)
        self._runs()

    def command_ended(self, key: object, status: int, how: str) -> None:
        """That command ended."""
        if key in self._running:
            self._running.discard(key)
            self._ended += 1
            if status:
                self.fail(status, how)

    def program_came(self) -> None:
        """A program of the step was started, by nobody who is in the workflow too."""
        self._came += 1
        self._runs()

    def process_came(self, process: tuple[int, int]) -> None:
        """A process of the step lives."""
        self.processes.add(process)
        self._runs()

    def process_gone(self, process: tuple[int, int], *, killed: bool) -> None:
        """A process is gone. ``killed``: one that nobody in the workflow waits for, and that said no goodbye."""
        self.processes.discard(process)
        if killed and not self._wrapped:
            self.fail(-9, "was killed")

    def fail(self, status: int, how: str) -> None:
        """Something of the step ended badly; the first is what counts."""
        if not self.how:
            self.status, self.how = status, how

    def _runs(self) -> None:
        if self.state is State.COMING:
            self.state = State.RUNS

    def judge(self, *, last_call: bool = False) -> bool:
        """Whether the step is over just now. At ``last_call`` nobody will come any more, only those who live count."""
        if self.ended or self.lives:
            return False
        if not last_call and not self.how:
            if any(node.lives for node in self.elsewhere.values()):
                return False
            if self.came + sum(node.came for node in self.elsewhere.values()) < self.step.instances:
                return False
        self.state = State.FAILED if self.how else State.OVER
        return True
