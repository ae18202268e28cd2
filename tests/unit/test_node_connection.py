"""A connection to another node's server: heads and bodies, however the network cuts them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streaming.nodes.connection import Connection
from penstock.streaming.nodes.http_wire import LONGEST_HEAD, HttpError

Told = TypeVar("Told")

HEAD = b"HTTP/1.1 206 Partial Content\r\nContent-Length: 10\r\n\r\n"
TWO_ANSWERS = HEAD + b"0123456789" + HEAD + b"abcdefghij"


def answered(pieces: list[bytes], scene: Callable[[Connection], Awaitable[Told]]) -> Told:
    """What a scene comes to with a server that sends these pieces and hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        writer.close()

    async def play() -> Told:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        connection = await Connection.open("127.0.0.1", server.sockets[0].getsockname()[1])
        try:
            return await scene(connection)
        finally:
            connection.close()
            server.close()

    return asyncio.run(play())


async def take_all(connection: Connection, length: int) -> bytes:
    taken = bytearray()
    await connection.take(length, taken.extend)
    return bytes(taken)


@given(st.lists(st.integers(1, len(TWO_ANSWERS) - 1), max_size=6, unique=True).map(sorted))
def test_answers_are_the_same_however_they_are_cut(cuts: list[int]) -> None:
    pieces = [TWO_ANSWERS[start:end] for start, end in zip([0, *cuts], [*cuts, None], strict=True)]

    async def scene(connection: Connection) -> list[tuple[int, bytes]]:
        told = []
        for request in (b"GET / HTTP/1.1\r\n\r\n", b""):
            answer = await connection.exchange(request)
            told.append((answer.status, await take_all(connection, int(answer.fields["content-length"]))))
        return told

    assert answered(pieces, scene) == [(206, b"0123456789"), (206, b"abcdefghij")]


@pytest.mark.parametrize(
    ("sent", "error", "words"),
    [
        ([HEAD[:20]], ConnectionResetError, "hung up"),
        ([HEAD + b"01234"], ConnectionResetError, "within a range"),
        ([b"HTTP/1.1 200 OK\r\nX: " + b"x" * (LONGEST_HEAD + 5000)], HttpError, "too long"),
        ([b"no answer at all\r\n\r\n"], HttpError, "not an answer"),
    ],
)
def test_what_breaks_off_or_is_no_answer_is_an_error(sent: list[bytes], error: type[Exception], words: str) -> None:
    async def scene(connection: Connection) -> None:
        answer = await connection.exchange(b"GET / HTTP/1.1\r\n\r\n")
        await take_all(connection, int(answer.fields["content-length"]))

    with pytest.raises(error, match=words):
        answered(sent, scene)


def test_nobody_there() -> None:
    async def scene() -> None:
        server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        await Connection.open("127.0.0.1", port)

    with pytest.raises(ConnectionRefusedError):
        asyncio.run(scene())
