"""What every store of persistent objects can do, and how: objects in, objects out, one state replaced by another.

    put ─▶ stage: bytes under new names ─▶ switch: the manifest is exchanged ─▶ the bytes it no longer names are erased

Whoever dies on the way leaves the old state or the new one, and perhaps bytes that nobody names: he has noted which
(runs.py), so that who comes next removes them (upkeep.py). A backend says only where manifests and blocks lie.
"""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from uuid import uuid4

from msgspec.structs import replace

from penstock.errors import MissingObject, StorageError, StoreUnreachable
from penstock.persistent.conflicts import meant
from penstock.persistent.manifest import STAMP, Entry, Manifest, decode, encode, layout, parts_of
from penstock.persistent.requests import Buffer, Change, Fetched, Found, Staged, Wanted
from penstock.persistent.runs import Runs, note_of
from penstock.persistent.switching import PATIENCE, Switch, pause
from penstock.persistent.where import settings, shown

__all__ = ["Buffer", "Change", "Fetched", "Found", "Staged", "Store", "Wanted"]

#: objects up to this size are in their manifest
_INLINE = 16 * 1024
#: manifests remembered, so that an object written again costs no reading first
_REMEMBERED = 256
#: how often blocks that were erased under a reader are looked for again
_READS = 8


class Store(ABC):
    """A place for persistent objects that outlives tasks and runs. Safe to be used by several threads."""

    #: bytes of a block
    block_size = 1 << 62
    #: whether objects carry a checksum
    checks = False

    def __init__(self, url: str, runs: Runs) -> None:
        self.url = url
        self.runs = runs
        self._own = uuid4().hex
        #: runs that were held and end with this process
        self.ends: set[str] = set()
        self._known: OrderedDict[str, tuple[bytes, Manifest]] = OrderedDict()
        #: states that this process has noted and will strike
        self._noted: set[str] = set()
        self._dead: set[str] = {""}

    # --- what a backend has -------------------------------------------------------------------------------------

    @abstractmethod
    def _manifests(self, identifiers: Sequence[str]) -> list[bytes | None]:
        """The manifests of these objects, in one go."""

    @abstractmethod
    def _swap(self, changes: Sequence[Change]) -> list[bool]:
        """Exchange manifests, each at one moment; says which still had the stamp they should have."""

    @abstractmethod
    def _write(self, identifier: str, entry: Entry, blocks: Sequence[Sequence[memoryview]]) -> None:
        """Write the blocks of a state; each is given as pieces that follow one another."""

    @abstractmethod
    def _read(self, wanted: Sequence[tuple[str, Entry, bool]]) -> list[list[Buffer] | None]:
        """The blocks of states, in one go, and for each whether they may be changed; None where one is gone."""

    @abstractmethod
    def _erase(self, states: Sequence[tuple[str, Entry]]) -> None:
        """Remove the blocks of states."""

    @abstractmethod
    def locations(self, identifier: str, entry: Entry | None = None) -> list[str]:
        """The hosts that hold an object, found without asking anybody; ``entry`` is the state that is meant."""

    @abstractmethod
    def place(self, host: str) -> str:
        """A new id whose object will lie on a host."""

    def unfinished(self, run: str) -> list[Found]:
        """What a run was writing and has not noted."""
        return []

    @abstractmethod
    def inventory(self) -> Iterator[tuple[str, bytes]]:
        """All objects: their ids, and their manifests."""

    @abstractmethod
    def blocks(self) -> Iterator[Found]:
        """Everything that lies in the store besides manifests."""

    @abstractmethod
    def discard(self, found: Iterable[Found]) -> None:
        """Remove what ``blocks`` or ``unfinished`` has found."""

    # --- writing ------------------------------------------------------------------------------------------------

    def put(self, identifier: str, parts: Sequence[Buffer], kind: str, *, keep: bool = False) -> Entry:
        """Store an object, in the place of what had this id; ``keep`` keeps that for tasks that read it."""
        return self.switch([self.stage(identifier, parts, kind)], keep=keep)[0]

    def stage(
        self,
        identifier: str,
        parts: Sequence[Buffer],
        kind: str,
        *,
        fresh: bool = False,
        base: str | None = None,
        author: str = "",
    ) -> Staged:
        """Write an object's bytes where nobody sees them yet; ``base`` is the token of the state they come from."""
        views = [memoryview(part).cast("B") for part in parts]
        sizes = [len(view) for view in views]
        checksum = _checksum(views) if self.checks else 0
        token = os.urandom(8).hex()
        if sum(sizes) <= _INLINE:
            inline = Entry(0, token, kind, sizes, [], checksum, b"".join(views), author)
            return Staged(identifier, inline, fresh, base)
        blocks = layout(views, self.block_size)
        lengths = [sum(map(len, block)) for block in blocks]
        entry = Entry(0, token, kind, sizes, lengths, checksum, author=author)
        try:
            self._stake([(identifier, entry)])
            self._write(identifier, entry, blocks)
        except BaseException:
            self._clear_away([(identifier, entry)])
            raise
        return Staged(identifier, entry, fresh, base)

    def switch(self, staged: Sequence[Staged], *, keep: bool = False) -> list[Entry]:
        """Make staged states the current ones: all of them, or none if one was made from another than the current.

        ``keep`` keeps the states before them for readers of this run, until they are dropped.
        """
        return Switch(self, staged, keep=keep).carry_out()

    def withdraw(self, staged: Iterable[Staged]) -> None:
        """Remove staged states that are not wanted after all."""
        self._clear_away((one.identifier, one.entry) for one in staged)

    def _newest(self, staged: Sequence[Staged], *, again: bool) -> list[tuple[bytes, Manifest | None]]:
        """Stamp and manifest of what staged states will replace; remembered ones will do, as the exchange tells."""
        found: list[tuple[bytes, Manifest | None] | None] = []
        for one in staged:
            if again:
                self._known.pop(one.identifier, None)
            known = self._known.get(one.identifier)
            found.append((b"", None) if one.fresh and not again and known is None else known)
        asked = [one.identifier for one, known in zip(staged, found, strict=True) if known is None]
        read = iter(self._look(asked) if asked else [])
        return [next(read) if known is None else known for known in found]

    def _look(self, identifiers: Sequence[str]) -> list[tuple[bytes, Manifest | None]]:
        result: list[tuple[bytes, Manifest | None]] = []
        for identifier, data in zip(identifiers, self._manifests(identifiers), strict=True):
            result.append((b"", None) if data is None else (bytes(data[:STAMP]), decode(data, identifier)))
        return result

    def _remember(self, identifier: str, stamp: bytes, manifest: Manifest) -> None:
        self._known[identifier] = (stamp, manifest)
        self._known.move_to_end(identifier)
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def _clear_away(self, states: Iterable[tuple[str, Entry]]) -> None:
        """Remove bytes that nobody names; what cannot be removed now stays noted, and does no harm."""
        states = list(states)
        lying = [(identifier, entry) for identifier, entry in states if entry.blocks]
        try:
            if lying:
                self._erase(lying)
        except StorageError:
            return
        self._settled(entry for _, entry in states)

    # --- who keeps what -----------------------------------------------------------------------------------------

    @property
    def run(self) -> str:
        """The run that this process works for; without one, it is one of its own."""
        return settings.run or self._own

    def hold(self) -> None:
        """Let others know that this run lives."""
        owner = settings.folder is None or settings.desk() is not None
        self.runs.hold(self.run, owner=owner)
        if owner:
            self.ends.add(self.run)

    def lives(self, run: str) -> bool:
        """Whether a run may still want what it keeps."""
        if run not in self._dead:
            with self.runs.ended(run) as ended:
                if not ended:
                    return True
            self._dead.add(run)
        return False

    def _stake(self, states: Sequence[tuple[str, Entry]]) -> None:
        """Note what would be left of states if this process died now."""
        at_stake = [(identifier, entry) for identifier, entry in states if entry.blocks or entry.keeper]
        if at_stake:
            # Notes may lie on another server of a cluster than the objects, which are of use without that one.
            with contextlib.suppress(StoreUnreachable):
                self.hold()
                self.runs.note(self.run, [note_of(*state) for state in at_stake])
            # What is kept is struck by who drops it, which may be another process.
            self._noted.update(entry.token for _, entry in at_stake if not entry.keeper)

    def _settled(self, entries: Iterable[Entry]) -> None:
        """Nothing would be left of these states any more. A note too many does no harm."""
        struck = [entry.token for entry in entries if entry.token in self._noted]
        if struck:
            with contextlib.suppress(StorageError):
                self.runs.strike(self.run, struck)
            self._noted.difference_update(struck)

    def close(self) -> None:
        """Let go of connections and files; a process that is a run of its own leaves nothing of it."""
        if self._own in self.ends and not self._noted:
            self.runs.remove(self._own)
        self.runs.let_go()

    # --- reading ------------------------------------------------------------------------------------------------

    def get(self, wanted: Sequence[Wanted]) -> list[Fetched]:
        """Read many objects, all of them with as few round trips as one."""
        fetched = self._get_known(wanted)
        missing = [index for index in range(len(wanted)) if index not in fetched]
        for _ in range(_READS if missing else 0):
            found = []
            for index, data in zip(missing, self._manifests([wanted[i].identifier for i in missing]), strict=True):
                identifier = wanted[index].identifier
                if data is None:
                    raise MissingObject(f"there is no object {identifier!r} in {self}; was it deleted?")
                manifest = decode(data, identifier)
                self._remember(identifier, bytes(data[:STAMP]), manifest)
                found.append((index, meant(manifest, wanted[index], self)))
            large = [(wanted[i].identifier, entry, wanted[i].writable) for i, entry in found if entry.inline is None]
            read = iter(self._read(large) if large else [])
            missing = []
            for index, entry in found:
                blocks = [entry.inline] if entry.inline is not None else next(read)
                if blocks is None:
                    missing.append(index)  # replaced, and the old one erased, between our two looks
                else:
                    fetched[index] = self._fetched(wanted[index], entry, blocks)
            if not missing:
                break
        if not missing:
            return [fetched[i] for i in range(len(wanted))]
        raise StorageError(
            f"parts of object {wanted[missing[0]].identifier!r} are gone from {self}. A store that throws keys out "
            f"when it is full loses objects: set its maxmemory-policy to noeviction."
        )

    def _get_known(self, wanted: Sequence[Wanted]) -> dict[int, Fetched]:
        """Read what needs no manifest: blocks never change, so if they are there they are those of the state."""
        known = [(i, one, one.entry) for i, one in enumerate(wanted) if one.entry is not None and one.entry.blocks]
        if not known:
            return {}
        read = self._read([(one.identifier, entry, one.writable) for _, one, entry in known])
        found = zip(known, read, strict=True)
        return {i: self._fetched(one, entry, blocks) for (i, one, entry), blocks in found if blocks is not None}

    def _fetched(self, wanted: Wanted, entry: Entry, blocks: Sequence[Buffer]) -> Fetched:
        parts = parts_of(entry.parts, blocks, writable=wanted.writable)
        if self.checks and _checksum(parts) != entry.checksum:
            raise StorageError(
                f"object {wanted.identifier!r} in {self} is damaged: its checksum differs. Store it anew."
            )
        return Fetched(entry, parts)

    def entry(self, identifier: str) -> Entry:
        """Where the current state of an object is."""
        return self._manifest(identifier)[1].current

    def exists(self, *identifiers: str) -> bool:
        """Whether there are objects of all these ids."""
        return all(data is not None for data in self._manifests(identifiers))

    def has_states(self, states: Sequence[tuple[str, str]]) -> bool:
        """Whether all these states, by id and token, are or were current ones."""
        found = self._look([identifier for identifier, _ in states])
        return all(old is not None and old.names(token) for (_, old), (_, token) in zip(found, states, strict=True))

    def _manifest(self, identifier: str) -> tuple[bytes, Manifest]:
        [(stamp, manifest)] = self._look([identifier])
        if manifest is None:
            raise MissingObject(f"there is no object {identifier!r} in {self}; was it deleted?")
        return stamp, manifest

    # --- changing -----------------------------------------------------------------------------------------------

    def _exchange(self, identifier: str, change: Callable[[Manifest], Manifest | None]) -> Manifest | None:
        """Exchange a manifest for what ``change`` makes of it; gives the old one, or None if there is none."""
        for attempt in range(PATIENCE):
            [(stamp, old)] = self._look([identifier])
            if old is None:
                return None
            new = change(old)
            if new is old:
                return old
            gone = [(identifier, one) for one in old.entries() if new is None or not new.names(one.token)]
            self._stake(gone)
            data = None if new is None else encode(new, os.urandom(STAMP))
            self._known.pop(identifier, None)
            if self._swap([Change(identifier, stamp, data)])[0]:
                self._clear_away(gone)
                return old
            pause(attempt)
        raise StorageError(f"object {identifier!r} is changed by others all the time; try again later")

    def delete(self, identifier: str) -> bool:
        """Remove an object; False if there was none."""
        return self._exchange(identifier, lambda manifest: None) is not None

    def drop(self, identifier: str, token: str) -> None:
        """Give up one state, unless it is the current one."""
        self._give_up(identifier, lambda entry: entry.token == token)
        with contextlib.suppress(StoreUnreachable):  # a note too many does no harm
            self.runs.strike(self.run, [token])

    def give_up(self, identifier: str, run: str) -> None:
        """Give up all states that a run keeps of an object."""
        self._give_up(identifier, lambda entry: entry.keeper == run)

    def _give_up(self, identifier: str, unwanted: Callable[[Entry], bool]) -> None:
        def rest(manifest: Manifest) -> Manifest:
            kept = [entry for entry in manifest.kept if not unwanted(entry)]
            return manifest if len(kept) == len(manifest.kept) else replace(manifest, kept=kept)

        self._exchange(identifier, rest)

    def new_version(self, identifier: str, *, preserve: bool = True, host: str | None = None) -> str:
        """Copy an object under a new id, on a host if one is given; without ``preserve`` the copy takes its place."""
        [fetched] = self.get([Wanted(identifier, writable=False)])
        copy = uuid4().hex if host is None else self.place(host)
        self.put(copy, fetched.parts, fetched.entry.kind)
        self._exchange(copy, lambda manifest: replace(manifest, previous=identifier))
        if not preserve:
            self.consolidate_version(copy)
        return copy

    def consolidate_version(self, final: str) -> None:
        """Delete all versions that an object was copied from, one from the other; it stays."""
        chain = [final]
        while True:
            [(_, manifest)] = self._look([chain[-1]])
            if manifest is None and len(chain) == 1:
                raise MissingObject(f"there is no object {final!r} in {self}; was it deleted?")
            if manifest is None or manifest.previous is None or manifest.previous in chain:
                break
            chain.append(manifest.previous)
        # The oldest first: if this is interrupted, the rest can still be followed from the final one.
        for identifier in reversed(chain[1:]):
            self.delete(identifier)
        self._exchange(final, lambda manifest: replace(manifest, previous=None))

    def __str__(self) -> str:
        return f"the store {shown(self.url)}"


def _checksum(parts: Sequence[Buffer]) -> int:
    import xxhash

    digest = xxhash.xxh3_64()
    for part in parts:
        digest.update(part)
    return int(digest.intdigest())
