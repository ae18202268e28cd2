"""The asking side: ranges of files from one other node, over connections that are kept.

``pulling`` decides what is fetched and from whom.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from msgspec import Struct

from penstock.streaming.nodes.connection import Connection
from penstock.streaming.nodes.http_wire import Answer, HttpError, request_bytes
from penstock.streaming.nodes.peers import Node
from penstock.streaming.nodes.records import quoted

__all__ = ["Final", "Source"]

_CONNECTS = 5.0
_IDLE = 16


class Final(Struct, frozen=True):
    """How a file is that does not change any more."""

    size: int
    mode: int
    mtime_ns: int


class Source:
    """Another node, as a place to fetch from."""

    def __init__(self, node: Node, token: str, caught_up: Callable[[int], Awaitable[None]]) -> None:
        self.node = node
        self._token = token
        #: returns when so many records of the node have been heard
        self._caught_up = caught_up
        self._idle: list[Connection] = []
        #: requests that were answered, and bytes that came
        self.requests = 0
        self.received = 0

    async def fetch(
        self,
        name: str,
        start: int,
        least: int,
        end: int,
        heard: dict[str, str],
        put: Callable[[int, memoryview], None],
        comes_to: Callable[[int, bool], None],
    ) -> tuple[int, Final | None]:
        """Have [start, least) put in its place, and of [least, end) what is there by then.

        ``heard`` is what the node has to know before it answers. ``comes_to`` hears how far the answer goes before its
        bytes come, and whether the file goes on after that; it raises if the name may stand for another file by then.
        Returns how far it got, and how the file is if that is final. FileNotFoundError: the node has no such file.
        """
        fields = {"Range": f"bytes={start}-{end - 1}", "Penstock-Least": str(least - start), **heard}
        request = request_bytes(self.node.host, f"/files/{quoted(name)}", self._token, fields)
        async with self._answered(request) as (connection, answer):
            match answer.status:
                case 206:
                    end = start + int(answer.fields["content-length"])
                    comes_to(end, not answer.fields["content-range"].endswith(f"/{end}"))
                    got = await self._take_body(connection, answer, put)
                case 416:
                    got = start
                case 404:
                    raise FileNotFoundError(f"{name!r} is not on node {self.node}")
                case status:
                    raise HttpError(f"node {self.node} answered with status {status}")
        return got, _final_of(answer)

    async def fetch_as_it_is(
        self,
        name: str,
        app: int,
        start: int,
        end: int,
        heard: dict[str, str],
        put: Callable[[int, memoryview], None],
    ) -> tuple[int, int] | None:
        """Have what there is of [start, end) put in its place, for a step that would not wait where the file is.

        Returns how far it got, and the size of the file so far; None if the step has to wait for now, or the file is
        final. FileNotFoundError: the node has no such file.
        """
        fields = {"Range": f"bytes={start}-{end - 1}", "Penstock-App": str(app), **heard}
        request = request_bytes(self.node.host, f"/files/{quoted(name)}", self._token, fields)
        async with self._answered(request) as (connection, answer):
            match answer.status:
                case 206:
                    got = await self._take_body(connection, answer, put)
                case 416:
                    got = start
                case 204:
                    return None
                case 404:
                    raise FileNotFoundError(f"{name!r} is not on node {self.node}")
                case status:
                    raise HttpError(f"node {self.node} answered with status {status}")
        return got, int(answer.fields["penstock-size"])

    @asynccontextmanager
    async def _answered(self, request: bytes) -> AsyncIterator[tuple[Connection, Answer]]:
        """The answer to a request, once it is known here what the names in it stand for; its body is to be taken."""
        connection, answer = await self._ask(request)
        try:
            await self._caught_up(int(answer.fields.get("penstock-told", 0)))
            yield connection, answer
        except FileNotFoundError:
            self._idle.append(connection)
            raise
        except BaseException:
            connection.close()
            raise
        self.requests += answer.status != 204
        if len(self._idle) < _IDLE:
            self._idle.append(connection)
        else:
            connection.close()

    async def sees(self, mark: str) -> bool:
        """Whether a mark in this node's directory is in the other's too: then they are one."""
        connection, answer = await self._ask(request_bytes(self.node.host, f"/marks/{mark}", self._token))
        self._idle.append(connection)
        return answer.status == 200

    async def _ask(self, request: bytes) -> tuple[Connection, Answer]:
        while self._idle:
            connection = self._idle.pop()
            with suppress(OSError, HttpError):  # it was closed meanwhile: a new one will tell
                return connection, await connection.exchange(request)
        async with asyncio.timeout(_CONNECTS):
            connection = await Connection.open(self.node.host, self.node.port)
        return connection, await connection.exchange(request)

    async def _take_body(self, connection: Connection, answer: Answer, put: Callable[[int, memoryview], None]) -> int:
        at = int(answer.fields["content-range"].removeprefix("bytes ").partition("-")[0])

        def put_next(piece: memoryview) -> None:
            nonlocal at
            put(at, piece)
            at += len(piece)
            self.received += len(piece)

        await connection.take(int(answer.fields["content-length"]), put_next)
        return at

    def close(self) -> None:
        """Hang up."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()


def _final_of(answer: Answer) -> Final | None:
    total = answer.fields["content-range"].rpartition("/")[2]
    if total == "*":
        return None
    mode, _, mtime_ns = answer.fields["penstock-final"].partition(" ")
    return Final(int(total), int(mode), int(mtime_ns))
