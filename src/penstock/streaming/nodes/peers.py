"""The nodes of a workflow: who they are, where they listen, and the secret they share.

The list is the same on all nodes, as a file (one node per line: ``NAME``, or ``NAME HOST:PORT``) or in one line
(``a=10.0.0.1:7077,b=10.0.0.2:7077``). Its order counts for the policy ``hashing``.
"""

from __future__ import annotations

import os
import socket
import stat

from msgspec import Struct

from penstock.errors import ConfigError

__all__ = [
    "LOST_AFTER",
    "PORT",
    "SHORTEST_LOST_AFTER",
    "Node",
    "NodeSettings",
    "chosen_node",
    "read_nodes",
    "read_token",
]

#: where servers listen if the list does not say
PORT = 7077
#: bytes that are fetched ahead of what a reader has asked for
_PREFETCH = 16 << 20
#: seconds after which a node of which nothing is heard is taken for dead
LOST_AFTER = 5.0
#: less is no time for a busy machine
SHORTEST_LOST_AFTER = 2.0
_SHORTEST_TOKEN = 16


class Node(Struct, frozen=True):
    """One server, as the others reach it."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name} ({self.host}:{self.port})"


class NodeSettings(Struct, frozen=True):
    """All that a server needs to know of the others."""

    nodes: tuple[Node, ...]
    own: Node
    token: str
    #: host and port to listen on; None is what the others use
    listen: tuple[str, int] | None = None
    prefetch: int = _PREFETCH
    lost_after: float = LOST_AFTER


def read_nodes(given: str) -> tuple[Node, ...]:
    """The nodes of a file or of one line; ConfigError says which entry is wrong."""
    if "=" in given:
        entries = [entry.replace("=", " ", 1) for entry in given.split(",") if entry.strip()]
    else:
        try:
            with open(given, encoding="utf-8") as file:
                entries = [line.partition("#")[0] for line in file]
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"--nodes: {given} is neither a readable file nor a list like a=host:{PORT},b=host:{PORT}: {error}"
            ) from None
    nodes = tuple(_node(entry.split(), given) for entry in entries if entry.strip())
    for what in ("name", "host and port"):
        seen: set[object] = set()
        for node in nodes:
            key: object = node.name if what == "name" else (node.host, node.port)
            if key in seen:
                raise ConfigError(f"--nodes: two nodes of {given} have the same {what}: {node}")
            seen.add(key)
    if not nodes:
        raise ConfigError(f"--nodes: {given} names no node")
    return nodes


def _node(words: list[str], given: str) -> Node:
    if len(words) > 2:
        raise ConfigError(f"--nodes: {' '.join(words)!r} in {given} is not NAME or NAME HOST:PORT")
    host, port = split_address(words[1] if len(words) == 2 else words[0], f"--nodes: {given}")
    return Node(words[0], host, port)


def split_address(text: str, where: str) -> tuple[str, int]:
    """``host:port``, ``host`` or ``[v6]:port``."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(PORT)
    if not port.isdigit() or not 0 < int(port) < 65536 or not host:
        raise ConfigError(f"{where}: {text!r} is not HOST or HOST:PORT")
    return host.strip("[]"), int(port)


def chosen_node(nodes: tuple[Node, ...], name: str | None) -> Node:
    """Which of them this is: by name, or else by the name of this machine."""
    here = socket.gethostname()
    wanted = (name,) if name else (here, here.partition(".")[0])
    for node in nodes:
        if node.name in wanted:
            return node
    known = ", ".join(node.name for node in nodes)
    said = f"--node {name}" if name else f"this machine, {here},"
    raise ConfigError(f"{said} is not in the list of nodes: {known}" + ("" if name else "; say which with --node"))


def read_token(path: str) -> str:
    """The secret; a file that others can read is refused."""
    try:
        about = os.stat(path)
        with open(path, encoding="ascii") as file:
            token = file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the token in {path}: {error}") from None
    if stat.S_IMODE(about.st_mode) & 0o077:
        raise ConfigError(f"others may read the token in {path}: chmod 600 {path}")
    if len(token) < _SHORTEST_TOKEN or not token.isprintable() or " " in token:
        raise ConfigError(
            f"the token in {path} must be one word of at least {_SHORTEST_TOKEN} characters; "
            f"make one: (umask 077; openssl rand -hex 32 > {path})"
        )
    return token
