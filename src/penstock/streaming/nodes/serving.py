"""The serving side of one node: its feed, and ranges of its files, to whoever has the token.

    GET /marks/NAME        whether a mark that the other node has made in its directory is in this one: they must not be
    GET /feed?after=N      records from number N on, in chunks, without end; ``&node=NAME`` says who listens
    GET /files/NAME        ``Range: bytes=A-B``: the answer comes as soon as ``Penstock-Least`` bytes of it may be read
                           by the rules, with all that may be read by then; 416 with the size of a file that is shorter.
                           ``Penstock-Told`` is how many records say what the name stands for, ``Penstock-Final`` the
                           mode and the time of change of a final file.
                           ``Penstock-Heard: NODE N`` asks for an answer of one who has heard so many records of that
                           node: it may have changed the name.
                           With ``Penstock-App``, a number: all that is there, as soon as that step would not wait for
                           more on this node (``Penstock-Size`` is the size so far); 204 if it has to wait for now

Only names that the shared table knows are served. While a range is not there yet the request waits, and nothing else
does. Bytes go from the page cache to the socket by ``sendfile``.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import stat
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from ctypes import c_bool, c_int, c_uint32, c_uint64
from typing import IO
from urllib.parse import parse_qs

from penstock.errors import ConfigError
from penstock.streaming.nodes.feed import Feed
from penstock.streaming.nodes.http_wire import Head, HttpError, answer_bytes, read_head
from penstock.streaming.nodes.records import unquoted
from penstock.streaming.nodes.replicas import Replicas
from penstock.streaming.table import OTHER, Flag, Info, Table

__all__ = ["Serving"]

#: seconds between two looks at a range that is not there yet: often at first, then less so
_LOOKS = ((0.05, 0.001), (1.0, 0.005), (float("inf"), 0.02))
#: seconds between two questions to the kernel
_WITNESS = 0.02
#: seconds between two looks whether a step may read what it makes, and after which it has to ask again
_OWN_LOOK = 0.02
_OWN_WAIT = 1.0
#: of ``enum ps_commit_kind``
_ON_TERMINATION = 0


class _NotFound(Exception):
    """Nothing of that name is served."""


class Serving:
    """Answers the servers of other nodes."""

    def __init__(
        self,
        table: Table,
        replicas: Replicas,
        feed: Feed,
        token: str,
        read_journal: Callable[[], None],
        any_lives: Callable[[int], bool],
        heard: Callable[[str, int], Awaitable[None]],
    ) -> None:
        self._table = table
        # Exported by the library, but of no use to anybody but this.
        table.code.ps_covered.restype, table.code.ps_covered.argtypes = c_bool, (c_uint32, c_uint64, c_uint64)
        table.code.ps_seen_by_kernel.restype = c_bool
        table.code.ps_seen_by_kernel.argtypes = (c_uint32, c_int, c_uint64, c_uint64)
        self._replicas = replicas
        self._feed = feed
        self._read_journal = read_journal
        #: whether one of the steps of a mask runs on this node
        self._any_lives = any_lives
        #: returns when so many records of another node were heard
        self._heard = heard
        self._token = token.encode()
        self._listening: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        #: bytes that were sent, for the curious
        self.sent = 0

    async def start(self, host: str, port: int) -> None:
        """Listen; ConfigError if the address is not to be had."""
        try:
            self._listening = await asyncio.start_server(self._serve, host, port)
        except OSError as error:
            raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror or error}; see --listen") from None

    async def close(self) -> None:
        """Hang up on everybody."""
        if self._listening is not None:
            self._listening.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while (head := await read_head(reader)) is not None:
                await self._answer(head, reader, writer)
        except HttpError:
            writer.write(answer_bytes(400, {"Content-Length": "0", "Connection": "close"}))
        except (OSError, asyncio.CancelledError, asyncio.IncompleteReadError):
            pass  # who asked is gone, or this server ends
        finally:
            self._connections.discard(task)
            writer.close()

    async def _answer(self, head: Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path, _, query = head.target.partition("?")
        given = head.fields.get("authorization", "").removeprefix("Bearer ").encode()
        if not hmac.compare_digest(given, self._token):
            await _plain(writer, 401)
        elif head.method != "GET":
            await _plain(writer, 405)
        elif path == "/feed":
            await self._send_feed(query, writer)
        elif path.startswith("/files/"):
            try:
                node, _, records = head.fields.get("penstock-heard", " 0").rpartition(" ")
                await self._heard(unquoted(node), _number(records))
                send = self._send_as_it_is if "penstock-app" in head.fields else self._send_range
                await send(unquoted(path.removeprefix("/files/")), head, reader, writer)
            except _NotFound:
                await _plain(writer, 404, self._told())
        elif path.startswith("/marks/"):
            await _plain(writer, 200 if self._replicas.has_mark(path.removeprefix("/marks/")) else 404)
        else:
            await _plain(writer, 404)

    async def _send_feed(self, query: str, writer: asyncio.StreamWriter) -> None:
        fields = parse_qs(query)
        after, node = fields.get("after", ["0"])[0], fields.get("node", [""])[0]
        if not after.isdigit():
            raise HttpError("after is not a number")
        writer.write(answer_bytes(200, {"Content-Type": "application/x-ndjson", "Transfer-Encoding": "chunked"}))
        async with aclosing(self._feed.read_on(int(after), node)) as records:
            async for lines in records:
                writer.write(b"%x\r\n%s\r\n" % (len(lines), lines))
                await writer.drain()

    # --- ranges ---------------------------------------------------------------------------------------------------

    async def _send_range(
        self, name: str, head: Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        start, end = _asked_range(head)
        least = min(end, start + _number(head.fields.get("penstock-least", str(end - start))))
        info = await self._readable(name, start, least, reader)
        try:
            descriptor = self._replicas.open_for_reading(info.name)
        except (OSError, ValueError):
            raise _NotFound from None
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            about = os.fstat(descriptor)
            final = bool(info.flags & Flag.COMMITTED)
            total = str(about.st_size) if final else "*"
            fields = self._told()
            if final:
                fields["Penstock-Final"] = f"{stat.S_IMODE(about.st_mode)} {about.st_mtime_ns}"
            if final and start >= about.st_size:
                await _plain(writer, 416, {"Content-Range": f"bytes */{total}", **fields})
                return
            # What is readable beyond the asked range's first part, as far as that is known without a gap.
            end = min(end, about.st_size if final else max(least, info.solid))
            await self._send_bytes(file, start, end, total, fields, writer)

    async def _send_bytes(
        self, file: IO[bytes], start: int, end: int, total: str, fields: dict[str, str], writer: asyncio.StreamWriter
    ) -> None:
        about = {"Content-Length": str(end - start), "Content-Range": f"bytes {start}-{end - 1}/{total}"}
        writer.write(answer_bytes(206, about | fields))
        await writer.drain()
        loop = asyncio.get_running_loop()
        sent = await loop.sendfile(writer.transport, file, start, end - start)
        self.sent += sent
        if sent < end - start:  # it became shorter: the reader must not wait for the rest
            writer.transport.abort()

    # --- what a step makes, read by itself on another node --------------------------------------------------------

    async def _send_as_it_is(
        self, name: str, head: Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        start, end = _asked_range(head)
        app = _number(head.fields["penstock-app"])
        if app > OTHER:
            raise HttpError("no such step")
        info = await self._open_to(name, app, reader)
        if info is None:
            await _plain(writer, 204, self._told())
            return
        try:
            descriptor = self._replicas.open_for_reading(info.name)
        except (OSError, ValueError):
            raise _NotFound from None
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            size = os.fstat(descriptor).st_size
            fields = {"Penstock-Size": str(size), **self._told()}
            if start >= size:
                await _plain(writer, 416, {"Content-Range": "bytes */*", **fields})
            else:
                await self._send_bytes(file, start, min(end, size), "*", fields, writer)

    async def _open_to(self, name: str, app: int, reader: asyncio.StreamReader) -> Info | None:
        """Wait until a step may read a file that is not final; None if that takes long, or the file is final."""
        waited = 0.0
        slot = self._table.lookup(name)
        while True:
            info = self._found(slot)
            if info.punched:
                raise _NotFound
            if info.flags & Flag.COMMITTED or waited >= _OWN_WAIT:
                return None
            if self._awaits_nobody(info, app):
                self._table.set_flags(info.slot, Flag.READS_BACK, 0)
                return info
            if reader.at_eof():
                raise ConnectionResetError("nobody waits for the answer")
            await asyncio.sleep(_OWN_LOOK)
            waited += _OWN_LOOK

    def _awaits_nobody(self, info: Info, app: int) -> bool:
        """Whether a program of the step would not wait for the file on this node.

        A rule by which the file is final while its makers run is heeded all the same: that ends the wait. Not so if the
        file was closed and is not final yet, or nobody is left to close it.
        """
        if not self._table.code.psx_awaits_nobody(info.slot, app):
            return False
        if info.file.commit == _ON_TERMINATION:
            return True
        return not info.writers and (info.closes > 0 or not self._any_lives(info.producers))

    # --- what an answer is worth ----------------------------------------------------------------------------------

    def _told(self) -> dict[str, str]:
        """A file that has another name by now, or is gone, is in the feed before it is missed in an answer."""
        self._read_journal()
        return {"Penstock-Told": str(len(self._feed))}

    async def _readable(self, name: str, start: int, least: int, reader: asyncio.StreamReader) -> Info:
        """Wait until [start, least) of a file may be read, or it is final."""
        waited = asked_kernel = 0.0
        let_off = False
        slot = self._table.lookup(name)
        while True:
            info = self._found(slot)
            if start < info.punched:
                raise _NotFound  # given back: its maker has it still
            if not let_off:
                # A reader elsewhere does not say here how far it is: its file is neither held back nor punched.
                self._table.set_flags(info.slot, Flag.READS_BACK, 0)
                let_off = True
            if info.flags & Flag.COMMITTED or self._is_written(info, start, least):
                return info
            if reader.at_eof():
                raise ConnectionResetError("nobody waits for the answer")
            if waited >= asked_kernel + _WITNESS:
                asked_kernel = waited
                self._ask_kernel(info, start, least)
            pause = next(pause for until, pause in _LOOKS if waited < until)
            await asyncio.sleep(pause)
            waited += pause

    def _is_written(self, info: Info, start: int, least: int) -> bool:
        if not info.flags & Flag.STREAMED or info.flags & Flag.MAPPED:
            return False
        return least <= info.solid or bool(self._table.code.ps_covered(info.slot, start, least))

    def _ask_kernel(self, info: Info, start: int, least: int) -> None:
        """Bytes may be in the file although nobody has said so: written by a program without the library."""
        with suppress(OSError, ValueError):
            descriptor = self._replicas.open_for_reading(info.name)
            try:
                if info.flags & Flag.STREAMED:
                    self._table.code.ps_seen_by_kernel(info.slot, descriptor, start, least)
            finally:
                os.close(descriptor)

    def _found(self, slot: int | None) -> Info:
        info = None if slot is None else self._table.info(slot)
        while info is not None and info.flags & Flag.MOVED and info.moved_to is not None:
            info = self._table.info(info.moved_to)
        if info is None or not info.flags & Flag.BORN or info.flags & (Flag.DIRECTORY | Flag.SYMLINK):
            raise _NotFound
        return info


async def _plain(writer: asyncio.StreamWriter, status: int, fields: dict[str, str] | None = None) -> None:
    writer.write(answer_bytes(status, {"Content-Length": "0", **(fields or {})}))
    with suppress(ConnectionError):
        await writer.drain()


def _asked_range(head: Head) -> tuple[int, int]:
    unit, _, span = head.fields.get("range", "").partition("=")
    first, _, last = span.partition("-")
    if unit != "bytes":
        raise HttpError("a range is needed")
    start, end = _number(first), _number(last) + 1
    if end <= start:
        raise HttpError("the range is empty")
    return start, end


def _number(text: str) -> int:
    if not text.isdigit() or len(text) > 19:
        raise HttpError(f"not a number: {text[:40]!r}")
    return int(text)
