"""A store in the memory of one process: what persistent objects live in while a program is only simulated."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from uuid import uuid4

from penstock.persistent.manifest import STAMP, Entry
from penstock.persistent.runs import Note, Runs
from penstock.persistent.stores import Buffer, Change, Found, Store

__all__ = ["MemoryStore"]


class MemoryStore(Store):
    """Dictionaries. Gone with the process."""

    def __init__(self, url: str = "memory:") -> None:
        super().__init__(url, MemoryRuns())
        self._named: dict[str, bytes] = {}
        self._blocks: dict[str, list[bytes]] = {}
        self._lock = threading.Lock()

    def _manifests(self, identifiers: Sequence[str]) -> list[bytes | None]:
        return [self._named.get(identifier) for identifier in identifiers]

    def _swap(self, changes: Sequence[Change]) -> list[bool]:
        with self._lock:
            return [self._swap_one(change) for change in changes]

    def _swap_one(self, change: Change) -> bool:
        if self._named.get(change.identifier, b"")[:STAMP] != change.stamp:
            return False
        if change.manifest is None:
            self._named.pop(change.identifier, None)
        else:
            self._named[change.identifier] = change.manifest
        return True

    def _write(self, identifier: str, entry: Entry, blocks: Sequence[Sequence[memoryview]]) -> None:
        self._blocks[entry.token] = [b"".join(block) for block in blocks]

    def _read(self, wanted: Sequence[tuple[str, Entry, bool]]) -> list[list[Buffer] | None]:
        return [None if (found := self._blocks.get(entry.token)) is None else [*found] for _, entry, _ in wanted]

    def _erase(self, states: Sequence[tuple[str, Entry]]) -> None:
        for _, entry in states:
            self._blocks.pop(entry.token, None)

    def locations(self, identifier: str, entry: Entry | None = None) -> list[str]:
        return []

    def place(self, host: str) -> str:
        return uuid4().hex

    def inventory(self) -> Iterator[tuple[str, bytes]]:
        yield from list(self._named.items())

    def blocks(self) -> Iterator[Found]:
        for token, blocks in list(self._blocks.items()):
            yield Found(token, token, sum(map(len, blocks)))

    def discard(self, found: Iterable[Found]) -> None:
        for one in found:
            self._blocks.pop(one.place, None)


class MemoryRuns(Runs):
    """The store is that of one process: what it notes goes with it."""

    def __init__(self) -> None:
        self._noted: dict[str, dict[str, Note]] = {}
        self._held: set[str] = set()

    def hold(self, run: str, *, owner: bool) -> None:
        self._noted.setdefault(run, {})
        self._held.add(run)

    def let_go(self) -> None:
        self._held.clear()

    def abandon(self) -> None:
        """A child of fork has a store of its own."""

    def note(self, run: str, notes: Sequence[Note]) -> None:
        self._noted[run].update((one.entry.token, one) for one in notes)

    def strike(self, run: str, tokens: Iterable[str]) -> None:
        for token in tokens:
            self._noted.get(run, {}).pop(token, None)

    def notes(self, run: str) -> list[Note]:
        return list(self._noted.get(run, {}).values())

    def known(self) -> list[str]:
        return list(self._noted)

    @contextlib.contextmanager
    def ended(self, run: str) -> Iterator[bool]:
        yield run not in self._held

    def remove(self, run: str) -> None:
        self._noted.pop(run, None)
