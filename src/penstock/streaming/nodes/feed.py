"""The feed: what one server tells the others, and how a server follows another's.

    Feed (append, read on) ──▶ serving: GET /feed, chunked, one record per line ──▶ Follower ──▶ apply

A follower whose connection breaks or falls silent comes back and goes on where it stopped. A server of which nothing is
heard for some seconds is taken for dead, unless it said before that it leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import suppress

import msgspec

from penstock.streaming.nodes.http_wire import HttpError, read_answer, request_bytes
from penstock.streaming.nodes.peers import Node
from penstock.streaming.nodes.records import Beat, Joined, Leaving, RemoteRecord, decode, encode, quoted

__all__ = ["LONGEST_LINE", "Feed", "Follower"]

#: seconds between two signs of life
BEAT = 0.5
#: seconds that a server may take to start
_STARTS = 120.0
_AGAIN = 0.1
LONGEST_LINE = 64 << 10


class Feed:
    """The records of this node, all of them: whoever follows late reads from the first."""

    def __init__(self, joined: Joined) -> None:
        self._joined = joined
        self._lines: list[bytes] = []
        self._news = asyncio.Event()
        #: how far those who listen have been told, by connection
        self._positions: dict[object, int] = {}
        self._listeners: dict[object, str] = {}

    def append(self, record: RemoteRecord) -> None:
        """Tell the others."""
        self._lines.append(encode(record) + b"\n")
        self._news.set()

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def all_told(self) -> bool:
        """Whether those who listen have been sent everything."""
        return all(position == len(self._lines) for position in self._positions.values())

    def is_followed_by(self, node: str) -> bool:
        """Whether a node listens."""
        return node in self._listeners.values()

    async def read_on(self, after: int, node: str) -> AsyncGenerator[bytes, None]:
        """For a node: all from record ``after`` on, for ever; with signs of life where there is nothing to tell."""
        reader = object()
        self._positions[reader], self._listeners[reader] = after, node
        try:
            yield encode(self._joined) + b"\n"
            async for lines in self._read_on(reader, after):
                yield lines
        finally:
            del self._positions[reader], self._listeners[reader]

    async def _read_on(self, reader: object, after: int) -> AsyncIterator[bytes]:
        while True:
            if after < len(self._lines):
                end = min(len(self._lines), after + 1000)
                yield b"".join(self._lines[after:end])
                after = self._positions[reader] = end
                continue
            self._news.clear()
            try:
                async with asyncio.timeout(BEAT):
                    await self._news.wait()
            except TimeoutError:
                yield encode(Beat()) + b"\n"


class _AnotherWorkflow(Exception):
    """It serves something else; waiting does not help."""


class Follower:
    """Reads the feed of one other server until it leaves or dies."""

    def __init__(
        self,
        node: Node,
        token: str,
        expected: Joined,
        lost_after: float,
        met: Callable[[], Awaitable[str]],
        apply: Callable[[RemoteRecord], None],
        ended: Callable[[str], None],
    ) -> None:
        self.node = node
        #: it has been heard of
        self.joined = asyncio.Event()
        #: it said that it leaves
        self.leaving = False
        #: it is no more, or of no use
        self.gone = False
        self._token = token
        self._expected = expected
        self._lost_after = lost_after
        #: seconds of silence after which another connection is tried
        self._silence = lost_after / 2
        #: asked before anything is believed: why the two cannot work together, or nothing
        self._met = met
        self._apply = apply
        #: told once, with a reason unless it left in order
        self._ended = ended
        #: records that were heard
        self.received = 0
        self._more = asyncio.Event()
        #: when something was heard last, by the clock of the event loop
        self._heard_at = 0.0

    async def caught_up(self, told: int) -> None:
        """Return when the first ``told`` records have come, or none will come any more."""
        while self.received < told and not self.gone:
            self._more.clear()
            await self._more.wait()

    async def follow(self) -> None:
        """Read until there is nothing more to come."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        reason = f"did not start within {_STARTS:.0f} s"
        while True:
            heard_at = self._heard_at
            try:
                await self._read()
            except _AnotherWorkflow as error:
                reason = str(error)
                break
            except (OSError, HttpError, TimeoutError, EOFError, ValueError, msgspec.DecodeError) as error:
                if self.joined.is_set():
                    reason = "is gone"
                elif isinstance(error, HttpError):
                    reason = str(error)
            if self.leaving:
                reason = ""
                break
            deadline = self._heard_at + self._lost_after if self.joined.is_set() else began + _STARTS
            # Not without a try in vain: it may be this server that was stopped, or kept busy, for so long.
            if loop.time() > deadline and self._heard_at == heard_at:
                break
            await asyncio.sleep(_AGAIN)
        self.gone = True
        self._more.set()
        self._ended(reason)

    async def _read(self) -> None:
        async with asyncio.timeout(self._silence):
            reader, writer = await asyncio.open_connection(self.node.host, self.node.port, limit=LONGEST_LINE)
        try:
            target = f"/feed?after={self.received}&node={quoted(self._expected.node)}"
            writer.write(request_bytes(self.node.host, target, self._token))
            async with asyncio.timeout(self._silence):
                answer = await read_answer(reader)
            if answer.status == 401:
                raise _AnotherWorkflow("has another token")
            if answer.status != 200:
                raise HttpError(f"answered with status {answer.status}")
            async for line in _chunked_lines(reader, self._silence):
                await self._take(decode(line))
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _take(self, record: RemoteRecord) -> None:
        self._heard_at = asyncio.get_running_loop().time()
        match record:
            case Joined():
                self._check(record)
                if not self.joined.is_set() and (reason := await self._met()):
                    raise _AnotherWorkflow(reason)
                self.joined.set()
            case Beat():
                pass
            case _:
                self.received += 1
                if isinstance(record, Leaving):
                    self.leaving = True
                self._apply(record)
                self._more.set()

    def _check(self, said: Joined) -> None:
        if said.node != self.node.name:
            raise _AnotherWorkflow(f"says that it is the node {said.node}")
        if said.digest != self._expected.digest:
            raise _AnotherWorkflow("serves another coordination file, or has another list of nodes or other options")


async def _chunked_lines(reader: asyncio.StreamReader, silence: float) -> AsyncIterator[bytes]:
    """The lines of a body in chunks, as they come; TimeoutError after a silence."""
    rest = b""
    while True:
        async with asyncio.timeout(silence):
            head = await reader.readline()
        if not head:
            raise EOFError
        size = int(head, 16)
        if size == 0:
            return
        async with asyncio.timeout(silence):
            rest += (await reader.readexactly(size + 2))[:-2]
        *lines, rest = rest.split(b"\n")
        for line in lines:
            yield line
