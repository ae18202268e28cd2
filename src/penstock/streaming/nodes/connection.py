"""One connection to another node's server, for answers with large bodies: their bytes are taken from the socket into
one buffer, and from there to where they belong, without a copy in between.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from penstock.streaming.nodes.http_wire import HEAD_ENDS, LONGEST_HEAD, Answer, HttpError, parse_answer

__all__ = ["Connection"]

#: bytes that are taken at once: less means more calls, more means that readers hear of them later
_PIECE = 1 << 20
_HEAD_PIECE = 4096


class Connection:
    """Asks and hears answers, one at a time."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._loop = asyncio.get_running_loop()
        #: what came with a head and belongs to the body
        self._ahead = b""

    @classmethod
    async def open(cls, host: str, port: int) -> Connection:
        """Connect to the first address of a host that answers."""
        loop = asyncio.get_running_loop()
        failed: OSError = ConnectionError(f"{host} has no address")
        for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            connected = socket.socket(family, kind, protocol)
            try:
                connected.setblocking(False)
                await loop.sock_connect(connected, address)
            except BaseException as error:
                connected.close()
                if not isinstance(error, OSError):
                    raise
                failed = error
            else:
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return cls(connected)
        raise failed

    async def exchange(self, request: bytes) -> Answer:
        """Send a request and wait for its answer, however long that takes: it comes when the bytes are there."""
        try:
            await self._loop.sock_sendall(self._socket, request)
            head = self._ahead
            while HEAD_ENDS not in head:
                if len(head) > LONGEST_HEAD:
                    raise HttpError("the head is too long")
                piece = await self._loop.sock_recv(self._socket, _HEAD_PIECE)
                if not piece:
                    raise ConnectionResetError("the server hung up")
                head += piece
            text, _, self._ahead = head.partition(HEAD_ENDS)
            return parse_answer(text + HEAD_ENDS)
        except BaseException:
            self.close()
            raise

    async def take(self, length: int, put: Callable[[memoryview], None]) -> None:
        """Have the next so many bytes put away, piece by piece."""
        ahead, self._ahead = self._ahead[:length], self._ahead[length:]
        if ahead:
            put(memoryview(ahead))
            length -= len(ahead)
        buffer = memoryview(bytearray(min(_PIECE, length)))
        while length:
            got = await self._loop.sock_recv_into(self._socket, buffer[: min(len(buffer), length)])
            if not got:
                raise ConnectionResetError("the connection broke off within a range")
            put(buffer[:got])
            length -= got

    def close(self) -> None:
        """Hang up."""
        self._socket.close()
