"""Which files of a workflow leave it, and how: permanent ones to their place, temporary ones for good.

``Hosting`` calls it: at each commit, now and then while programs run, and at the end. ``drain`` does the work.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from penstock.streaming.drain import Drain, punch, remove_files
from penstock.streaming.happenings import FileDelivered, Tell
from penstock.streaming.language.model import Workflow
from penstock.streaming.rules.coverage import Rules
from penstock.streaming.server import Server
from penstock.streaming.table import Flag
from penstock.units import format_size

__all__ = ["Departure"]

#: bytes that are worth a system call
_WORTH_PUNCHING = 1 << 20
#: part of the memory that may be full before the user hears of it
_NEARLY_FULL = 0.9


class Departure:
    """Files on their way out. ``aside`` is the user's directory while the workflow lives in memory, or empty."""

    def __init__(
        self, workflow: Workflow, files: str, aside: str, rescue: str, capacity: int | None, tell: Tell
    ) -> None:
        self._rules = Rules(workflow)
        self._files, self._aside, self._rescue = files, aside, rescue
        self._tell = tell
        self._drain = Drain(files, aside, lambda name, size: tell(FileDelivered(name, size))) if aside else None
        self._server: Server | None = None
        self._warned = False
        self._used_before, free = _used_and_free(os.path.dirname(files))
        self._capacity = free if capacity is None else min(capacity, free)

    def attach(self, server: Server) -> None:
        """Hear of commits from now on."""
        self._server = server
        if server.table.limit:
            server.on_consumed = self._consumed
        if self._drain is not None:
            server.on_commit = self._committed

    def _committed(self, slot: int) -> None:
        assert self._server is not None and self._drain is not None
        info = self._server.table.info(slot)
        # What is homed on another node is kept there.
        if info is not None and info.flags & Flag.PERMANENT_FILE and not info.flags & (Flag.DIRECTORY | Flag.REMOTE):
            self._drain.submit(info.name)

    def _consumed(self, slot: int) -> None:
        """Give back what all readers are done with; a limit says that they read once, and forwards."""
        assert self._server is not None
        table = self._server.table
        info = table.info(slot)
        if info is None or info.flags & (Flag.READS_BACK | Flag.REMOVED | Flag.MOVED) or not info.consumers:
            return
        done = table.consumed_by_all(slot)
        if done - info.punched >= max(_WORTH_PUNCHING, table.limit // 8):
            table.punched(slot, done)  # first: a reader that comes back meanwhile must get an error, not zeros
            with contextlib.suppress(OSError):
                punch(os.path.join(self._files, info.name), done)

    def mind_memory(self) -> None:
        """Say so once when memory gets short."""
        if not self._aside or self._warned or self._server is None:
            return
        used, free = _used_and_free(self._files)
        if used - self._used_before < _NEARLY_FULL * self._capacity and free:
            return
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
        if self._drain is not None:
            for name in self._kept():
                self._drain.submit(name)
            self._drain.finish()
            self._report()
        else:
            self._remove_temporary()

    def _kept(self) -> Iterator[str]:
        """Files in memory that have to be in the user's directory: permanent and final, or none of our business."""
        assert self._server is not None
        left = []
        for folder, folders, names in os.walk(self._files):
            base = os.path.relpath(folder, self._files)
            links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
            for name in [*names, *links]:
                name = name if base == "." else f"{base}/{name}"
                if os.path.islink(path := os.path.join(self._files, name)) and os.readlink(path).startswith(
                    self._aside
                ):
                    continue  # it was there before
                if self._rules.excluded(name):
                    yield name
                elif self._rules.file(name).permanent:
                    slot = self._server.table.lookup(name)
                    info = None if slot is None else self._server.table.info(slot)
                    if info is not None and info.flags & Flag.REMOTE:
                        continue
                    if info is None or info.flags & Flag.COMMITTED or not info.flags & Flag.BORN:
                        yield name
                    else:
                        left.append(name)
        if left:
            self._server.warn(f"not brought home, as they were not finished: {', '.join(sorted(left)[:20])}")

    def _report(self) -> None:
        """Tell what could not be delivered, and keep it where it can be: in memory, under a name of its own."""
        assert self._drain is not None and self._server is not None
        for name, problem in self._drain.failures.items():
            source, target = os.path.join(self._files, name), os.path.join(self._rescue, name)
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
