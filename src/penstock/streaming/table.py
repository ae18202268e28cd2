"""The shared table from Python: what the server does with it.

A process is attached to one table at a time. The code is ``libpenstock_table.so``; ctypes lets other threads run
during a call, so waits may be made in a thread of their own.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from ctypes import byref, c_bool, c_char_p, c_int, c_int32, c_size_t, c_uint32, c_uint64
from typing import Any

import msgspec

from penstock.errors import ConfigError, InternalError
from penstock.streaming.directories import CMeasure, Measure
from penstock.streaming.native import interposer_path, table_library
from penstock.streaming.table_records import (
    NONE,
    OTHER,
    AppState,
    Born,
    CCapacities,
    CClass,
    CInfo,
    CProcess,
    CRecord,
    CWait,
    Flag,
    Info,
    Note,
    Process,
    ProcessState,
    Record,
    ServerState,
    SlotRule,
    Unseen,
    UnseenAre,
    Violation,
    Wait,
    WaitKind,
    info_of,
    process_of,
    records_of,
    wait_of,
)

__all__ = [
    "NONE",
    "OTHER",
    "AppState",
    "Born",
    "Flag",
    "Info",
    "Note",
    "Process",
    "ProcessState",
    "Record",
    "ServerState",
    "SlotRule",
    "Table",
    "Unseen",
    "UnseenAre",
    "Violation",
    "Wait",
    "WaitKind",
    "interposer_path",
]

_u32, _u64, _name = c_uint32, c_uint64, (c_char_p, c_size_t)
_pointer = ctypes.POINTER
# Result and arguments of every call, as in table.h.
_CALLS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "ps_create": (c_int, (c_char_p, c_char_p, _pointer(c_char_p), _u32, _pointer(CCapacities), c_char_p, _u32, _u64)),
    "ps_attach": (c_int, (c_char_p,)),
    "ps_detach": (None, ()),
    "ps_serve": (None, (_u32,)),
    "ps_server_lives": (c_bool, ()),
    "ps_classify": (None, (*_name, _pointer(CClass))),
    "ps_matches": (c_bool, (*_name, *_name)),
    "ps_reaches": (c_bool, (*_name, *_name)),
    "ps_lookup": (_u32, _name),
    "ps_obtain": (_u32, _name),
    "ps_now": (_u32, (_u32,)),
    "ps_born": (None, (_u32, _u32, c_int)),
    "ps_removed": (None, (_u32, _u32)),
    "ps_renamed": (None, (*_name, *_name, _u32)),
    "ps_linked": (None, (_u32, _u32, _u32)),
    "ps_writer_opened": (_u32, (_u32, _u32, _u32, _u32)),
    "ps_writer_wrote": (None, (_u32, _u32, _u32, _u32)),
    "ps_writer_closed": (None, (_u32, _u32)),
    "ps_process_begin": (_u32, (_u32, c_int32, _pointer(c_bool))),
    "ps_process_adopt": (None, (_u32, _pointer(_u32), _u32, _pointer(_u32))),
    "ps_process_fork": (_u32, (_u32,)),
    "ps_process_became": (None, (_u32,)),
    "ps_process_started": (None, (_u32, c_int)),
    "ps_process_end": (None, (_u32,)),
    "ps_process_reap": (None, (_u32,)),
    "ps_truncated": (None, (_u32, _u64)),
    "ps_consumed": (None, (_u32, _u32, _u64)),
    "ps_consumed_of": (_u64, (_u32, _u32)),
    "ps_consumed_by_all": (_u64, (_u32,)),
    "ps_punched": (None, (_u32, _u64)),
    "ps_give_back": (c_bool, (_u32, _u64)),
    "ps_freed": (None, (_u32, _u64)),
    "ps_spare": (_u64, (_u32,)),
    "ps_next_spare": (_u32, (_u32,)),
    "ps_wait_born": (c_int, (_u32, _u32)),
    "ps_ask": (c_int, (_u32, _u32, _u32, _u64, _u64)),
    "ps_listable": (c_bool, (_u32, _u32, _u64)),
    "ps_wait_entry": (c_int, (_u32, _u32, _pointer(_u32))),
    "ps_next_entry": (_u32, (_u32, _u32, _u32)),
    "ps_note": (None, (c_int, _u32, _u64, _u64)),
    "ps_drain": (_u32, (_pointer(CRecord), _u32)),
    "ps_overflowed": (c_bool, ()),
    "ps_wait_journal": (c_bool, (_u32,)),
    "ps_wake_server": (None, ()),
    "ps_commit": (None, (_u32,)),
    "ps_app_state": (None, (_u32, _u32)),
    "ps_app_over": (None, (_u32, _u32, c_char_p)),
    "ps_abort": (None, (c_char_p,)),
    "ps_set_flags": (None, (_u32, _u32, _u32)),
    "ps_settle": (_u32, ()),
    "ps_slot_info": (c_bool, (_u32, _pointer(CInfo))),
    "ps_iterate": (_u32, (_u32, _u32, _u32, _pointer(CInfo), _u32)),
    "ps_processes": (_u32, (_u32, _pointer(CProcess), _u32)),
    "ps_waits": (_u32, (_pointer(CWait), _u32)),
    "ps_let_go_on": (None, (_u32, _u64)),
    "psx_written": (None, (_u32, _u64, _u64)),
    "psx_seen": (None, (_u32, _u64, _u64)),
    "psx_wait_range": (c_int, (_u32, _u32, _u64, _u64, c_int)),
    "psx_wait_committed": (c_int, (_u32, _u32)),
    "psx_wait_room": (c_int, (_u32, _u32, _u64, _u64)),
    "psx_awaited": (_u64, (_u32, _u32)),
    "psx_awaited_where_it_is": (_u64, (_u32, _u32)),
    "psx_awaits_nobody": (c_bool, (_u32, _u32)),
    "psx_set_limit": (None, (_u64,)),
    "psx_set_room": (None, (_u64,)),
    "psx_room": (_u64, ()),
    "psx_taken": (_u64, ()),
    "psx_set_unseen": (None, (_u32,)),
    "psx_set_view": (None, (_u64, _pointer(CMeasure))),
    "psx_lock_everything": (None, ()),
    "psx_claim_record": (None, ()),
    "psx_take_halfway": (None, (_u32, _u64)),
}
_AT_ONCE = 512


def library() -> ctypes.CDLL:
    """The loaded library with its signatures."""
    code = table_library()
    create: Any = code.ps_create
    if create.argtypes is None:
        for name, (result, arguments) in _CALLS.items():
            call = getattr(code, name)
            call.restype, call.argtypes = result, arguments
    return code


def name_words(name: str | bytes) -> tuple[bytes, int]:
    encoded = os.fsencode(name)
    return encoded, len(encoded)


class Table:
    """The table this process is attached to."""

    def __init__(self, path: str, limit: int = 0) -> None:
        self.path, self.limit = path, limit
        self.code = library()
        self._records = (CRecord * _AT_ONCE)()
        self._owned = False

    @classmethod
    def create(
        cls,
        path: str,
        workflow: str,
        roots: list[str],
        rules: bytes,
        *,
        limit: int = 0,
        slots: int = 0,
        processes: int = 0,
        extents: int = 0,
        ring: int = 0,
        names_bytes: int = 0,
    ) -> Table:
        """Make the file and attach to it; capacities of 0 mean the default. ``close`` removes the file again."""
        table = cls(path, limit)
        spellings = (c_char_p * len(roots))(*(os.fsencode(root) for root in roots))
        capacities = CCapacities(slots, processes, 0, extents, ring, names_bytes)
        error = table.code.ps_create(
            os.fsencode(path), os.fsencode(workflow), spellings, len(roots), byref(capacities), rules, len(rules), limit
        )
        _check(error, path)
        table._owned = True
        return table

    @classmethod
    def attach(cls, path: str) -> Table:
        """Join a table that another process made."""
        table = cls(path)
        _check(table.code.ps_attach(os.fsencode(path)), path)
        return table

    def close(self) -> None:
        """Let go of it; its maker removes the file."""
        self.code.ps_detach()
        if self._owned:
            self._owned = False
            try:
                os.unlink(self.path)
            except FileNotFoundError:
                pass

    # --- the server's side --------------------------------------------------------------------------------------------

    def serve(self, state: ServerState) -> None:
        """This process is the server, in that state."""
        self.code.ps_serve(state)

    def drain(self, most: int = _AT_ONCE) -> list[Record]:
        """The next records of the journal, at most so many (and never more than 512)."""
        count = self.code.ps_drain(self._records, min(most, _AT_ONCE))
        return list(records_of(self._records, count))

    def overflowed(self) -> bool:
        """Whether records were lost since the last time this was asked."""
        return bool(self.code.ps_overflowed())

    def wait_journal(self, milliseconds: int) -> bool:
        """Sleep until there are records; for a thread of its own."""
        return bool(self.code.ps_wait_journal(milliseconds))

    def wake_server(self) -> None:
        """End ``wait_journal``."""
        self.code.ps_wake_server()

    def commit(self, slot: int) -> None:
        self.code.ps_commit(slot)

    def settle(self) -> int:
        """Commit what only apps made that are over, and none of them failed; how many that were."""
        return int(self.code.ps_settle())

    def app_state(self, app: int, state: AppState) -> None:
        self.code.ps_app_state(app, state)

    def app_over(self, app: int, state: int, how: str = "") -> None:
        """A step has ended; ``how`` completes the sentence "its producer x …" for readers of what it left undone."""
        self.code.ps_app_over(app, state, how.encode(errors="surrogateescape"))

    def abort(self, text: str) -> None:
        """Every wait fails from now on, with this text on the program's stderr."""
        self.code.ps_abort(text.encode(errors="surrogateescape"))

    def set_limit(self, limit: int) -> None:
        self.limit = limit
        self.code.psx_set_limit(limit)

    @property
    def room(self) -> int:
        """How much all bounded files together may take, and ``taken`` what they do."""
        return int(self.code.psx_room())

    @property
    def taken(self) -> int:
        return int(self.code.psx_taken())

    def set_room(self, room: int) -> None:
        self.code.psx_set_room(room)

    def set_view(self, device: int, measure: Measure) -> None:
        """Programs that see another device there are not to be started; directories on it are told to be so."""
        self.code.psx_set_view(device, byref(CMeasure(*msgspec.structs.astuple(measure))))

    def set_unseen(self, unseen_are: UnseenAre) -> None:
        """Say what is done when a program starts one that the library cannot get into."""
        self.code.psx_set_unseen(unseen_are)

    def set_flags(self, slot: int, set_: int, clear: int = 0) -> None:
        self.code.ps_set_flags(slot, set_, clear)

    def punched(self, slot: int, offset: int) -> None:
        """To be said before [0, offset) is given back."""
        self.code.ps_punched(slot, offset)

    def give_back(self, slot: int, end: int) -> bool:
        """The same for a file that was opened before; whether it is still that one, and nobody needs those bytes."""
        return bool(self.code.ps_give_back(slot, end))

    def freed(self, slot: int, offset: int) -> None:
        """To be said after that: writers may have the room."""
        self.code.ps_freed(slot, offset)

    def spare(self, slot: int) -> int:
        """Up to where a file may be given back now; 0 if there is nothing."""
        return int(self.code.ps_spare(slot))

    def spares(self) -> Iterator[int]:
        """The files of which there is something to give back."""
        slot = self.code.ps_next_spare(0)
        while slot != NONE:
            yield int(slot)
            slot = self.code.ps_next_spare(slot + 1)

    def consumed_by_all(self, slot: int) -> int:
        return int(self.code.ps_consumed_by_all(slot))

    def consumed_by(self, slot: int, app: int) -> int:
        return int(self.code.ps_consumed_of(slot, app))

    def process_reap(self, process: int) -> None:
        """The kernel says the process is gone: let go of what it held."""
        self.code.ps_process_reap(process)

    # --- looking ------------------------------------------------------------------------------------------------------

    def lookup(self, name: str) -> int | None:
        slot = self.code.ps_lookup(*name_words(name))
        return None if slot == NONE else int(slot)

    def obtain(self, name: str) -> int | None:
        """The slot of a name, made if need be; None: the table is full."""
        slot = self.code.ps_obtain(*name_words(name))
        return None if slot == NONE else int(slot)

    def info(self, slot: int) -> Info | None:
        """What is known of a slot; one that was renamed says where to in ``moved_to``."""
        found = CInfo()
        return info_of(found) if self.code.ps_slot_info(slot, byref(found)) else None

    def iterate(self, set_: int = 0, clear: int = 0) -> list[Info]:
        """Slots with all the first flags and none of the second, in the order of their making."""
        found = (CInfo * _AT_ONCE)()
        slots: list[Info] = []
        start = 0
        while count := self.code.ps_iterate(start, set_, clear, found, _AT_ONCE):
            slots.extend(info_of(found[i]) for i in range(count))
            start = found[count - 1].slot + 1
        return slots

    def processes(self) -> list[Process]:
        found = (CProcess * _AT_ONCE)()
        processes: list[Process] = []
        start = 0
        while count := self.code.ps_processes(start, found, _AT_ONCE):
            processes.extend(process_of(found[i]) for i in range(count))
            start = found[count - 1].process + 1
        return processes

    def waits(self) -> list[Wait]:
        """Who sleeps for what, now."""
        found = (CWait * _AT_ONCE)()
        return [wait_of(found[i]) for i in range(self.code.ps_waits(found, _AT_ONCE))]

    def classify(self, name: str) -> CClass:
        """What the rules say of a name."""
        found = CClass()
        self.code.ps_classify(*name_words(name), byref(found))
        return found


def _check(error: int, path: str) -> None:
    if error == errno.EBUSY:
        raise InternalError(f"{path}: this process is attached to another table already")
    if error == errno.EINVAL:
        raise ConfigError(f"{path} is not a table of this version of penstock, or its rules are damaged")
    if error:
        raise ConfigError(f"the shared table {path}: {os.strerror(error)}")
