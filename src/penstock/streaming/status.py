"""How a workflow stands: steps, files, edges of the graph, waits. Made by the server, shown by ``status`` and ``run``.

The values travel as JSON over the control socket. Nothing here is kept while nobody asks.
"""

from __future__ import annotations

import os
import time

from msgspec import Struct

from penstock.streaming.rules.graph import Edge, edges
from penstock.streaming.server import Server
from penstock.streaming.table import Flag, Info
from penstock.streaming.watchdog import told_wait

__all__ = ["EdgeStatus", "FileStatus", "Status", "StepStatus", "how_it_stands"]

#: files that are listed; the others are counted
_LISTED = 200


class StepStatus(Struct):
    """A step."""

    name: str
    state: str
    processes: list[int]
    how: str = ""


class FileStatus(Struct):
    """A file of the workflow."""

    name: str
    producers: list[str]
    written: int
    #: what every declared reader has read
    consumed: int
    committed: bool
    writers: int
    waiting: int
    rule: str = ""


class EdgeStatus(Struct):
    """What flows from one step to another."""

    producer: str
    consumer: str
    files: int = 0
    #: bytes of files that the one makes and the other is declared to read
    written: int = 0
    read: int = 0


class Status(Struct):
    """A workflow, now."""

    name: str
    root: str
    placement: str
    pid: int
    #: seconds since it began
    elapsed: float
    steps: list[StepStatus]
    edges: list[EdgeStatus]
    #: those that are not final first, then the latest
    files: list[FileStatus]
    born: int = 0
    committed: int = 0
    written: int = 0
    #: bytes written that a declared reader has not read
    in_flight: int = 0
    waits: list[str] = []
    warnings: list[str] = []


def how_it_stands(server: Server, root: str, placement: str, began: float) -> Status:
    """Look at everything once."""
    files = [
        one for one in server.table.iterate(Flag.BORN, Flag.REMOVED | Flag.MOVED) if not one.flags & Flag.DIRECTORY
    ]
    status = Status(
        name=server.workflow.name,
        root=root,
        placement=placement,
        pid=os.getpid(),
        elapsed=time.monotonic() - began,
        steps=[
            StepStatus(app.name, app.state.name.lower(), sorted(pid for pid, _ in app.processes), app.how)
            for app in server.apps.values()
        ],
        edges=_edges(server, files),
        files=[_file(server, one) for one in sorted(files, key=_interest)[:_LISTED]],
        born=len(files),
        committed=sum(1 for one in files if one.flags & Flag.COMMITTED),
        written=sum(one.high for one in files),
        waits=_waits(server),
        warnings=server.warnings[-20:],
    )
    status.in_flight = sum(max(0, one.high - _least_read(server, one)) for one in files if one.consumers)
    return status


def _interest(info: Info) -> tuple[bool, int]:
    return bool(info.flags & Flag.COMMITTED), -info.born_ns


def _file(server: Server, info: Info) -> FileStatus:
    rule = server.rule_of(info)
    return FileStatus(
        name=info.name,
        producers=server.names_in(info.producers),
        written=info.high,
        consumed=_least_read(server, info),
        committed=bool(info.flags & Flag.COMMITTED),
        writers=info.writers,
        waiting=info.waiters,
        rule=rule.spelled if rule is not None else "",
    )


def _least_read(server: Server, info: Info) -> int:
    """What all declared readers that still run have read."""
    reading = [app for app in server.apps.values() if info.consumers & app.bit and not app.ended]
    return min((_read_by(server, info, app.number) for app in reading), default=info.high)


def _read_by(server: Server, info: Info, app: int) -> int:
    return min(info.high, server.table.consumed_by(info.slot, app))


def _edges(server: Server, files: list[Info]) -> list[EdgeStatus]:
    """One for each edge of the graph; files that are read by a step without being declared are not on any."""
    graph: list[Edge] = edges(server.workflow.steps)
    found = [EdgeStatus(edge.producer, edge.consumer) for edge in graph]
    for info in files:
        if not info.consumers:
            continue
        for status in found:
            producer, consumer = server.apps[status.producer], server.apps[status.consumer]
            if info.producers & producer.bit and info.consumers & consumer.bit:
                status.files += 1
                status.written += info.high
                status.read += info.high if consumer.ended else _read_by(server, info, consumer.number)
    return found


def _waits(server: Server) -> list[str]:
    told = []
    for wait in server.table.waits():
        info = server.table.info(wait.slot)
        if info is not None:
            told.append(told_wait(server, wait, info))
    return told
