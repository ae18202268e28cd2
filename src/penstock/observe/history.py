"""The story of a run as attempts: when each was ready, sent, begun and over, on which lane, and what it waited for.

records ── history_reader ──▶ History ──▶ waiting, critical_path ──▶ analysis
"""

from __future__ import annotations

from msgspec import Struct

from penstock.observe import records
from penstock.observe.task_failures import TaskFailure

__all__ = ["Attempt", "DeviceHistory", "Group", "History", "NodeHistory"]


class Group(Struct, frozen=True):
    """What attempts have in common that are alike for the scheduler."""

    name: str
    cpus: int = 1
    memory: int = 0
    io: bool = False
    learned: bool = False
    bandwidth: float = 0.0
    capacity: int = 0
    #: where they were placed in the end; empty: on none
    layer: str = ""
    #: of a gang; each holds ``cpus`` and ``memory``
    processes: int = 1
    countable: tuple[tuple[str, int], ...] = ()


class Attempt(Struct, gc=False):
    """One attempt of a task, or a piece of a map. Times in seconds since the start of the run."""

    task: int
    #: position of its call among all calls
    call: int
    group: Group
    submitted: float
    #: when all that it reads existed, or the attempt before it had failed
    ready: float = 0.0
    #: when it was sent to its lane
    launched: float = -1.0
    #: when it had its place: those before it on the lane were over
    taken: float = 0.0
    #: when its body began
    begun: float = 0.0
    ended: float = -1.0
    node: str = ""
    lane: int = -1
    #: 1 for the first attempt of a task
    number: int = 1
    #: bytes of its outputs
    bytes: int = 0
    ok: bool = False
    #: seconds of its running in which it fetched data from other nodes
    fetching: float = 0.0
    #: nodes of a gang, and its processes there; empty: one process on ``node``
    hosts: tuple[tuple[str, int], ...] = ()
    #: calls in it: 1, or the length of a piece of a map
    count: int = 1
    #: position in ``History.attempts`` of the one whose end, or early output, made it ready; -1: nobody's
    after: int = -1

    def holdings(self) -> tuple[tuple[str, int], ...]:
        """How many processes it has on which nodes."""
        return self.hosts or ((self.node, 1),)


class NodeHistory(Struct):
    """A node, and when it was there."""

    name: str
    cpus: int
    memory: int = 0
    io_executors: int = 0
    storage: list[records.Layer] = []
    joined: float = 0.0
    #: None: it stayed
    lost: float | None = None
    countable: list[tuple[str, int]] = []


class DeviceHistory(Struct):
    """What was asked of a device."""

    node: str
    layer: str
    limit: float
    mount: str
    capacity: int | None = None
    #: integral of the bandwidth that attempts held
    held: float = 0.0
    #: seconds in which attempts held some
    busy: float = 0.0
    #: bytes that finished attempts wrote through it, and that were moved to it
    written: int = 0
    moved: int = 0
    #: how it stands, since when
    used: float = 0.0
    running: int = 0
    since: float = 0.0


class History(Struct):
    """A whole run."""

    #: those that ran, in the order of their ends; last those that never ended
    attempts: list[Attempt] = []
    nodes: dict[str, NodeHistory] = {}
    #: by node and layer; the node of a shared one is empty
    devices: dict[tuple[str, str], DeviceHistory] = {}
    #: times of calls, in order
    calls: list[float] = []
    #: when the program waited for tasks: since when, until when
    waits: list[tuple[float, float]] = []
    #: when outputs were handed over early, in order, and the positions of the attempts that did
    releases: list[tuple[float, int]] = []
    #: when room was taken or given back: time, device, bytes stored
    stored: list[tuple[float, tuple[str, str], int]] = []
    #: when a learned constraint was chosen (True) or had to be learned anew: time, function, layer
    learned: list[tuple[float, str, str, bool]] = []
    started: records.RunStarted | None = None
    ended: records.RunEnded | None = None
    #: when the last attempt was over, and the time of the last record
    makespan: float = 0.0
    end: float = 0.0
    failed: int = 0
    #: the first of those that failed
    failures: list[TaskFailure] = []
    cancelled: int = 0
    retried: int = 0
    dropped: int = 0
