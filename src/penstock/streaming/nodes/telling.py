"""From the journal of this node to its feed: what the other nodes have to know.

Births, commits, removals and new names of what is made here, processes that came, steps and how they fare. What was
made elsewhere is told by that node, except when a program here removes or renames it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from penstock.streaming.nodes.feed import Feed
from penstock.streaming.nodes.records import AppReport, Born, Committed, Moved, Needs, Ran, Removed, quoted
from penstock.streaming.nodes.replicas import Replicas
from penstock.streaming.server import Server
from penstock.streaming.table import Flag, Info, Note, Record

__all__ = ["Telling", "instance_of"]


def instance_of(hello: Record) -> int | None:
    """Which process of its step says hello: the 3 of "app:3"."""
    number = hello.b & 0xFFFFFFFF
    return number - 1 if number else None


class Telling:
    """Writes the feed."""

    def __init__(self, server: Server, replicas: Replicas, feed: Feed, is_remote: Callable[[str], bool]) -> None:
        self._server = server
        self._replicas = replicas
        self._feed = feed
        self._is_remote = is_remote
        self._told_born: set[int] = set()
        self._told_final: set[int] = set()
        self._reports: dict[int, AppReport] = {}
        self._ran: set[tuple[int, int | None]] = set()
        self._needs: bool | None = None
        #: steps whose failure another node has told
        self.failed_elsewhere: set[int] = set()

    def record(self, record: Record) -> None:
        """One note of the journal."""
        match record.kind:
            case Note.HELLO:
                self._came(record.app, instance_of(record))
            case Note.COMMITTED:
                self._final(record.slot)
            case _ if record.pid == os.getpid():
                pass  # this server itself, at another node's word
            case Note.BORN:
                self._born(record.slot, record.app, record.a)
            case Note.REMOVED:
                self._removed(record.slot)
            case Note.MOVED:
                self._moved(record.slot, record.a)

    def look_at_everything(self) -> None:
        """Records were lost: tell what has not been told."""
        for info in self._server.table.iterate(Flag.BORN, Flag.REMOVED | Flag.MOVED | Flag.REMOTE):
            if info.slot not in self._told_born:
                kind = 1 if info.flags & Flag.DIRECTORY else 2 if info.flags & Flag.SYMLINK else 0
                makers = info.makers if info.flags & Flag.DIRECTORY else info.producers
                self._born(info.slot, makers.bit_length() - 1 if makers else 63, kind)
            if info.flags & Flag.COMMITTED:
                self._final(info.slot)

    # --- names --------------------------------------------------------------------------------------------------------

    def _born(self, slot: int, app: int, what: int) -> None:
        info = self._server.table.info(slot)
        if info is None or info.name == "." or self._is_remote(info.name):
            return
        mode, target = self._looks(info.name)
        self._told_born.add(slot)
        self._told_final.discard(slot)
        self._feed.append(Born(quoted(info.name), what, app, mode, target))

    def _looks(self, name: str) -> tuple[int, str]:
        """Permissions, and the target of a symbolic link as it is right on every node."""
        try:
            path = self._replicas.path(name)
            about = os.lstat(path)
            if not stat.S_ISLNK(about.st_mode):
                return stat.S_IMODE(about.st_mode), ""
            target = os.readlink(path)
        except (OSError, ValueError):
            return 0o644, ""
        if target.startswith(self._replicas.root + "/"):
            target = os.path.relpath(target, os.path.dirname(path))
        return 0o777, quoted(target)

    def _final(self, slot: int) -> None:
        info = self._server.table.info(slot)
        if info is None or slot in self._told_final or not self._is_ours(info):
            return
        try:
            about = os.stat(self._replicas.path(info.name), follow_symlinks=False)
        except (OSError, ValueError):
            return  # removed since
        self._told_final.add(slot)
        self._feed.append(
            Committed(quoted(info.name), about.st_size, stat.S_IMODE(about.st_mode), about.st_mtime_ns),
        )

    def _is_ours(self, info: Info) -> bool:
        """A regular file of this node. When a directory is final, each node finds out by itself."""
        return not info.flags & (Flag.DIRECTORY | Flag.SYMLINK) and not self._is_remote(info.name)

    def _removed(self, slot: int) -> None:
        info = self._server.table.info(slot)
        if info is not None:
            self._told_born.discard(slot)
            self._told_final.discard(slot)
            self._feed.append(Removed(quoted(info.name)))

    def _moved(self, old: int, new: int) -> None:
        source, target = self._server.table.info(old), self._server.table.info(new)
        if source is not None and target is not None:
            self._told_final.discard(new)
            self._feed.append(Moved(quoted(source.name), quoted(target.name)))

    # --- steps --------------------------------------------------------------------------------------------------------

    def _came(self, app: int, instance: int | None) -> None:
        if (app, instance) not in self._ran:
            self._ran.add((app, instance))
            self._feed.append(Ran(app, instance))

    def report(self, *, needs: bool) -> None:
        """Tell how steps fare here, where that has changed."""
        for app in self._server.apps.values():
            how = "" if app.number in self.failed_elsewhere else app.how
            report = AppReport(app.number, app.came, app.lives, app.status if how else 0, how)
            if report != self._reports.get(app.number, AppReport(app.number, 0, False, 0, "")):
                self._reports[app.number] = report
                self._feed.append(report)
        if needs != self._needs:
            self._needs = needs
            self._feed.append(Needs(needs))
