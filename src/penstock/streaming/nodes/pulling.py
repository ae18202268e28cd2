"""Which ranges of other nodes' files are fetched, when, and from whom. Each byte comes once and serves all readers.

    a reader waits (shared table) ──▶ look ──▶ demand: exactly its range ──▶ Source ──▶ local copy ──▶ shared table
                                           └──▶ pump: ahead of it, or all of the file

The home of a file pumps it from its birth on. A local copy is committed once it is complete; until then a reader of it
sleeps like a reader of a file that is still written.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine
from typing import Any

from penstock.streaming.nodes.fetching import Source
from penstock.streaming.nodes.http_wire import HttpError
from penstock.streaming.nodes.remote_file import Asked, RemoteFile
from penstock.streaming.table import Flag, Table, Wait, WaitKind

__all__ = ["Pulling"]

#: bytes of one request of the pump
_CHUNK = 8 << 20
#: requests of one file that are made at once
_ASKED_AT_ONCE = 2
#: files that are fetched at once without being asked for
_AT_ONCE = 16
#: seconds between two looks at how far readers have come
_LOOK = 0.01
_AGAIN = 0.2
_SOON = 0.02
#: seconds after which a file that its maker does not have is lost
_MISSED = 3.0


class _NotStored(Exception):
    """Bytes have come, but there is no room for them, or no way to write them."""


class Pulling:
    """Fetches."""

    def __init__(
        self,
        table: Table,
        prefetch: int,
        sources: Callable[[RemoteFile], list[Source]],
        arrived: Callable[[RemoteFile], None],
        lost: Callable[[RemoteFile, str], None],
    ) -> None:
        self._table = table
        self._prefetch = prefetch
        #: where to fetch a file from: its home first, its maker last
        self._sources = sources
        self._arrived = arrived
        self._lost = lost
        self.files: dict[str, RemoteFile] = {}
        self._by_slot: dict[int, RemoteFile] = {}
        self._turns = asyncio.Semaphore(_AT_ONCE)
        #: files on their way that this node is the home of
        self._homed: set[RemoteFile] = set()

    # --- what is known ----------------------------------------------------------------------------------------------

    def add(self, file: RemoteFile) -> None:
        """Another node has made a file."""
        self.files[file.name] = file
        self._by_slot[file.slot] = file

    def drop(self, file: RemoteFile) -> None:
        """It is of no interest any more."""
        file.close()
        self._homed.discard(file)
        self._forget(file)

    def _forget(self, file: RemoteFile) -> None:
        if self.files.get(file.name) is file:
            del self.files[file.name]
        if self._by_slot.get(file.slot) is file:
            del self._by_slot[file.slot]

    def give_up(self, file: RemoteFile) -> None:
        """Nothing more comes of it; it is still known."""
        file.close()
        self._homed.discard(file)

    def rename(self, file: RemoteFile, name: str, slot: int) -> None:
        """It has another name now."""
        self._forget(file)
        file.name, file.slot = name, slot
        self.add(file)

    def learn(self, file: RemoteFile, size: int) -> None:
        """It is final, with this size: its ranges may be read one by one, whatever its rule says."""
        if file.ended or file.size is not None:
            return
        if file.was_final is not None and file.was_final != (size, file.mtime_ns):
            file.start_over()
            self._table.code.ps_truncated(file.slot, 0)
        file.size = size
        self._table.set_flags(file.slot, Flag.STREAMED, 0)
        self._finish_if_complete(file)
        file.stirred.set()
        self.look()

    @property
    def busy(self) -> bool:
        """Whether final files are on their way that this node is the home of."""
        return any(file.size is not None for file in self._homed)

    def close(self) -> None:
        """Call everything off."""
        for file in list(self.files.values()):
            self.drop(file)

    # --- what is wanted ---------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Fetch what programs wait for."""
        if not self._by_slot:
            return
        for wait in self._table.waits():
            file = self._by_slot.get(wait.slot) or self._by_slot.get(self._table.code.ps_now(wait.slot))
            if file is not None and not file.ended:
                self._ask_for(file, wait)

    def want_all(self, file: RemoteFile, *, kept: bool) -> None:
        """Fetch a file without being asked; if it is kept here, others go on until it has come."""
        if kept and not file.ended:
            self._homed.add(file)
        if not file.ended and not file.pumping and not file.queued:
            file.queued = True
            self._start(file, self._pump_in_turn(file))

    def _ask_for(self, file: RemoteFile, wait: Wait) -> None:
        if wait.kind is WaitKind.COMMITTED or (file.size is not None and wait.end > file.size):
            file.whole = True
        elif wait.kind is WaitKind.RANGE:
            file.front, file.position = wait.start, max(file.position, wait.end)
            for start, end in file.gaps(wait.start, wait.end):
                if not file.is_coming(start):
                    self._start(file, self._fetch(file, file.ask(start, end), end + self._prefetch))
        else:
            return
        file.stirred.set()
        if not file.pumping and (file.whole or self._prefetch):
            file.pumping = True
            self._start(file, self._pump(file))

    def _start(self, file: RemoteFile, work: Coroutine[Any, Any, None]) -> None:
        def done(task: asyncio.Task[None]) -> None:
            file.tasks.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                self._lost(file, f"its server failed: {error!r}")

        task = asyncio.create_task(work)
        file.tasks.add(task)
        task.add_done_callback(done)

    # --- how it comes -----------------------------------------------------------------------------------------------

    async def _pump_in_turn(self, file: RemoteFile) -> None:
        async with self._turns:
            file.whole = True
            file.stirred.set()
            if not file.pumping:
                file.pumping = True
                await self._pump(file)

    async def _pump(self, file: RemoteFile) -> None:
        """Keep ahead of the readers; the next request is with the other node before the last one's bytes are here."""
        while not file.ended:
            gap = file.gap_ahead(self._prefetch)
            if gap is None or len(file.asked) >= _ASKED_AT_ONCE:
                file.stirred.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK):
                        await file.stirred.wait()
                file.position = max(file.position, self._consumed(file))
                continue
            start, end = gap
            self._start(file, self._fetch(file, file.ask(start, start + 1), min(end, start + _CHUNK)))

    def _consumed(self, file: RemoteFile) -> int:
        info = self._table.info(file.slot)
        if info is None:
            return 0
        apps = [number for number in range(63) if info.consumers >> number & 1]
        return max((self._table.consumed_by(file.slot, app) for app in apps), default=0)

    async def _fetch(self, file: RemoteFile, asked: Asked, end: int) -> None:
        """Fetch a range from the best source that has it; from the maker again and again, until it is given up."""
        least = asked.end
        try:
            while not file.ended:
                name = file.name
                got, size = await self._fetch_once(file, asked, least, end)
                if size is not None and (file.name != name or file.was_final is not None):
                    size = None  # by which of its names it is final is told by its maker
                    await asyncio.sleep(_SOON)
                elif size is not None:
                    self.learn(file, size)
                if got >= least or size is not None:
                    break
                asked.start = max(asked.start, got)
                if file.size is not None and asked.start >= file.size:
                    break
        finally:
            file.asked.discard(asked)
            file.stirred.set()
        self._finish_if_complete(file)
        self.look()  # others may wait for what begins where this one began

    async def _fetch_once(self, file: RemoteFile, asked: Asked, least: int, end: int) -> tuple[int, int | None]:
        def put(offset: int, data: memoryview) -> None:
            if not file.ended:
                try:
                    file.put(offset, data)
                except OSError as error:
                    raise _NotStored(f"it cannot be stored on this node: {error.strerror}") from None
                self._table.code.psx_seen(file.slot, offset, offset + len(data))

        def comes_to(reached: int, goes_on: bool) -> None:
            asked.comes_to(reached, goes_on=goes_on)
            file.stirred.set()

        pause = _AGAIN
        sources = self._sources(file)
        for source in sources:
            try:
                answer = await source.fetch(file.name, asked.start, least, end, put, comes_to)
                file.missing_since = None
                return answer
            except FileNotFoundError as error:
                if source is sources[-1]:
                    pause = _SOON
                    self._miss(file, error)
            except _NotStored as error:
                self._lost(file, str(error))
                break
            except (OSError, HttpError, ValueError, KeyError, TimeoutError):
                pass  # the next one, or again: whether a node is gone is decided by its feed
        await asyncio.sleep(pause)
        return asked.start, None

    def _miss(self, file: RemoteFile, error: FileNotFoundError) -> None:
        """A name that is just being changed is not there for a moment, neither the old one nor the new one."""
        now = asyncio.get_running_loop().time()
        if file.missing_since is None:
            file.missing_since = now
        elif now > file.missing_since + _MISSED:
            self._lost(file, str(error))

    def _finish_if_complete(self, file: RemoteFile) -> None:
        if file.ended or not file.complete:
            return
        assert file.size is not None
        for descriptor in file.descriptors:
            os.ftruncate(descriptor, file.size)
            os.fchmod(descriptor, file.mode & 0o7777)
            if file.mtime_ns is not None:
                os.utime(descriptor, ns=(file.mtime_ns, file.mtime_ns))
        self._table.commit(file.slot)
        self._homed.discard(file)
        own = asyncio.current_task()
        if own is not None:
            file.tasks.discard(own)  # not called off by itself
        file.close()
        self._arrived(file)
