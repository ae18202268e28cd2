"""One state in the place of another: the exchange of manifests that makes staged states the current ones.

All of them, or none: when one may not replace what is there, or the store fails, the others are taken back. An answer
that does not come leaves open whether the exchange happened. So after a failure we look what there is, and remove bytes
only if no manifest names them; where that cannot be seen, they are left to who comes next.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from penstock.errors import StorageError
from penstock.persistent.conflicts import may_replace, refuse_others
from penstock.persistent.manifest import STAMP, Entry, Manifest, encode
from penstock.persistent.requests import Change, Staged

if TYPE_CHECKING:
    from penstock.persistent.stores import Store

__all__ = ["PATIENCE", "Switch", "pause"]

#: how often a manifest that others keep changing is tried again
PATIENCE = 200


def pause(attempt: int) -> None:
    """Before trying again: longer each time, and not all at once."""
    time.sleep(random.random() * 0.002 * attempt)


class Switch:
    """Staged states on the way to be current ones."""

    def __init__(self, store: Store, staged: Sequence[Staged], *, keep: bool) -> None:
        self._store = store
        self._staged = staged
        self._keep = keep
        #: what was there before, as it was seen last
        self._before: dict[str, Manifest | None] = {}
        #: states that are current now
        self._entries: dict[str, Entry] = {}
        #: states that are in no manifest any more
        self._gone: list[tuple[str, Entry]] = []

    def carry_out(self) -> list[Entry]:
        """Exchange all manifests; gives the states as they are in them."""
        try:
            waiting = list(self._staged)
            for attempt in range(PATIENCE):
                waiting = self._try(waiting, again=attempt > 0)
                if not waiting:
                    break
                if attempt:
                    pause(attempt)
            else:
                raise StorageError(
                    f"object {waiting[0].identifier!r} is changed by others all the time; try again later"
                )
        except BaseException:
            self._undo()
            raise
        self._store._settled([one.entry for one in self._staged])
        self._store._clear_away(self._gone)
        return [self._entries[one.identifier] for one in self._staged]

    def _try(self, waiting: Sequence[Staged], *, again: bool) -> list[Staged]:
        """Exchange those that can be; gives those that somebody else was faster with."""
        olds = self._store._newest(waiting, again=again)
        if again:
            waiting, olds = self._not_there_yet(waiting, olds)
        if not all(may_replace(one, old) for one, (_, old) in zip(waiting, olds, strict=True)):
            olds = self._store._newest(waiting, again=True)  # what is remembered may be old
            refuse_others(waiting, [old for _, old in olds])
        return self._exchange(waiting, olds)

    def _not_there_yet(
        self, waiting: Sequence[Staged], olds: Sequence[tuple[bytes, Manifest | None]]
    ) -> tuple[list[Staged], list[tuple[bytes, Manifest | None]]]:
        """A client that repeats a request whose answer was lost is told that the stamp differs: it is our own."""
        left = []
        for one, (stamp, old) in zip(waiting, olds, strict=True):
            if old is not None and old.names(one.entry.token):
                self._entries[one.identifier] = next(e for e in old.entries() if e.token == one.entry.token)
            else:
                left.append((one, (stamp, old)))
        return [one for one, _ in left], [old for _, old in left]

    def _exchange(self, waiting: Sequence[Staged], olds: Sequence[tuple[bytes, Manifest | None]]) -> list[Staged]:
        store = self._store
        plans = [self._successor(one.entry, old) for one, (_, old) in zip(waiting, olds, strict=True)]
        stakes = [
            (one.identifier, entry)
            for one, (_, old), (new, gone) in zip(waiting, olds, plans, strict=True)
            for entry in [*gone, *(new.kept[:1] if self._keep and old is not None else ())]
        ]
        store._stake(stakes)
        changes = []
        for one, (stamp, old), (new, _) in zip(waiting, olds, plans, strict=True):
            self._before[one.identifier] = old
            changes.append(Change(one.identifier, stamp, encode(new, os.urandom(STAMP)), one.entry))
        missed = []
        for one, (new, gone), change, ok in zip(waiting, plans, changes, store._swap(changes), strict=True):
            if ok:
                assert change.manifest is not None
                self._entries[one.identifier] = new.current
                self._gone += [(one.identifier, entry) for entry in gone]
                store._remember(one.identifier, change.manifest[:STAMP], new)
            else:
                missed.append(one)  # its notes stay: another process of this run may have needed the same
        return missed

    def _successor(self, entry: Entry, old: Manifest | None) -> tuple[Manifest, list[Entry]]:
        """The manifest in which a state takes the place of the current one, and the states that it does not name."""
        if old is None:
            return Manifest(replace(entry, generation=1)), []
        now, run = old.current, self._store.run
        base = now.base if entry.author and now.author == entry.author else now.token
        entry = replace(entry, generation=now.generation + 1, base=base)
        # What others keep is theirs to drop, while they live.
        kept = [one for one in old.kept if (self._keep if one.keeper == run else self._store.lives(one.keeper))]
        gone = [one for one in old.kept if one not in kept]
        if not self._keep:
            return Manifest(entry, kept, old.previous), [now, *gone]
        return Manifest(entry, [replace(now, keeper=run), *kept], old.previous), gone

    def _undo(self) -> None:
        """Put back what was there, and remove the staged bytes."""
        store = self._store
        for one in self._staged:
            store._known.pop(one.identifier, None)
            try:
                [(stamp, now)] = store._look([one.identifier])
                if now is not None and now.current.token == one.entry.token:
                    old = self._before.get(one.identifier)
                    before = None if old is None else encode(old, os.urandom(STAMP))
                    if not store._swap([Change(one.identifier, stamp, before)])[0]:
                        continue  # somebody has made something of it already
                elif now is not None and now.names(one.entry.token):
                    continue
            except StorageError:
                continue  # the store is gone: whatever is in it, is whole
            store._clear_away([(one.identifier, one.entry)])
