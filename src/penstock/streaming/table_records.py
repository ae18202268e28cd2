"""Records of the shared table as Python sees them: the numbers of ``table.h``, ctypes mirrors, and plain values.

``table`` fills the mirrors by calls into the library and hands out the values.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
from collections.abc import Iterator
from ctypes import c_int32, c_uint8, c_uint16, c_uint32, c_uint64
from enum import IntEnum, IntFlag

import msgspec

__all__ = [
    "NONE",
    "OTHER",
    "AppState",
    "Flag",
    "Info",
    "Note",
    "Process",
    "ProcessState",
    "Record",
    "ServerState",
    "SlotRule",
    "Unseen",
    "UnseenAre",
    "Violation",
    "Wait",
    "WaitKind",
]

#: no slot, no process, no holding
NONE = 0xFFFFFFFF
#: programs that name no step, or one that the rules do not know
OTHER = 63


class Flag(IntEnum):
    """What is known of a slot. Combined they are plain numbers: an ``IntFlag`` takes microseconds for each ``&``."""

    BORN = 1 << 0
    COMMITTED = 1 << 1
    DIRECTORY = 1 << 2
    SYMLINK = 1 << 3
    STREAMED = 1 << 4
    SPARSE = 1 << 5
    MAPPED = 1 << 6
    READS_BACK = 1 << 7
    REMOVED = 1 << 8
    MOVED = 1 << 9
    LINKED = 1 << 10
    COUNTED = 1 << 11
    PERMANENT_FILE = 1 << 12
    TEMPORARY_FILE = 1 << 13
    REMOTE = 1 << 14
    WARNED = 1 << 15
    DECLARED = 1 << 16
    FULL = 1 << 17
    JUDGED = 1 << 18
    DECLARED_DIRECTORY = 1 << 19
    SHOWN = 1 << 20


class Born(IntFlag):
    """What came into being."""

    FILE = 0
    DIRECTORY = 1
    SYMLINK = 2
    NOT_COUNTED = 4


class ServerState(IntEnum):
    STARTING = 0
    RUNS = 1
    STOPS = 2


class AppState(IntEnum):
    COMING = 0
    RUNS = 1
    OVER = 2
    FAILED = 3


class ProcessState(IntEnum):
    FREE = 0
    CLAIMED = 1
    STARTING = 2
    ALIVE = 3
    ENDED = 4


class WaitKind(IntEnum):
    NOTHING = 0
    BORN = 1
    RANGE = 2
    COMMITTED = 3
    ENTRY = 4
    ROOM = 5
    TURN = 7


class Note(IntEnum):
    HELLO = 1
    FORK = 2
    BYE = 3
    NEW = 4
    BORN = 5
    OPENED = 6
    CLOSED = 7
    COMMITTED = 8
    REMOVED = 9
    MOVED = 10
    VIOLATION = 11
    WAITING = 12
    WENT_ON = 13
    CONSUMED = 14
    FULL = 15
    SAYS = 16


class Violation(IntEnum):
    FOREIGN_WRITER = 1
    WRITTEN_AFTER_COMMIT = 2
    REWRITTEN = 3
    REMOVED_ENTRY = 4
    READ_PUNCHED = 5
    RENAMED_ENTRY = 6
    UNSEEN_PROGRAM = 7


class Unseen(IntEnum):
    """Why the library cannot get into a program."""

    STATIC = 1
    GO = 2
    MUSL = 3
    OTHER_MACHINE = 4
    PRIVILEGED = 5


class UnseenAre(IntEnum):
    """What is done about programs that the library cannot get into, when a program of a step starts one."""

    SAID = 0
    TOLD = 1
    REFUSED = 2


# --- mirrors of C ---------------------------------------------------------------------------------------------------


class CRule(ctypes.Structure):
    _fields_ = [("commit", c_uint8), ("fire", c_uint8), ("serial", c_uint16), ("n", c_uint32)]


class CRecord(ctypes.Structure):
    _fields_ = [
        ("kind", c_uint8),
        ("reserved", c_uint8),
        ("app", c_uint16),
        ("pid", c_int32),
        ("slot", c_uint32),
        ("process", c_uint32),
        ("a", c_uint64),
        ("b", c_uint64),
        ("time_ns", c_uint64),
        ("reserved2", c_uint64),
    ]


_WIDE = (
    "solid",
    "high",
    "serial",
    "producers",
    "makers",
    "consumers",
    "consumed",
    "punched",
    "born_ns",
    "committed_ns",
)
_NARROW = ("closes", "entries", "waiters", "parent", "moved_to", "home", "n_extents", "mark")


class CInfo(ctypes.Structure):
    _fields_ = [
        ("slot", c_uint32),
        ("flags", c_uint32),
        *((name, c_uint64) for name in _WIDE),
        *((name, c_uint32) for name in _NARROW),
        ("writers", c_int32),
        ("name_bytes", c_uint32),
        ("file", CRule),
        ("directory", CRule),
        ("name", ctypes.c_void_p),
    ]


class CProcess(ctypes.Structure):
    _fields_ = [
        ("process", c_uint32),
        ("state", c_uint32),
        ("pid", c_int32),
        ("logic", c_int32),
        ("birth", c_uint64),
        ("since_ns", c_uint64),
        ("app", c_uint32),
        ("parent", c_uint32),
        ("holdings", c_uint32),
        ("mark", c_uint32),
    ]


class CWait(ctypes.Structure):
    _fields_ = [
        ("process", c_uint32),
        ("kind", c_uint32),
        ("slot", c_uint32),
        ("app", c_uint32),
        ("pid", c_int32),
        ("reserved", c_uint32),
        ("start", c_uint64),
        ("end", c_uint64),
        ("since_ns", c_uint64),
    ]


class CCapacities(ctypes.Structure):
    _fields_ = [
        *((name, c_uint32) for name in ("slots", "processes", "blocks", "extents", "ring")),
        ("names_bytes", c_uint64),
    ]


class CClass(ctypes.Structure):
    _fields_ = [
        ("excluded", ctypes.c_bool),
        ("file_ruled", ctypes.c_bool),
        ("dir_ruled", ctypes.c_bool),
        ("lasting", c_uint8),
        ("producers", c_uint64),
        ("makers", c_uint64),
        ("consumers", c_uint64),
        ("file", CRule),
        ("directory", CRule),
        ("file_entry", c_uint32),
        ("dir_entry", c_uint32),
    ]


# --- values ---------------------------------------------------------------------------------------------------------


class SlotRule(msgspec.Struct, frozen=True, gc=False):
    """How a name becomes final: numbers of ``enum ps_commit_kind`` and ``ps_fire_kind``."""

    commit: int
    fire: int
    #: index in the workflow's rules; None: the default
    serial: int | None
    n: int


class Record(msgspec.Struct, frozen=True, gc=False):
    """One note of the journal; ``a`` and ``b`` by kind, as table.h says."""

    kind: Note
    app: int
    pid: int
    slot: int
    process: int
    a: int
    b: int
    time_ns: int


class Info(msgspec.Struct, frozen=True, gc=False):
    """One slot, at one moment."""

    slot: int
    name: str
    #: of ``Flag``
    flags: int
    #: bytes [0, solid) are written; ``high`` is the end of the last byte known to be written
    solid: int
    high: int
    serial: int
    producers: int
    makers: int
    consumers: int
    consumed: int
    punched: int
    born_ns: int
    committed_ns: int
    closes: int
    entries: int
    waiters: int
    writers: int
    parent: int | None
    moved_to: int | None
    n_extents: int
    file: SlotRule
    directory: SlotRule


class Process(msgspec.Struct, frozen=True, gc=False):
    """One program. ``pid`` is 0 between its making and its first breath."""

    process: int
    state: ProcessState
    pid: int
    birth: int
    app: int
    logic: int | None
    parent: int | None
    holdings: int
    since_ns: int


class Wait(msgspec.Struct, frozen=True, gc=False):
    """Somebody who sleeps."""

    process: int
    pid: int
    app: int
    kind: WaitKind
    slot: int
    start: int
    end: int
    since_ns: int


def _or_none(number: int) -> int | None:
    return None if number == NONE else number


# The mirrors are read in one go: the server asks for a slot several times in the life of each file, and an attribute of
# a mirror costs as much as the call.
_RULE = struct.Struct("=BBHI")
_INFO = struct.Struct("=2I10Q5I4xI4xiI8s8sQ")
_RECORD = struct.Struct("=BBHiIIQQQ8x")
_SIZES = [(one.size, ctypes.sizeof(mirror)) for one, mirror in ((_RULE, CRule), (_INFO, CInfo), (_RECORD, CRecord))]
assert all(size == mirrored for size, mirrored in _SIZES)
_NOTES = {int(note): note for note in Note}


@functools.cache  # a workflow has few
def _rule_of(packed: bytes) -> SlotRule:
    commit, fire, serial, n = _RULE.unpack(packed)
    return SlotRule(commit, fire, None if serial == 0xFFFF else serial, n)


# fmt: off
def info_of(c: CInfo) -> Info:
    (
        slot, flags, solid, high, serial, producers, makers, consumers, consumed, punched, born_ns, committed_ns,
        closes, entries, waiters, parent, moved_to, n_extents, writers, name_bytes, file, directory, name,
    ) = _INFO.unpack_from(c)
    return Info(
        slot, os.fsdecode(ctypes.string_at(name, name_bytes)), flags, solid, high, serial, producers, makers, consumers,
        consumed, punched, born_ns, committed_ns, closes, entries, waiters, writers, _or_none(parent),
        _or_none(moved_to), n_extents, _rule_of(file), _rule_of(directory),
    )
# fmt: on


def records_of(mirrors: ctypes.Array[CRecord], count: int) -> Iterator[Record]:
    """The first so many."""
    for kind, _, *values in _RECORD.iter_unpack(memoryview(mirrors).cast("B")[: count * _RECORD.size]):
        yield Record(_NOTES[kind], *values)


def process_of(c: CProcess) -> Process:
    return Process(
        process=c.process,
        state=ProcessState(c.state),
        pid=max(0, c.pid),
        birth=c.birth,
        app=c.app,
        logic=None if c.logic < 0 else c.logic,
        parent=_or_none(c.parent),
        holdings=c.holdings,
        since_ns=c.since_ns,
    )


def wait_of(c: CWait) -> Wait:
    return Wait(c.process, c.pid, c.app, WaitKind(c.kind), c.slot, c.start, c.end, c.since_ns)
