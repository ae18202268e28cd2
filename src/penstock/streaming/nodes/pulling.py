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
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from penstock.streaming.nodes.fetching import Final, Source
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
#: a wait of so many nanoseconds may be one for the end of the own step
_LONG_NS = 1_000_000_000
_ENDLESS = 1 << 62


class _NotStored(Exception):
    """Bytes have come, but there is no room for them, or no way to write them."""


class _AnotherName(Exception):
    """What was asked for by its old name may be another file."""


@contextlib.contextmanager
def _storing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _NotStored(f"it cannot be stored on this node: {error.strerror}") from None


class Pulling:
    """Fetches."""

    def __init__(
        self,
        table: Table,
        prefetch: int,
        sources: Callable[[RemoteFile], list[Source]],
        arrived: Callable[[RemoteFile], None],
        lost: Callable[[RemoteFile, str], None],
        heard: Callable[[RemoteFile], dict[str, str]],
    ) -> None:
        self._table = table
        self._prefetch = prefetch
        #: where to fetch a file from: its home first, its maker last
        self._sources = sources
        self._arrived = arrived
        self._lost = lost
        #: what a node has to have heard before it answers a question for the file
        self._heard = heard
        self.files: dict[str, RemoteFile] = {}
        self._by_slot: dict[int, RemoteFile] = {}
        self._turns = asyncio.Semaphore(_AT_ONCE)
        #: files on their way that this node is the home of
        self._homed: set[RemoteFile] = set()
        #: waits of steps for what they make themselves, by process and time of their beginning
        self._own_waits: set[tuple[int, int]] = set()

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
        file.moves += 1
        self.add(file)

    def learn(self, file: RemoteFile, final: Final) -> None:
        """It is final, with this size: its ranges may be read one by one, whatever its rule says."""
        if file.ended or file.size is not None:
            return
        file.mode, file.mtime_ns = final.mode, final.mtime_ns
        starts_over = file.was_final is not None and file.was_final != (final.size, final.mtime_ns)
        if starts_over:
            file.start_over()
            self._table.code.ps_truncated(file.slot, 0)
        file.size = final.size
        if starts_over and file in self._homed:
            self.want_all(file, kept=True)
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
                self._ask_for_own(file, wait)

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
            gaps = file.gaps(wait.start, wait.end)
            if not gaps and not self._is_streamed(file):
                file.whole = True  # it is here, but by its new name nobody reads it before it is final: find out
            for start, end in gaps:
                if not file.is_coming(start):
                    self._start(file, self._fetch(file, file.ask(start, end), end + self._prefetch))
        else:
            return
        file.stirred.set()
        if not file.pumping and (file.whole or self._prefetch):
            file.pumping = True
            self._start(file, self._pump(file))

    def _is_streamed(self, file: RemoteFile) -> bool:
        info = self._table.info(file.slot)
        return info is not None and bool(info.flags & Flag.STREAMED)

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
                moves = file.moves
                got, final = await self._fetch_once(file, asked, least, end)
                if final is not None and file.moves != moves:
                    final = None  # it was by a name that it does not have any more
                elif final is not None:
                    self.learn(file, final)
                if got >= least or final is not None:
                    break
                asked.start = max(asked.start, got)
                if file.size is not None and asked.start >= file.size:
                    break
        finally:
            file.asked.discard(asked)
            file.stirred.set()
        self._finish_if_complete(file)
        self.look()  # others may wait for what begins where this one began

    async def _fetch_once(self, file: RemoteFile, asked: Asked, least: int, end: int) -> tuple[int, Final | None]:
        moves = file.moves

        def put(offset: int, data: memoryview) -> None:
            if not file.ended:
                with _storing():
                    file.put(offset, data)
                self._table.code.psx_seen(file.slot, offset, offset + len(data))

        def comes_to(reached: int, goes_on: bool) -> None:
            if file.moves != moves:
                raise _AnotherName
            asked.comes_to(reached, goes_on=goes_on)
            file.stirred.set()

        pause = _AGAIN
        sources = self._sources(file)
        for source in sources:
            try:
                heard = self._heard(file)
                answer = await source.fetch(file.name, asked.start, least, end, heard, put, comes_to)
                file.missing_since = None
                return answer
            except _AnotherName:
                return asked.start, None
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

    # --- what a step makes, read by itself ----------------------------------------------------------------------------

    def _ask_for_own(self, file: RemoteFile, wait: Wait) -> None:
        """A step must not wait for the end of what it makes itself, or steps after it: it would wait for its own end.

        Where the file is, it would read what there is by then. Who makes a file is known best there: whoever waits for
        long asks too.
        """
        key = wait.process, wait.since_ns
        if wait.kind not in (WaitKind.RANGE, WaitKind.COMMITTED) or file.size is not None or key in self._own_waits:
            return
        info = self._table.info(file.slot)
        if info is None:
            return
        awaited = self._table.code.psx_awaited_where_it_is(file.slot, wait.app)
        if info.producers & ~awaited or time.monotonic_ns() > wait.since_ns + _LONG_NS:
            self._own_waits.add(key)
            self._start(file, self._serve_own(file, wait))

    async def _serve_own(self, file: RemoteFile, wait: Wait) -> None:
        """Ask the maker until the wait is over, or the file is final and comes like any other."""
        try:
            while not file.ended and file.size is None and self._still(wait):
                pause = _SOON
                try:
                    for source in self._sources(file)[-1:]:
                        if await self._fetch_as_it_is(file, wait, source):
                            self._table.code.ps_let_go_on(wait.process, wait.since_ns)
                            return
                except FileNotFoundError:
                    pass  # its name is just being changed, or whoever fetches it finds out
                except (OSError, HttpError, ValueError, KeyError, TimeoutError):
                    pause = _AGAIN
                await asyncio.sleep(pause)
        except _NotStored as error:
            self._lost(file, str(error))
        finally:
            self._own_waits.discard((wait.process, wait.since_ns))

    def _still(self, wait: Wait) -> bool:
        return any(one.process == wait.process and one.since_ns == wait.since_ns for one in self._table.waits())

    async def _fetch_as_it_is(self, file: RemoteFile, wait: Wait, source: Source) -> bool:
        """Have all put in its place that there is of what somebody waits for; whether that was so."""
        moves = file.moves

        def still_counts() -> bool:
            return not file.ended and file.size is None and file.moves == moves

        def put(offset: int, data: memoryview) -> None:
            if still_counts():
                with _storing():
                    file.put_for_now(offset, data)

        at, end = (wait.start, wait.end) if wait.kind is WaitKind.RANGE else (0, _ENDLESS)
        while True:
            until = min(end, at + _CHUNK)
            answer = await source.fetch_as_it_is(file.name, wait.app, at, until, self._heard(file), put)
            if answer is None or not still_counts():
                return False
            at, size = answer
            if at >= min(end, size):
                with _storing():
                    file.ends_for_now(size)
                return True

    # --- how it ends --------------------------------------------------------------------------------------------------

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
