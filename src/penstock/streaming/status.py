"""How a workflow stands: steps, files, edges of the graph, waits. Made by the server, shown by ``status`` and ``run``.

The values travel as JSON over the control socket. Nothing here is kept while nobody asks.
"""

from __future__ import annotations

import os
import time

from msgspec import Struct

from penstock.streaming.flow import EdgeStatus, edge_accounts, files_made, read_by
from penstock.streaming.server import Server
from penstock.streaming.table import Flag, Info
from penstock.streaming.watchdog import told_briefly, told_wait, waits_of

__all__ = ["FileStatus", "Status", "StepStatus", "how_it_stands"]

#: files that are listed; the others are counted
_LISTED = 200


class StepStatus(Struct):
    """A step."""

    name: str
    state: str
    processes: list[int]
    how: str = ""
    #: what its programs wait for, briefly
    waits: list[str] = []


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
    files = files_made(server)
    waits = list(waits_of(server))
    status = Status(
        name=server.workflow.name,
        root=root,
        placement=placement,
        pid=os.getpid(),
        elapsed=time.monotonic() - began,
        steps=[
            StepStatus(
                app.name,
                app.state.name.lower(),
                sorted(pid for pid, _ in app.processes),
                app.how,
                [told_briefly(wait, info) for wait, info in waits if wait.app == app.number],
            )
            for app in server.apps.values()
        ],
        edges=edge_accounts(server, files),
        files=[_file(server, one) for one in sorted(files, key=_interest)[:_LISTED]],
        born=len(files),
        committed=sum(1 for one in files if one.flags & Flag.COMMITTED),
        written=sum(one.high for one in files),
        waits=[told_wait(server, wait, info) for wait, info in waits],
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
    return min((read_by(server, info, app.number) for app in reading), default=info.high)
