"""What tasks wait for, in words: by the engine of a run that goes on, by readers of a log of one that is over."""

from __future__ import annotations

from msgspec import Struct

__all__ = [
    "BLOCKED",
    "DATA",
    "END",
    "EXECUTOR",
    "GANG",
    "LEARNING",
    "MEMORY",
    "PAUSE",
    "START",
    "STORE",
    "TURN",
    "UNITS",
    "Wait",
]

DATA = "data of other tasks"
UNITS = "computing units"
GANG = "a place for all processes of a gang"
MEMORY = "memory"
EXECUTOR = "an I/O executor"
LEARNING = "a learning phase"
TURN = "their turn among I/O tasks"
BLOCKED = "a node that can host it"
END = "the fork server to say that a worker process has ended"
START = "a worker process to start"
PAUSE = "the end of a pause before their next attempt"
STORE = "room in shared memory for their data"


class Wait(Struct, frozen=True):
    """Tasks of one function that wait for one thing."""

    function: str
    count: int
    reason: str
    #: who holds it, or has to bring it about; empty if that is nobody in particular
    holder: str = ""

    @property
    def words(self) -> str:
        """The wait as part of a sentence."""
        text = f"{self.count} {self.function} {'waits' if self.count == 1 else 'wait'} for {self.reason}"
        return f"{text} ({self.holder})" if self.holder else text
