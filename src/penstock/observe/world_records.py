"""Records of MPI worlds; records.py lists them among the others, and says what all of them have in common."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["RankFailed", "WorldEnded", "WorldStarted"]


class _Base(Struct, tag_field="event", gc=False, omit_defaults=True):
    t: float


class WorldStarted(_Base, tag="world_started"):
    """All ranks of an MPI task are there; the process behind the lane keeps them."""

    node: str
    lane: int
    processes: int
    #: what it took to start them
    seconds: float


class WorldEnded(_Base, tag="world_ended"):
    """The ranks of an MPI world are gone: it was idle for long, spent, or killed."""

    node: str
    lane: int
    processes: int
    #: why it takes no more tasks, if a task or a failure was the reason
    reason: str = ""


class RankFailed(_Base, tag="rank_failed"):
    """A rank did not deliver, and its world was killed."""

    task: int
    attempt: int
    node: str
    rank: int
    message: str
