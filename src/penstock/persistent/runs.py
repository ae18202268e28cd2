"""Who uses a store now, and what would be left if he died: a lease for each run, and notes.

    note ─▶ bytes are written, or a manifest is exchanged ─▶ strike

A run notes each state that it is writing, is about to erase, or keeps for its readers, before it does so. Whoever comes
next and finds that the run is no more (upkeep.py) knows by the notes where to look. That a run is no more is never
concluded from a clock of ours: a backend says how it is known. A process that belongs to no run is one of its own.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.persistent.manifest import Entry

__all__ = ["Note", "Runs", "decode_note", "encode_note", "note_of", "proof_of_life", "proves_death"]


class Note(Struct, frozen=True, array_like=True):
    """A state that may have to be removed: whose it is, and where its blocks are."""

    identifier: str
    entry: Entry


encode_note = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Note).decode


def note_of(identifier: str, entry: Entry) -> Note:
    """The note of a state, the same whoever makes it; its bytes, if they are in the manifest, go with that."""
    return Note(identifier, replace(entry, inline=None, keeper="", generation=0, base=""))


def decode_note(data: bytes) -> Note | None:
    """A note again; None if it was not written to its end, before anything else was."""
    try:
        return _decode(data)
    except msgspec.DecodeError:
        return None


class Runs(ABC):
    """The runs that use a store."""

    @abstractmethod
    def hold(self, run: str, *, owner: bool) -> None:
        """Let others know that a run lives, until ``let_go`` or the end of this process; ``owner``: it ends with it."""

    @abstractmethod
    def let_go(self) -> None:
        """This process holds no run any more."""

    @abstractmethod
    def abandon(self) -> None:
        """In a child of fork: what the parent holds is not held by this process."""

    @abstractmethod
    def note(self, run: str, notes: Sequence[Note]) -> None:
        """Note states of a run that is held."""

    @abstractmethod
    def strike(self, run: str, tokens: Iterable[str]) -> None:
        """States that are as they should be, or gone."""

    @abstractmethod
    def notes(self, run: str) -> list[Note]:
        """What a run has noted."""

    @abstractmethod
    def known(self) -> list[str]:
        """All runs, living or dead."""

    @abstractmethod
    def ended(self, run: str) -> AbstractContextManager[bool]:
        """Whether a run is no more; in this block it cannot be taken up again unnoticed."""

    @abstractmethod
    def remove(self, run: str) -> None:
        """Forget a run of which nothing is left."""


# --- proofs -----------------------------------------------------------------------------------------------------------


def proof_of_life(pid: int | None = None) -> str:
    """Names a process for all time: its machine since it was started, its process table, its number, its start."""
    pid = os.getpid() if pid is None else pid
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, *fields = file.read().rpartition(b")")[2].split()
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        return "" if state == b"Z" else f"{boot} {os.readlink('/proc/self/ns/pid')} {pid} {fields[18].decode()}"
    except OSError:
        return ""


def proves_death(proof: str) -> bool:
    """Whether a process is seen to be no more; False for one that cannot be seen from here."""
    boot, _, rest = proof.partition(" ")
    namespace, _, process = rest.partition(" ")
    pid = process.partition(" ")[0]
    here = proof_of_life()
    return bool(pid.isdigit() and here.startswith(f"{boot} {namespace} ")) and proof_of_life(int(pid)) != proof
