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
from penstock.streaming.table import Born as What
from penstock.streaming.table import Flag, Info, Note, Record

__all__ = ["Telling", "instance_of"]


def instance_of(hello: Record) -> int | None:
    """Which process of its step says hello: the 3 of "app:3"."""
    number = hello.b & 0xFFFFFFFF
    return number - 1 if number else None


def _is_heard(record: Record) -> bool:
    """Whether this server itself changed the table, at another node's word."""
    return record.pid == os.getpid()


def _kind(info: Info) -> What:
    if info.flags & Flag.DIRECTORY:
        return What.DIRECTORY
    return What.SYMLINK if info.flags & Flag.SYMLINK else What.FILE


class Telling:
    """Writes the feed."""

    def __init__(self, server: Server, replicas: Replicas, feed: Feed, is_remote: Callable[[str], bool]) -> None:
        self._server = server
        self._replicas = replicas
        self._feed = feed
        self._is_remote = is_remote
        #: slots that the other nodes know of, from here or from elsewhere
        self._known: set[int] = set()
        self._told_final: set[int] = set()
        #: slots that were final before, with a file that was removed since; the new one is not final until it is closed
        self._made_again: set[int] = set()
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
            case Note.BORN:
                self._born(record)
            case Note.MOVED:
                self._moved(record)
            case Note.REMOVED:
                self._removed(record)
            case Note.CLOSED if not record.b:
                self._final(record.slot)

    def look_at_everything(self) -> None:
        """Records were lost: tell what has not been told."""
        for slot in sorted(self._known, reverse=True):  # what lies in a directory before it
            gone = self._server.table.info(slot)
            if gone is not None and gone.flags & (Flag.MOVED | Flag.REMOVED):
                self._replaced(slot, gone.name)
        for info in self._server.table.iterate(Flag.BORN, Flag.REMOVED | Flag.MOVED | Flag.REMOTE):
            if info.slot not in self._known:
                makers = info.makers if info.flags & Flag.DIRECTORY else info.producers
                self._tell_birth(info, makers.bit_length() - 1 if makers else 63, _kind(info))
            self._final(info.slot)

    # --- names --------------------------------------------------------------------------------------------------------

    def _born(self, record: Record) -> None:
        info = self._server.table.info(record.slot)
        if info is None or info.name == "." or record.slot in self._known:
            return  # known: it came by a change of names, which was told
        self._told_final.discard(record.slot)
        if info.flags & Flag.COMMITTED and not info.flags & Flag.MOVED:
            self._made_again.add(record.slot)
        if _is_heard(record):
            self._known.add(record.slot)
        else:
            self._tell_birth(info, record.app, record.a)

    def _tell_birth(self, info: Info, app: int, what: int) -> None:
        if self._is_remote(info.name):  # a reader who waits for it has found its copy
            self._known.add(info.slot)
            return
        mode, target = self._looks(self._where(info).name)
        if what & What.SYMLINK and not target:
            return  # it has another name by now, by which it is told, or is gone
        self._known.add(info.slot)
        self._feed.append(Born(quoted(info.name), what, app, mode, target))

    def _where(self, info: Info) -> Info:
        """Where a file is by now: what is told of it by an earlier name holds for the file."""
        while info.flags & Flag.MOVED and info.moved_to is not None:
            found = self._server.table.info(info.moved_to)
            if found is None:
                break
            info = found
        return info

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
        if slot in self._told_final:
            return
        info = self._server.table.info(slot)
        if info is None or not info.flags & Flag.COMMITTED or not self._is_ours(info):
            return
        try:
            about = os.stat(self._replicas.path(self._where(info).name), follow_symlinks=False)
        except (OSError, ValueError):
            return  # removed since
        self._told_final.add(slot)
        self._made_again.discard(slot)
        self._feed.append(
            Committed(quoted(info.name), about.st_size, stat.S_IMODE(about.st_mode), about.st_mtime_ns),
        )

    def _is_ours(self, info: Info) -> bool:
        """A regular file of this node. When a directory is final, each node finds out by itself."""
        return not info.flags & (Flag.DIRECTORY | Flag.SYMLINK) and not self._is_remote(info.name)

    def _removed(self, record: Record) -> None:
        self._known.discard(record.slot)
        self._told_final.discard(record.slot)
        self._made_again.discard(record.slot)
        info = self._server.table.info(record.slot)
        if info is not None and not _is_heard(record):
            self._feed.append(Removed(quoted(info.name)))

    def _moved(self, record: Record) -> None:
        """A file goes on by another name, and takes the place of what had that name."""
        old, new = record.slot, record.a
        source, target = self._server.table.info(old), self._server.table.info(new)
        if source is None or target is None:
            return
        self._told_final -= {old, new}
        self._made_again -= {old, new}
        if old in self._known:
            self._known.discard(old)
            self._known.add(new)
            if not (_is_heard(record) or record.b):  # what lies in a directory moves with it, everywhere
                self._feed.append(Moved(quoted(source.name), quoted(target.name), record.app))
        else:
            self._replaced(new, target.name)
            self._tell_birth(target, record.app, _kind(source))
        if not target.writers:
            self._final(new)  # where it has replaced a final file nothing more will be said

    def _replaced(self, slot: int, name: str) -> None:
        if slot in self._known:
            self._known.discard(slot)
            self._feed.append(Removed(quoted(name)))

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
                for slot in list(self._made_again) if not report.lives else ():
                    self._final(slot)
        if needs != self._needs:
            self._needs = needs
            self._feed.append(Needs(needs))
