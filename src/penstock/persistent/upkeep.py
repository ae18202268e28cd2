"""What the dead have left in a store, found and removed by who comes next; and what a store holds, for its owner.

The notes of a run (runs.py) say where to look. Everything here can be interrupted and begun anew, and can be done by
several at once.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from penstock.errors import StorageError
from penstock.persistent.manifest import Entry, Manifest, decode
from penstock.persistent.stores import Found, Store

__all__ = ["Report", "Stored", "clean", "collect", "inspect", "settle"]


def collect(store: Store) -> None:
    """Remove what runs have left that are no more; a store that does not let us is not worse off than before."""
    with contextlib.suppress(StorageError):
        for run in store.runs.known():
            # What one is not let to remove, another user's for instance, says nothing of the next.
            with contextlib.suppress(StorageError), store.runs.ended(run) as ended:
                if ended and run != store.run:
                    settle(store, run)


def settle(store: Store, run: str) -> None:
    """Remove what a run is keeping, was writing or was about to erase, and forget the run."""
    noted: defaultdict[str, list[Entry]] = defaultdict(list)
    for note in store.runs.notes(run):
        noted[note.identifier].append(note.entry)
    for identifier, entries in noted.items():
        store.give_up(identifier, run)
        [(_, manifest)] = store._look([identifier])
        store._erase(
            [(identifier, e) for e in entries if e.blocks and (manifest is None or not manifest.names(e.token))]
        )
    store.discard(store.unfinished(run))
    store.runs.remove(run)


# --- for the owner of a store -----------------------------------------------------------------------------------------


class Stored(NamedTuple):
    """An object of a store."""

    identifier: str
    manifest: Manifest
    #: tokens of states whose blocks are not all there
    damaged: tuple[str, ...]

    @property
    def current_is_damaged(self) -> bool:
        """Whether the object can no longer be read."""
        return self.manifest.current.token in self.damaged


class Report(NamedTuple):
    """What a store holds."""

    objects: Sequence[Stored]
    #: what is no object of ours
    strange: Sequence[str]
    #: blocks that belong to no state
    orphans: Sequence[Found]
    living: Sequence[str]
    dead: Sequence[str]

    @property
    def left(self) -> list[tuple[str, Entry]]:
        """States that dead runs, or programs that told nobody, have left."""
        return [
            (one.identifier, entry)
            for one in self.objects
            for entry in one.manifest.kept
            if entry.keeper not in self.living
        ]

    @property
    def damaged(self) -> list[Stored]:
        """Objects that cannot be read."""
        return [one for one in self.objects if one.current_is_damaged]

    @property
    def is_fine(self) -> bool:
        """Whether there is nothing to remove or to repair."""
        return not (self.damaged or self.orphans or self.dead or self.left or self.strange)


def inspect(store: Store) -> Report:
    """Look at everything. Blocks first, then notes, then manifests: what a living run is writing is in one of them."""
    blocks: defaultdict[str, list[Found]] = defaultdict(list)
    for found in store.blocks():
        blocks[found.name].append(found)
    living: list[str] = []
    dead: list[str] = []
    noted: set[str] = set()
    for run in store.runs.known():
        with store.runs.ended(run) as ended:
            (dead if ended and run != store.run else living).append(run)
        noted.update(note.entry.token for note in store.runs.notes(run))
    objects: list[Stored] = []
    strange: list[str] = []
    named: set[str] = set()
    for identifier, data in store.inventory():
        try:
            manifest = decode(data, identifier)
        except StorageError:
            strange.append(identifier)
            continue
        named.update(entry.token for entry in manifest.entries())
        lost = tuple(e.token for e in manifest.entries() if not _is_whole(e, blocks))
        objects.append(Stored(identifier, manifest, lost))
    used = named | noted
    orphans = [one for token, found in blocks.items() if token not in used for one in found if one.run not in living]
    if orphans:  # what a living run has erased meanwhile, and forgotten then, is none
        there = {found.place for found in store.blocks()}
        orphans = [one for one in orphans if one.place in there]
    objects = _once_more(store, sorted(objects, key=lambda one: one.identifier))
    return Report(objects, strange, orphans, living, dead)


def _is_whole(entry: Entry, blocks: dict[str, list[Found]]) -> bool:
    return not entry.blocks or sum(one.size for one in blocks.get(entry.token, ())) >= sum(entry.blocks)


def _once_more(store: Store, objects: Sequence[Stored]) -> list[Stored]:
    """An object that was stored after the blocks were listed is not damaged: look at such ones again."""
    result = []
    for one in objects:
        if one.damaged:
            large = [entry for entry in one.manifest.entries() if entry.token in one.damaged]
            read = store._read([(one.identifier, entry, False) for entry in large])
            lost = tuple(e.token for e, found in zip(large, read, strict=True) if found is None)
            result.append(one._replace(damaged=lost))
        else:
            result.append(one)
    return result


def clean(store: Store, report: Report, *, damaged: bool) -> None:
    """Remove what a report says is left; with ``damaged``, also objects that cannot be read."""
    for run in report.dead:
        with store.runs.ended(run) as ended:
            if ended:
                settle(store, run)
    for identifier, entry in report.left:
        store.give_up(identifier, entry.keeper)
    store.discard(report.orphans)
    for one in report.damaged if damaged else ():
        store.delete(one.identifier)
