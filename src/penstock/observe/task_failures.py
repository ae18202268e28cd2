"""A failure as views and reports show it."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["TaskFailure"]


class TaskFailure(Struct, frozen=True):
    """A task that failed for good."""

    task: int
    name: str
    kind: str
    message: str
