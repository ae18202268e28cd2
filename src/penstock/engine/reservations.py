"""A reservation: nodes that are drained for a task which needs much and is passed over by tasks that need less.

    dispatch ── what waits, now and then ──▶ watch ── passed over for too long ──▶ Reservation ── Kept ──▶ nodes

Whatever fits is started, so a task that needs several units, much memory or several nodes could wait as long as narrow
ones keep coming: each takes what another gave back. The first such task that was passed over for ``PATIENCE`` gets a
reservation: on the nodes where enough will be free soonest, what becomes free is kept for it until it starts. Others
use what is left beside it. There is one reservation at a time, for the highest priority, then for the oldest.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nsmallest
from itertools import islice
from math import inf
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from penstock.engine.nodes import Hosts, Kept, NodeRecord, most_processes
from penstock.model.resources import Requirements

if TYPE_CHECKING:
    from penstock.engine.state import State, TaskRecord

__all__ = ["PATIENCE", "Reservations", "look", "note_start", "review"]

#: Seconds for which a task may be passed over. Draining a node costs about half a narrow task's time on each of its
#: units, so it should not happen for gaps that close by themselves: where tasks take milliseconds, a node is free of
#: them many times in that span. And where they take minutes, a few seconds more are nothing beside the time that
#: draining takes. So it need not depend on how long tasks take.
PATIENCE = 5.0
#: seconds between two looks at what waits
_EVERY = PATIENCE / 4
#: kinds of tasks watched at most: the first in order
_WATCHED = 8
#: nodes that are looked at; those that have anything free first. Enough to find a good one, however many there are
_CANDIDATES = 64
#: nodes of these of which it is estimated when enough will be free: those where the least is missing
_SHORTLIST = 8


class Reservation(Struct, frozen=True):
    """Which nodes are kept for tasks with certain requirements, and for how many processes."""

    need: Requirements
    nodes: Hosts


class _Watch(Struct):
    """The first task of certain requirements, which does not fit anywhere."""

    task: TaskRecord
    since: float
    #: serials up to this one were ready then: their tasks have waited as long
    mark: int
    #: somebody who comes later in the order, and needs less, was started meanwhile
    passed: bool = False


class Reservations:
    """What is reserved, and who may be next."""

    def __init__(self) -> None:
        self.current: Reservation | None = None
        self.watched: dict[Requirements, _Watch] = {}
        #: no look is due before
        self.next_look = 0.0


def note_start(state: State, task: TaskRecord) -> None:
    """A task is about to be started; to be called while anybody is watched."""
    reservations, need = state.reservations, task.requirements
    for watched, watch in reservations.watched.items():
        if not watch.passed and _comes_after(task, watch.task) and _exceeds(watched, need):
            watch.passed = True
    current = reservations.current
    if current is not None and current.need == need:
        _release(state)
        reservations.next_look = state.now  # its successor may have waited as long


def review(state: State) -> None:
    """Give a reservation up for which nobody waits any more, or whose node is lost."""
    current = state.reservations.current
    assert current is not None
    nodes = state.ledger.nodes
    lost = any(nodes.get(node.name) is not node for node, _ in current.nodes)
    if lost or not any(head.requirements == current.need for head in _heads(state)):
        _release(state)


def look(state: State) -> None:
    """See who waits, and reserve for who has been passed over for too long. All that fits has been started."""
    reservations, now = state.reservations, state.now
    reservations.next_look = now + _EVERY
    heads = [head for head in _heads(state) if state.ledger.is_possible(head.requirements)]
    top = max((head.priority for head in heads), default=0)
    demanding = [head for head in heads if _exceeds(head.requirements, Requirements())]
    before, reservations.watched = reservations.watched, {}
    for head in nsmallest(_WATCHED, demanding, key=lambda head: (-head.priority, head.serial)):
        watch = before.get(head.requirements)
        if watch is None or head.serial > watch.mark:
            watch = _Watch(head, now, state.serials)
        watch.task = head
        reservations.watched[head.requirements] = watch
    current = reservations.current
    if current is not None:
        watch = reservations.watched.get(current.need)
        if watch is not None and watch.task.priority == top:
            return
        _release(state)
    ripe = [
        watch
        for watch in reservations.watched.values()
        if watch.passed and now - watch.since >= PATIENCE and watch.task.priority == top
    ]
    if ripe:
        _reserve(state, min(ripe, key=lambda watch: watch.task.serial).task)


def _heads(state: State) -> Iterator[TaskRecord]:
    yield from state.ready.heads()  # type: ignore[misc]  # the engine's ready set holds its records
    yield from state.gangs.heads()


def _comes_after(task: TaskRecord, other: TaskRecord) -> bool:
    return (-task.priority, task.serial) > (-other.priority, other.serial)


def _exceeds(need: Requirements, other: Requirements) -> bool:
    """Whether a place that has room for the other may have none for the one, nor for an alternative to it."""
    more = (
        need.processes > other.processes
        or need.cpus > other.cpus
        or need.memory > other.memory
        or any(count > dict(other.countable).get(name, 0) for name, count in need.countable)
        or not set(other.properties) >= set(need.properties)
    )
    return more and all(_exceeds(alternative, other) for alternative in need.or_else)


# --- reserving --------------------------------------------------------------------------------------------------------


def _reserve(state: State, task: TaskRecord) -> None:
    need = task.requirements
    hosts = _gang_hosts(state, need) if need.processes > 1 else _single_host(state, need)
    if hosts:
        state.reservations.current = Reservation(need, hosts)
        for node, processes in hosts:
            state.ledger.keep(node, Kept(need, processes))


def _release(state: State) -> None:
    current, state.reservations.current = state.reservations.current, None
    assert current is not None
    for node, _ in current.nodes:
        if state.ledger.nodes.get(node.name) is node:
            state.ledger.keep(node, None)


def _single_host(state: State, need: Requirements) -> Hosts:
    """The node where enough will be free soonest, as far as is known."""
    suitable = islice(_suitable(state, replace(need, or_else=())), _CANDIDATES)
    likely = nsmallest(_SHORTLIST, suitable, key=lambda node: (_missing(node, need), node.index))
    if not likely:
        return []
    return [(min(likely, key=lambda node: (_seconds_until(state, node, need), _missing(node, need), node.index)), 1)]


def _gang_hosts(state: State, need: Requirements) -> Hosts:
    """The nodes with the most room now; each is kept for as many processes as it can hold."""
    nodes: list[tuple[int, int, NodeRecord]] = []
    held = 0
    for node in _suitable(state, need):
        most = most_processes(node.node, need)
        held += most
        nodes.append((-node.room_for(need), -most, node))
        if held >= need.processes and len(nodes) >= _CANDIDATES:
            break
    hosts: Hosts = []
    wanted = need.processes
    for _, negative, node in sorted(nodes, key=lambda item: (item[0], item[1], item[2].index)):
        if wanted:
            hosts.append((node, min(-negative, wanted)))
            wanted -= hosts[-1][1]
    return [] if wanted else hosts


def _suitable(state: State, need: Requirements) -> Iterator[NodeRecord]:
    """The nodes that could host such a task, those that have anything free first."""
    ledger = state.ledger
    yield from (node for node in ledger.open if node.is_suitable(need))
    yield from (node for node in ledger.nodes.values() if node not in ledger.open and node.is_suitable(need))


def _missing(node: NodeRecord, need: Requirements) -> float:
    """How much of what a task needs is not free on a node, as a share of the node."""
    cpus = max(0, need.cpus - node.free_cpus) / node.node.cpus
    memory = max(0, need.memory - node.free_memory) / max(1, node.node.memory)
    counted = [
        max(0, count - len(node.free_countable[name])) / total
        for name, count in need.countable
        for total in [dict(node.node.countable)[name]]
    ]
    return max(cpus, memory, *counted)


def _seconds_until(state: State, node: NodeRecord, need: Requirements) -> float:
    """When enough is free on a node if every attempt takes as long as its function does on the average."""
    missing = {"cpus": need.cpus - node.free_cpus, "memory": need.memory - node.free_memory}
    missing |= {f"countable {name}": count - len(node.free_countable[name]) for name, count in need.countable}
    for seconds, held in sorted(_ends(state, node), key=lambda end: end[0]):
        if max(missing.values()) <= 0:
            return 0.0
        missing["cpus"] -= held.cpus
        missing["memory"] -= held.memory
        for name, count in held.countable:
            if f"countable {name}" in missing:
                missing[f"countable {name}"] -= count
        if max(missing.values()) <= 0:
            return seconds
    return inf


def _ends(state: State, node: NodeRecord) -> Iterator[tuple[float, Requirements]]:
    """Seconds until each attempt on a node ends, and what it then gives back; of a gang, of one process at least."""
    running = [lane.queue[0] for lane in node.lanes if lane.queue]
    for task in (*running, *node.guests.values()):
        expected = state.expected(task.call.spec)
        lane = task.lane
        assert lane is not None
        yield (inf if expected is None else max(0.0, expected - (state.now - lane.since))), task.requirements
