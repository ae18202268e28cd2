"""A store in the memory of one process: what persistent objects live in while a program is only simulated."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from uuid import uuid4

from penstock.persistent.manifest import STAMP, Entry
from penstock.persistent.stores import Buffer, Change, Store

__all__ = ["MemoryStore"]


class MemoryStore(Store):
    """Dictionaries. Gone with the process."""

    def __init__(self, url: str = "memory:") -> None:
        super().__init__(url)
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

    def close(self) -> None:
        """Nothing to let go of."""
