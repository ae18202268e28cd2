"""What servers tell each other about their own node: one JSON object per line, in the order of events.

``Feed`` of one server writes them, the follower in every other reads them. Names are percent-encoded, since files may
be called anything.
"""

from __future__ import annotations

import os
from urllib.parse import quote, unquote_to_bytes

import msgspec
from msgspec import Struct

__all__ = [
    "AppReport",
    "Beat",
    "Born",
    "Committed",
    "HeardLeaving",
    "Joined",
    "Leaving",
    "Moved",
    "Needs",
    "Ran",
    "RemoteRecord",
    "Removed",
    "decode",
    "encode",
    "quoted",
    "unquoted",
]


class Joined(Struct, frozen=True, tag="joined"):
    """Who speaks, and of which workflow; the first line of every connection."""

    node: str
    #: of the coordination file and the list of nodes: all must agree
    digest: str


class Born(Struct, frozen=True, tag="born"):
    """A name was made on this node."""

    name: str
    #: as the shared table has it: file, directory, symbolic link, counted or not
    what: int
    app: int
    mode: int
    #: where a symbolic link leads
    target: str = ""


class Committed(Struct, frozen=True, tag="committed"):
    """A file of this node is final."""

    name: str
    size: int
    mode: int
    mtime_ns: int


class Removed(Struct, frozen=True, tag="removed"):
    """A name is gone."""

    name: str


class Moved(Struct, frozen=True, tag="moved"):
    """A name was changed, and with it the names of all that lies below."""

    old: str
    new: str
    app: int


class Ran(Struct, frozen=True, tag="ran"):
    """A process of a step came to this node."""

    app: int
    instance: int | None


class AppReport(Struct, frozen=True, tag="app"):
    """How a step fares on this node."""

    app: int
    #: programs that ended
    came: int
    lives: bool
    status: int
    how: str


class Needs(Struct, frozen=True, tag="needs"):
    """Whether this node may still want something from the others."""

    needs: bool


class Leaving(Struct, frozen=True, tag="leaving"):
    """This server ends in order: nothing new comes from it."""


class HeardLeaving(Struct, frozen=True, tag="heard_leaving"):
    """This node knows that another one leaves. What it needs of it was told before."""

    node: str


class Beat(Struct, frozen=True, tag="beat"):
    """Nothing to say, but alive."""


RemoteRecord = Joined | Born | Committed | Removed | Moved | Ran | AppReport | Needs | Leaving | HeardLeaving | Beat

_decoder: msgspec.json.Decoder[RemoteRecord] = msgspec.json.Decoder(RemoteRecord)
encode = msgspec.json.Encoder().encode


def decode(line: bytes) -> RemoteRecord:
    """One line of a feed."""
    return _decoder.decode(line)


def quoted(name: str) -> str:
    """A name as it travels."""
    return quote(os.fsencode(name), safe="/")


def unquoted(text: str) -> str:
    """And back."""
    return os.fsdecode(unquote_to_bytes(text))
