"""One server among several: the life of its ties to the others, from joining to leaving, and the death of one of them.

    journal ──▶ Telling ──▶ Feed ──▶ Serving ══ HTTP ══▶ Follower ──▶ Hearing ──▶ shared table    (names and ends)
    waits ──▶ Pulling ══ HTTP ══▶ Serving of the home ──▶ local copy ──▶ shared table             (bytes)

``Hosting`` starts it beside the server where there is more than one node.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import os
from collections.abc import Callable

import msgspec

from penstock.streaming.nodes.feed import Feed, Follower
from penstock.streaming.nodes.fetching import Source
from penstock.streaming.nodes.hearing import Hearing
from penstock.streaming.nodes.peers import NodeSettings
from penstock.streaming.nodes.pulling import Pulling
from penstock.streaming.nodes.records import HeardLeaving, Joined, Leaving, Needs, RemoteRecord, quoted
from penstock.streaming.nodes.remote_file import RemoteFile
from penstock.streaming.nodes.replicas import Replicas
from penstock.streaming.nodes.serving import Serving
from penstock.streaming.nodes.telling import Telling, instance_of
from penstock.streaming.rules.blob import compiled
from penstock.streaming.server import Server
from penstock.streaming.table import Note, Record

__all__ = ["Federation"]

#: seconds between the errors of those who wait for a node that died and the end of the workflow
_GRACE = 0.5
#: seconds in which the others take the last words
_LAST_WORDS = 2.0
_LOOK = 0.05


class Federation:
    """The ties of this node to the others."""

    def __init__(self, settings: NodeSettings, server: Server, replicas: Replicas, stop: Callable[[str], None]) -> None:
        self._settings = settings
        self._server = server
        self._stop = stop
        own = settings.own.name
        names = tuple(node.name for node in settings.nodes)
        joined = Joined(own, _digest(server, settings))
        self._replicas = replicas
        self._feed = Feed(joined)
        self._serving = Serving(
            server.table,
            self._replicas,
            self._feed,
            settings.token,
            server.read_journal,
            self._any_lives,
            self._caught_up,
        )
        self._pulling = Pulling(
            server.table, settings.prefetch, self._sources_of, self._arrived, self._lost, self._to_hear
        )
        self._hearing = Hearing(server, self._replicas, self._pulling, names, own, settings.prefetch, stop)
        self._telling = Telling(server, self._replicas, self._feed, self._is_remote)
        self._telling.failed_elsewhere = self._hearing.failed_elsewhere
        others = [node for node in settings.nodes if node.name != own]
        self._followers = {
            node.name: Follower(
                node,
                settings.token,
                joined,
                settings.lost_after,
                functools.partial(self._met, node.name),
                functools.partial(self._heard, node.name),
                functools.partial(self._ended, node.name),
            )
            for node in others
        }
        self._sources = {
            node.name: Source(node, settings.token, self._followers[node.name].caught_up) for node in others
        }
        #: nodes that may still want something
        self._needing: set[str] = set()
        self._leaving = False
        #: nodes that know that this one leaves
        self._informed: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []

    # --- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen, and look for the others; they may come in any order."""
        host, port = self._settings.listen or (self._settings.own.host, self._settings.own.port)
        await self._serving.start(host, port)
        self._server.on_record = self._record
        self._server.on_judged = self._judged
        self._server.on_lost = self._telling.look_at_everything
        self._server.final_elsewhere = self._is_final
        for one in self._followers.values():
            task = asyncio.create_task(one.follow())
            task.add_done_callback(functools.partial(self._follower_done, one))
            self._tasks.append(task)

    def _follower_done(self, follower: Follower, task: asyncio.Task[None]) -> None:
        """Whoever does not follow any more would wait for ever."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._stop(f"what node {follower.node} says was not understood: {error!r}")

    async def leave(self, hurry: asyncio.Event) -> None:
        """Tell the others, and serve them for as long as they need something; ``hurry`` ends that."""
        self._leaving = True
        self._judged()
        while self._pulling.busy and not hurry.is_set():
            await asyncio.sleep(_LOOK)
        self._judged()
        self._feed.append(Leaving())
        while self._needed and not hurry.is_set():
            await asyncio.sleep(_LOOK)
        deadline = asyncio.get_running_loop().time() + _LAST_WORDS
        while not self._feed.all_told and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(_LOOK / 5)

    @property
    def _needed(self) -> bool:
        return any(self._may_need(name, one) for name, one in self._followers.items())

    def _may_need(self, name: str, follower: Follower) -> bool:
        """Whether a node wants something, or could have meant to say so before it heard that this one leaves.

        One that follows this node counts even if this one has not reached it yet.
        """
        is_there = not follower.gone and (follower.joined.is_set() or self._feed.is_followed_by(name))
        return is_there and (name in self._needing or name not in self._informed)

    async def close(self) -> None:
        """Hang up, and remove the copies of what belongs to others."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._pulling.close()
        for source in self._sources.values():
            source.close()
        await self._serving.close()
        self._replicas.clear()

    def look(self) -> None:
        """Now and then: what was missed because a note was lost."""
        self._pulling.look()
        self._judged()

    def is_kept_elsewhere(self, name: str) -> bool:
        """Whether what bears that name here is at most a copy of a file that another node keeps."""
        file = self._pulling.files.get(name)
        return self._replicas.is_copy(name) and (file is None or self._hearing.home(file) != self._settings.own.name)

    @property
    def traffic(self) -> str:
        """What went between this node and the others."""
        requests = sum(source.requests for source in self._sources.values())
        received = sum(source.received for source in self._sources.values())
        sent = self._serving.sent
        return f"node {self._settings.own.name}: fetched {received} bytes in {requests} requests, sent {sent} bytes"

    # --- from this node ---------------------------------------------------------------------------------------------

    def _record(self, record: Record) -> None:
        match record.kind:
            case Note.WAITING:
                self._pulling.look()
            case Note.HELLO:
                self._hearing.ran(self._settings.own.name, record.app, instance_of(record))
            case Note.CLOSED:
                self._hearing.written_here(record.slot)
            case Note.MOVED | Note.REMOVED if record.pid != os.getpid():
                self._follow(record)
        self._telling.record(record)

    def _follow(self, record: Record) -> None:
        """A program of this node has changed or removed a name, maybe of another node's file."""
        source = self._server.table.info(record.slot)
        target = self._server.table.info(record.a) if record.kind is Note.MOVED else None
        if source is not None and target is not None:
            self._hearing.moved_here(source, target)
        elif source is not None:
            self._hearing.removed_here(source)

    def _judged(self) -> None:
        lives = not self._leaving and any(app.lives for app in self._server.apps.values())
        self._telling.report(needs=lives or self._pulling.busy)

    def _any_lives(self, apps: int) -> bool:
        return any(app.lives and apps & app.bit for app in self._server.apps.values())

    def _is_remote(self, name: str) -> bool:
        return name in self._pulling.files or self._replicas.is_copy(name)

    def _is_final(self, name: str) -> bool:
        file = self._pulling.files.get(name)
        return file is not None and file.size is not None

    # --- from the others --------------------------------------------------------------------------------------------

    async def _met(self, node: str) -> str:
        """Make sure that the two have directories of their own: else one would remove the other's files as copies."""
        with self._replicas.marked() as mark:
            if not await self._sources[node].sees(mark):
                return ""
        return f"uses the same directory as {self._settings.own.name}: give each node one of its own, on a local disk"

    def _heard(self, node: str, record: RemoteRecord) -> None:
        match record:
            case Needs(needs):
                (self._needing.add if needs else self._needing.discard)(node)
            case HeardLeaving(leaver):
                if leaver == self._settings.own.name:
                    self._informed.add(node)
            case Leaving():
                self._server.read_journal()  # programs that have just come need something too: that is told first
                self._feed.append(HeardLeaving(node))
            case _:
                self._hearing.apply(node, record)

    def _sources_of(self, file: RemoteFile) -> list[Source]:
        names = [file.maker] if file.only_from_maker else dict.fromkeys([self._hearing.home(file), file.maker])
        return [self._sources[name] for name in names if name in self._sources and not self._followers[name].gone]

    def _to_hear(self, file: RemoteFile) -> dict[str, str]:
        """Its maker may not know yet of the name that another node has given to it, or know another file by it."""
        if file.mover in ("", file.maker):
            return {}
        heard = len(self._feed) if file.mover == self._settings.own.name else self._followers[file.mover].received
        return {"Penstock-Heard": f"{quoted(file.mover)} {heard}"}

    async def _caught_up(self, node: str, records: int) -> None:
        if node in self._followers:
            await self._followers[node].caught_up(records)

    def _arrived(self, file: RemoteFile) -> None:
        self._hearing.arrived(file)
        self._judged()

    def _lost(self, file: RemoteFile, why: str) -> None:
        self._server.warn(f"{file.name} cannot be fetched: {why}")
        self._hearing.lose([file], f"made it, but {why}")

    def _ended(self, node: str, reason: str) -> None:
        """A node left in order (no reason), or died."""
        self._needing.discard(node)
        told = str(self._followers[node].node)
        gone = {name for name, one in self._followers.items() if one.gone}
        if not reason:
            self._hearing.node_ended(node, f"made it on node {told}, which has left", gone)
            return
        self._hearing.node_ended(node, f"ran on node {told}, which {reason}", gone)
        if not self._leaving:
            text = f"node {told} {reason}; the workflow cannot go on without it"
            asyncio.get_running_loop().call_later(_GRACE, self._stop, text)


def _digest(server: Server, settings: NodeSettings) -> str:
    """Of all that the nodes must agree on."""
    nodes = [(node.name, node.port) for node in settings.nodes]
    parts = [compiled(server.workflow), msgspec.json.encode(server.workflow.homes), msgspec.json.encode(nodes)]
    return hashlib.blake2b(b"\0".join(parts), digest_size=16).hexdigest()
