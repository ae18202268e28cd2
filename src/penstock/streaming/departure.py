"""Which files of a workflow leave it, and how: permanent ones to their place, temporary ones for good.

``Hosting`` calls it: at each commit, now and then while programs run, and at the end. ``drain`` does the work.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Protocol

from penstock.streaming.changes import Changes, is_unchanged
from penstock.streaming.drain import Drain, punch, remove_files
from penstock.streaming.happenings import FileDelivered, Tell
from penstock.streaming.language.model import Workflow
from penstock.streaming.rules.coverage import Rules
from penstock.streaming.server import Server
from penstock.streaming.table import Flag, Info, WaitKind
from penstock.units import format_size

__all__ = ["Departure", "InMemory"]

#: room comes back in portions of the limit, as PS_GRAIN in native/interpose/table.h says
_PORTIONS = 8
#: a permanent file that is final here
_FINAL = Flag.BORN | Flag.COMMITTED | Flag.PERMANENT_FILE
_DELIVERABLE = _FINAL | Flag.DIRECTORY | Flag.REMOTE
#: part of the memory that may be full before the user hears of it
_NEARLY_FULL = 0.9
#: times that memory which has not filled up is passed over: others may have given back what files of ours take now
_PASSED_OVER = 10


class InMemory(Protocol):
    """A workflow's directory in memory: ``PrivateView`` or ``Placement``."""

    #: the directory as its programs see it; where of it lies what they made; where the user's own is
    files: str
    source: str
    home: str
    #: where copies lie that have not got their names, or empty
    staging: str

    def changes(self) -> Changes:
        """What programs have done to the user's directory."""


class Departure:
    """Files on their way out. ``placed`` is where they are in memory, None if they are in place."""

    def __init__(
        self, workflow: Workflow, root: str, placed: InMemory | None, rescue: str, capacity: int | None, tell: Tell
    ) -> None:
        self._rules = Rules(workflow)
        self._files = placed.files if placed else root
        self._placed, self._rescue = placed, rescue
        self._drain: Drain | None = None
        self._server: Server | None = None
        self._warned = False
        self._passed_over = 0
        #: whether another node has a file, and this one at most a copy; a node that has left has delivered its own
        self.is_kept_elsewhere: Callable[[str], bool] = lambda name: False
        if placed:
            self._drain = Drain(
                placed.source, placed.home, lambda name, size: tell(FileDelivered(name, size)), placed.staging
            )
            self._used_before, free = _used_and_free(os.path.dirname(placed.source))
            self._capacity = free if capacity is None else min(capacity, free)

    def attach(self, server: Server) -> None:
        """Hear of commits from now on."""
        self._server = server
        if server.table.limit:
            server.on_consumed = self._consumed
        if self._drain is not None:
            server.on_commit = self._committed

    def _committed(self, info: Info) -> None:
        assert self._drain is not None
        # What is homed on another node is kept there.
        if info.flags & Flag.PERMANENT_FILE and not info.flags & (Flag.DIRECTORY | Flag.REMOTE):
            self._drain.submit(info.name)

    def _consumed(self, slot: int) -> None:
        """Give back what all readers are done with; a limit says that they read once, and forwards."""
        assert self._server is not None
        table = self._server.table
        info = table.info(slot)
        if info is None or info.flags & (Flag.REMOVED | Flag.MOVED) or not info.consumers:
            return
        portion = table.limit // _PORTIONS
        if info.flags & Flag.READS_BACK:
            self._tell_of_no_limit(info.name)
        elif table.taken + portion > table.room:
            self._give_back_all()
        elif info.consumed - info.punched >= portion:
            self._give_back(info)

    def _give_back(self, info: Info) -> None:
        assert self._server is not None
        table = self._server.table
        if not (end := table.spare(info.slot)):
            return
        with contextlib.ExitStack() as opened:
            descriptor = -1
            with contextlib.suppress(OSError):
                flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                descriptor = os.open(os.path.join(self._files, info.name), flags)
                opened.callback(os.close, descriptor)
            # First: a reader that comes back meanwhile must get an error, not zeros. At the end of a file it may. The
            # file may also have been renamed or removed before it was opened: then that is another one.
            if not table.give_back(info.slot, end):
                return
            if descriptor >= 0:
                punch(descriptor, end)
            # Also where the file system cannot give anything back: a writer must not wait for that for ever.
            table.freed(info.slot, end)

    def _give_back_all(self) -> None:
        """Room is short: also of files of which little was read, or little is left."""
        assert self._server is not None
        table = self._server.table
        for slot in table.spares():
            if info := table.info(slot):
                self._give_back(info)

    def _tell_of_no_limit(self, name: str) -> None:
        assert self._server is not None
        told = f"{name} is let off the limit"
        if not any(text.startswith(told) for text in self._server.warnings):
            self._server.warn(
                f"{told}: it is read on another node, or not once from front to end, in pieces of up to a third of it"
            )

    def give_back(self) -> None:
        """Look again if a writer waits for room: a reader that has ended says nothing any more."""
        assert self._server is not None
        if any(wait.kind is WaitKind.ROOM for wait in self._server.table.waits()):
            self._give_back_all()

    def mind_memory(self) -> None:
        """Say so once when memory gets short."""
        if not self._placed or self._warned or self._server is None:
            return
        used, free = _used_and_free(self._placed.source)
        self._passed_over += 1
        fills = used - self._used_before >= _NEARLY_FULL * self._capacity
        if not fills and free and self._passed_over <= _PASSED_OVER:
            return
        self._passed_over = 0
        self._used_before = used  # others fill it too: look again when as much has come on top
        files = self._server.table.iterate(Flag.BORN, Flag.REMOVED | Flag.MOVED | Flag.DIRECTORY)
        ours = sum(info.high - info.punched for info in files)
        if ours > _NEARLY_FULL * self._capacity or not free:
            self._warned = True
            self._server.warn(
                f"the files in memory take {format_size(ours)} of {format_size(self._capacity)}: "
                f"use --limit, declare large files permanent, or run in place"
            )

    def finish(self) -> None:
        """The programs are over."""
        if self._drain is not None and self._placed is not None:
            changes = self._placed.changes()
            # First: a directory may have come where a file was, or a file where a directory was.
            remove_files(self._placed.home, [name for name in changes.removed if self._is_minded(name)])
            written = [name for name in changes.written if not self.is_kept_elsewhere(name)]
            for name in self._kept([name for name in written if not self._drain.has_taken_up(name)]):
                self._drain.submit(name)
            self._drain.finish()
            self._drain.make_folders([name for name in changes.made if self._lasts(name)])
            self._report()
        else:
            self._remove_temporary()

    def _lasts(self, folder: str) -> bool:
        """Whether a directory that a program has made is to be there in the end, even if nothing in it is."""
        return self._rules.excluded(folder) or self._rules.file(folder).permanent

    def _is_minded(self, name: str) -> bool:
        """Whether what programs do to something that existed is to last: not so with a temporary output."""
        found = self._rules.file(name)
        return self._rules.excluded(name) or found.permanent or not found.producers

    def _kept(self, written: list[str]) -> Iterator[str]:
        """Files in memory that have to be in the user's directory: permanent and final, or none of our business."""
        assert self._server is not None and self._placed is not None
        left = []
        for name in written:
            here, home = os.path.join(self._placed.source, name), os.path.join(self._placed.home, name)
            slot = self._server.table.lookup(name)
            info = None if slot is None else self._server.table.info(slot)
            is_born = info is not None and info.flags & Flag.BORN
            if info is not None and info.flags & _DELIVERABLE == _FINAL:
                yield name  # most of them: the rules need not be asked again
            elif self._rules.excluded(name):
                yield name
            elif not is_born and is_unchanged(here, home):
                continue
            elif self._rules.file(name).permanent or (os.path.lexists(home) and self._is_minded(name)):
                if info is not None and info.flags & Flag.REMOTE:
                    continue
                if not is_born or (info is not None and info.flags & Flag.COMMITTED):
                    yield name
                else:
                    left.append(name)
        if left:
            self._server.warn(f"not brought home, as they were not finished: {', '.join(sorted(left)[:20])}")

    def _report(self) -> None:
        """Tell what could not be delivered, and keep it where it can be: in memory, under a name of its own."""
        assert self._drain is not None and self._server is not None and self._placed is not None
        for name, problem in self._drain.failures.items():
            source, target = os.path.join(self._placed.source, name), os.path.join(self._rescue, name)
            if not os.path.lexists(source):
                continue
            os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
            os.rename(source, target)
            self._server.warn(f"{name} could not be brought home: {problem}; it is in {target}, until a restart")

    def _remove_temporary(self) -> None:
        assert self._server is not None
        wanted = Flag.BORN | Flag.TEMPORARY_FILE
        names = [info.name for info in self._server.table.iterate(wanted, Flag.REMOVED | Flag.MOVED)]
        remove_files(self._files, names)


def _used_and_free(path: str) -> tuple[int, int]:
    """Bytes of the file system that a path is on."""
    about = os.statvfs(path)
    return (about.f_blocks - about.f_bfree) * about.f_frsize, about.f_bavail * about.f_frsize
