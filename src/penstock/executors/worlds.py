"""MPI worlds as a node executor sees them: workers that serve whatever lane has a task of their size.

A world whose task is over stays for a few seconds, idle and without a lane, for the next task that wants one like it:
to start one costs some hundred times as much as a message.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import msgspec

from penstock.executors.pools import Seat, Worker
from penstock.executors.thread_limits import thread_limits
from penstock.executors.wire import SETUP, RankFailed, Setup, Spent, Up, WorldStarted, setup_text
from penstock.model.worlds import World

__all__ = ["KeptWorld", "WorldObserver", "Worlds", "surplus"]

#: idle worlds at a time, at most
_WORLDS = 4


WorldObserver = Callable[[int, int, Up | None], None]
Hosts = tuple[tuple[str, int], ...]


class KeptWorld(Worker):
    """A worker process that keeps an MPI world."""

    def __init__(self, number: int, seat: Seat, world: World) -> None:
        # Not of a lane: no task that computes finds it by its outfit.
        super().__init__(number, seat, (0, ()))
        self.world = world
        self.ranks = world.processes
        #: why it takes no more tasks
        self.said: Spent | None = None


class Worlds:
    """The worlds of a node executor; which of them are idle, the executor keeps with other idle processes."""

    def __init__(
        self,
        setup: Setup,
        idle: dict[Worker, float],
        most_ranks: int,
        retire: Callable[[Worker], None],
        observe: WorldObserver,
    ) -> None:
        self._setup = setup
        self._idle = idle
        self._most_ranks = most_ranks
        self._retire = retire
        #: told of worlds: lane, ranks, and what their keeper said, or nothing at their end
        self._observe = observe

    def idle_one(self, wanted: World) -> KeptWorld | None:
        """An idle world that is as wanted, the last used first."""
        for idle in reversed(self._idle):
            if isinstance(idle, KeptWorld) and idle.world == wanted:
                return idle
        return None

    def environment(self, world: World, hosts: Hosts) -> dict[str, str]:
        """The environment of a world that runs on these nodes."""
        names, count = ",".join(name for name, _ in hosts), str(len(hosts))
        return {
            SETUP: setup_text(msgspec.structs.replace(self._setup, world=world)),
            **thread_limits(world.threads),
            "PENSTOCK_HOSTNAMES": names,
            "PENSTOCK_NUM_NODES": count,
            "COMPSS_HOSTNAMES": names,
            "COMPSS_NUM_NODES": count,
        }

    def rest(self, world: Worker) -> None:
        """A world's task is over: keep it for the next, or let it go."""
        if world.spent:
            self._retire(world)
            return
        world.seat.active = None
        self._idle[world] = time.monotonic()
        for other in surplus(self._idle, max(self._most_ranks, world.ranks)):
            del self._idle[other]
            self._retire(other)

    def told(self, worker: Worker, message: WorldStarted | RankFailed | Spent) -> None:
        """What a keeper said besides how tasks ended."""
        if isinstance(message, Spent):
            assert isinstance(worker, KeptWorld)
            worker.spent, worker.said = True, message
        else:
            self._observe(worker.seat.lane, worker.ranks, message)

    def ended(self, worker: Worker | None) -> None:
        """A process is gone, and perhaps it kept a world."""
        if isinstance(worker, KeptWorld):
            # The reason is told with the end: until then its lane may have seen other worlds end.
            if worker.said is not None:
                self._observe(worker.seat.lane, worker.ranks, worker.said)
            self._observe(worker.seat.lane, worker.ranks, None)


def surplus(idle: Iterable[Worker], ranks: int) -> list[KeptWorld]:
    """Idle worlds that are too many, the oldest first: more worlds, or more ranks in all, than should be kept."""
    worlds = [worker for worker in idle if isinstance(worker, KeptWorld)]
    kept = 0
    for index, world in enumerate(reversed(worlds)):
        kept += world.ranks
        if index >= _WORLDS or (index and kept > ranks):
            return worlds[: len(worlds) - index]
    return []
