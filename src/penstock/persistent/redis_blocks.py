"""Large values from Redis straight into memory of their size.

The client's parser collects a reply in pieces and joins them, which for a gigabyte takes longer than the transfer. The
length of each block is known, so its bytes can be received where they belong. Commands are sent ahead of the replies,
to all nodes, as in a pipeline.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["LARGE", "Unreadable", "receive"]

#: bytes from which on a block is worth a way of its own
LARGE = 1024 * 1024
#: bytes that a server is asked for ahead of what was read
_AHEAD = 16 * 1024 * 1024
#: bytes of a reply's first line, at most
_LINE = 64


class Unreadable(Exception):
    """A reply is not what was expected; the ordinary way will tell why."""


class _Node:
    """What is wanted from one server, and how far that is."""

    def __init__(self, pool: Any) -> None:
        self.pool = pool
        self.connection: Any = None
        self.wanted: list[tuple[str, memoryview]] = []
        self._asked = 0
        self._read = 0
        self._under_way = 0

    def ask(self) -> None:
        """Ask for more, but not for so much that the server has to keep it for us."""
        commands = []
        while self._asked < len(self.wanted) and (self._under_way < _AHEAD or self._asked - self._read < 2):
            key, buffer = self.wanted[self._asked]
            commands.append(("GET", key))
            self._asked += 1
            self._under_way += len(buffer)
        if commands:
            self.connection.send_packed_command(self.connection.pack_commands(commands))

    def read_one(self) -> bool:
        """Read the next reply; False if there is none to come."""
        if self._read == len(self.wanted):
            return False
        _, buffer = self.wanted[self._read]
        _read_reply(self.connection._sock, buffer)
        self._read += 1
        self._under_way -= len(buffer)
        self.ask()
        return True


def receive(wanted: Sequence[tuple[Any, str, memoryview]]) -> None:
    """Read values into buffers of their size: each is the connection pool of its node, its key, and the buffer."""
    nodes: dict[int, _Node] = {}
    for pool, key, buffer in wanted:
        nodes.setdefault(id(pool), _Node(pool)).wanted.append((key, buffer))
    try:
        for node in nodes.values():
            node.connection = node.pool.get_connection()
            node.ask()
        left = list(nodes.values())
        while left:
            left = [node for node in left if node.read_one()]  # one from each in turn: all of them send meanwhile
    except BaseException as error:
        for node in nodes.values():
            if node.connection is not None:
                node.connection.disconnect()  # what is under way would be taken for the reply to something else
        if isinstance(error, AttributeError):
            raise Unreadable("the client has no socket of its own") from error
        raise
    finally:
        for node in nodes.values():
            if node.connection is not None:
                node.pool.release(node.connection)


def _read_reply(source: Any, buffer: memoryview) -> None:
    """One reply: ``$`` and its length, a line end, the bytes, a line end."""
    line = bytearray()
    while not line.endswith(b"\r\n"):
        if len(line) > _LINE:
            raise Unreadable(bytes(line))
        line += _exactly(source, 1)
    if bytes(line) != b"$%d\r\n" % len(buffer):
        raise Unreadable(bytes(line))
    at = 0
    while at < len(buffer):
        received = source.recv_into(buffer[at:])
        if not received:
            raise ConnectionError("the server closed the connection")
        at += received
    if _exactly(source, 2) != b"\r\n":
        raise Unreadable("no end")


def _exactly(source: Any, count: int) -> bytes:
    data: bytes = source.recv(count)
    if not data:
        raise ConnectionError("the server closed the connection")
    return data if len(data) == count else data + _exactly(source, count - len(data))
