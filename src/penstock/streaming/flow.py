"""What flows from step to step: an account for each edge of the graph, and when one has changed enough to be told.

``status`` and the bars of ``run`` ask for the account of the moment; the event log is told of changes, so that the bars
can be drawn again later.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import Struct

from penstock.streaming.happenings import EdgeFlowed, Tell
from penstock.streaming.rules.graph import edges
from penstock.streaming.server import Server
from penstock.streaming.table import Flag, Info

__all__ = ["EdgeStatus", "FlowNotes", "edge_accounts", "files_made", "read_by"]

#: of the server's time, the part that may be spent on looking at files for the log: one in so many
_SHARE = 20


class EdgeStatus(Struct):
    """What flows from one step to another."""

    producer: str
    consumer: str
    files: int = 0
    #: bytes of files that the one makes and the other is declared to read
    written: int = 0
    read: int = 0


def files_made(server: Server) -> list[Info]:
    """The files that this run has made and that still bear their names."""
    made = server.table.iterate(Flag.BORN, Flag.REMOVED | Flag.MOVED)
    return [info for info in made if not info.flags & Flag.DIRECTORY]


def read_by(server: Server, info: Info, app: int) -> int:
    """How much of a file a step has read while it was written."""
    return min(info.high, server.table.consumed_by(info.slot, app))


def edge_accounts(server: Server, files: list[Info]) -> list[EdgeStatus]:
    """One for each edge of the graph; files that are read by a step without being declared are not on any."""
    found = [EdgeStatus(edge.producer, edge.consumer) for edge in edges(server.workflow.steps)]
    for info in files:
        if not info.consumers:
            continue
        for account in found:
            producer, consumer = server.apps[account.producer], server.apps[account.consumer]
            if info.producers & producer.bit and info.consumers & consumer.bit:
                account.files += 1
                account.written += info.high
                account.read += info.high if consumer.ended else read_by(server, info, consumer.number)
    return found


class FlowNotes:
    """Tells of each edge on which more has flowed since it was told of last."""

    def __init__(self, server: Server, tell: Tell, clock: Callable[[], float] = time.monotonic) -> None:
        self._server = server
        self._tell = tell
        self._clock = clock
        self._told = {(edge.producer, edge.consumer): (0, 0, 0) for edge in edges(server.workflow.steps)}
        self._next = 0.0

    def look(self) -> None:
        """Tell what is new, if the last look did not take too long for another one to be due."""
        began = self._clock()
        if self._told and began >= self._next:
            self.look_last()
            self._next = began + _SHARE * (self._clock() - began)

    def look_last(self) -> None:
        """Tell what is new, whatever that takes."""
        for account in edge_accounts(self._server, files_made(self._server)) if self._told else ():
            amounts = (account.files, account.written, account.read)
            if self._told[account.producer, account.consumer] != amounts:
                self._told[account.producer, account.consumer] = amounts
                self._tell(EdgeFlowed(account.producer, account.consumer, *amounts))
