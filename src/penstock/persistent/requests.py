"""What stores are asked for, and what they answer: values that all of them and their users share."""

from __future__ import annotations

from typing import NamedTuple

from penstock.persistent.manifest import Entry

__all__ = ["Buffer", "Change", "Fetched", "Found", "Staged", "Wanted"]

Buffer = bytes | bytearray | memoryview


class Staged(NamedTuple):
    """A state whose bytes are in the store, and that nobody sees yet."""

    identifier: str
    entry: Entry
    #: no object has had this id
    fresh: bool = False
    #: the token of the state that it was made from, and may replace; None: any
    base: str | None = None


class Wanted(NamedTuple):
    """An object to be read: its newest state, or the one of a token if that is still kept."""

    identifier: str
    token: str | None = None
    writable: bool = True
    #: the state of the token, if the reader knows where its blocks are
    entry: Entry | None = None
    #: the task that will update it, and so needs the newest state
    author: str = ""


class Fetched(NamedTuple):
    """An object as it was read."""

    entry: Entry
    parts: list[Buffer]


class Change(NamedTuple):
    """A manifest to be exchanged, if it still has the stamp; an empty stamp means that there is none yet."""

    identifier: str
    stamp: bytes
    #: ``None`` removes it
    manifest: bytes | None
    #: what it names and the one before did not
    entry: Entry | None = None


class Found(NamedTuple):
    """Bytes that lie in a store."""

    #: the token of the state that they belong to
    name: str
    #: the file or key
    place: str
    size: int
    #: the run that has not finished them; empty: it is not known which
    run: str = ""
