"""What a task may require, and what a node offers."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["Node", "Requirements"]


class Requirements(Struct, frozen=True, array_like=True):
    """What one attempt of a task takes from a node while it runs."""

    #: computing units held from launch to end
    cpus: int = 1
    #: bytes of main memory reserved for the attempt
    memory: int = 0
    #: properties a node must have, as ``(name, value)``; compared without regard to case
    properties: tuple[tuple[str, str], ...] = ()


class Node(Struct, frozen=True, array_like=True):
    """A machine that runs tasks."""

    name: str
    cpus: int
    memory: int
    #: what ``Requirements.properties`` is matched against
    properties: tuple[tuple[str, str], ...] = ()
