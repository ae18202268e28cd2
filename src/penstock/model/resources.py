"""What a task may require, and what a node offers: units, memory, layers of storage, and what else can be counted."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["GPUS", "Auto", "Node", "Requirements", "StorageLayer"]

#: the countable resource whose units are told apart: a process sees only those that its task holds
GPUS = "gpus"


class Auto(Struct, frozen=True, array_like=True):
    """A bandwidth constraint that is learned while the program runs: bounded if it has a ``delta``."""

    #: bytes per second
    least: float = 0.0
    most: float = 0.0
    #: factor from one value to the next; 0 where the values are found from the device
    delta: float = 0.0

    @property
    def bounded(self) -> bool:
        return self.delta > 0


# Ready sets look tasks up by it several times for each.
class Requirements(Struct, frozen=True, array_like=True, cache_hash=True):
    """What one attempt of a task takes from a node while it runs."""

    #: computing units held from launch to end; 0 for an I/O task
    cpus: int = 1
    #: bytes of main memory reserved for the attempt
    memory: int = 0
    #: properties a node must have, as ``(name, value)``; compared without regard to case
    properties: tuple[tuple[str, str], ...] = ()
    #: an I/O task: it is served by the node's I/O pool
    io: bool = False
    #: bytes per second of one storage device, reserved for the attempt
    bandwidth: float = 0.0
    #: bytes of a storage layer that the attempt will fill
    capacity: int = 0
    #: the bandwidth is learned; ``bandwidth`` is 0 then
    auto: Auto | None = None
    #: what other implementations of the task take: any of them will do as well
    or_else: tuple[Requirements, ...] = ()
    #: a gang if more than one: that many processes, each with ``cpus`` and ``memory``, on one node or several
    processes: int = 1
    #: how many of them a node may hold at most; 0 is without limit
    processes_per_node: int = 0
    #: how many it takes of what is only counted, as ``(name, number)``, in the order of the names
    countable: tuple[tuple[str, int], ...] = ()
    #: the files that it writes are of use during the run only, all of them
    temporary: bool = False

    @property
    def layered(self) -> bool:
        """Whether it says what it needs of storage, and so is placed on a layer."""
        return bool(self.bandwidth or self.capacity or self.auto is not None)


class StorageLayer(Struct, frozen=True, array_like=True):
    """A storage device, or one that several nodes share, as a node sees it."""

    name: str
    #: absolute path of the directory through which it is used
    mount: str
    #: bytes per second that it can bear
    bandwidth: float
    #: bytes that tasks may fill; ``None`` is without limit
    capacity: int | None = None
    #: CPUs near the device; empty if any will do
    cpus: tuple[int, ...] = ()
    #: one budget for all nodes that list it
    shared: bool = False
    #: an emulated device: aggregate bytes per second at this many concurrent streams, in between along straight lines
    curve: tuple[tuple[int, float], ...] = ()
    #: aggregate bytes per second that were measured at this many concurrent streams, for simulations of the device
    measured: tuple[tuple[int, float], ...] = ()
    #: bytes of its capacity that earlier runs have filled, and left
    taken: int = 0
    #: it may lose what lies on it (memory, a folder that is emptied): only files of use during the run may
    temporary: bool = False
    #: I/O workers hold what they write there down to the bandwidth that their task holds
    enforced: bool = False


class Node(Struct, frozen=True, array_like=True):
    """A machine that runs tasks."""

    name: str
    cpus: int
    memory: int
    #: what ``Requirements.properties`` is matched against
    properties: tuple[tuple[str, str], ...] = ()
    #: fastest first
    storage: tuple[StorageLayer, ...] = ()
    #: I/O tasks at a time
    io_executors: int = 0
    #: how many there are of what is only counted: GPUs, licences
    countable: tuple[tuple[str, int], ...] = ()
