"""MPI worlds as a node executor sees them: workers that serve whatever lane has a task of their size.

A world whose task is over stays for a few seconds, idle and without a lane, for the next task that wants one like it:
to start one costs some hundred times as much as a message.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from penstock.executors.pools import Seat, Worker, thread_limits
from penstock.executors.worker import SETUP, Setup
from penstock.model.worlds import World

__all__ = ["KeptWorld", "surplus", "surroundings"]

#: idle worlds at a time, at most
_WORLDS = 4


class KeptWorld(Worker):
    """A worker process that keeps an MPI world."""

    def __init__(self, number: int, seat: Seat, world: World) -> None:
        # Not of a lane: no task that computes finds it by its units.
        super().__init__(number, seat, 0)
        self.world = world
        #: it has said that it takes no more tasks
        self.spent = ""


def surroundings(setup: Setup, world: World, hosts: tuple[tuple[str, int], ...]) -> dict[str, str]:
    """The environment of a world that runs on these nodes."""
    names = ",".join(name for name, _ in hosts)
    count = str(len(hosts))
    return {
        SETUP: msgspec.json.encode(msgspec.structs.replace(setup, world=world)).decode(),
        **thread_limits(world.threads),
        "PENSTOCK_HOSTNAMES": names,
        "PENSTOCK_NUM_NODES": count,
        "COMPSS_HOSTNAMES": names,
        "COMPSS_NUM_NODES": count,
    }


def surplus(idle: Iterable[Worker], ranks: int) -> list[KeptWorld]:
    """Idle worlds that are too many, the oldest first: more worlds, or more ranks in all, than should be kept."""
    worlds = [worker for worker in idle if isinstance(worker, KeptWorld)]
    kept = 0
    for index, world in enumerate(reversed(worlds)):
        kept += world.world.processes
        if index >= _WORLDS or (index and kept > ranks):
            return worlds[: len(worlds) - index]
    return []
