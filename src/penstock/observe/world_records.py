"""Records of MPI worlds; records.py lists them among the others."""

from __future__ import annotations

from penstock.observe.event import Event

__all__ = ["RankFailed", "WorldEnded", "WorldStarted"]


class WorldStarted(Event):
    """All ranks of an MPI task are there; the process behind the lane keeps them."""

    node: str
    lane: int
    processes: int
    #: what it took to start them
    seconds: float


class WorldEnded(Event):
    """The ranks of an MPI world are gone: it was idle for long, spent, or killed."""

    node: str
    lane: int
    processes: int
    #: why it takes no more tasks, if a task or a failure was the reason
    reason: str = ""


class RankFailed(Event):
    """A rank did not deliver, and its world was killed."""

    task: int
    attempt: int
    node: str
    rank: int
    message: str
