"""MPI worlds: how many ranks carry out an attempt together, and what starts them."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["World"]


class World(Struct, frozen=True, array_like=True):
    """The MPI processes that carry out an attempt; worlds that are equal may take each other's tasks."""

    #: ranks
    processes: int
    #: name or path of the program that starts them
    runner: str
    #: threads that numerical libraries may use in each
    threads: int = 1
