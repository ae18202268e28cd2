"""Who waits for whom, in words; and help for a writer that is held back for nothing.

The server asks once a second. A wait that lasts is told once with all that a user needs to see why: reader, file,
offset, producer and rule. A writer held back by the limit while the reader it waits for waits for something else would
wait for ever: its file is let off the limit, or all files together get more room.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from penstock.streaming.apps import State
from penstock.streaming.drain import PAGE
from penstock.streaming.happenings import Stalled, Tell
from penstock.streaming.server import Server
from penstock.streaming.table import Flag, Info, Table, Wait, WaitKind
from penstock.units import format_duration, format_size

__all__ = ["Watchdog", "told_briefly", "told_wait", "waits_for", "waits_of"]

#: seconds that a writer is held back before it is asked whether that makes sense
_HELD = 2.0

_WAITED_FOR = {
    WaitKind.BORN: "{file} to be made",
    WaitKind.RANGE: "bytes {start} to {end} of {file}",
    WaitKind.COMMITTED: "{file} to be final",
    WaitKind.ENTRY: "another entry of the directory {file}, or its end",
    WaitKind.ROOM: "readers of {file}, which is {ahead} ahead of them (--limit)",
    WaitKind.TURN: "the steps before its own, to start {file}",
}


def told_wait(server: Server, wait: Wait, info: Info) -> str:
    """One wait, in words: who, for how long, for what, who has to provide it and by which rule."""
    waited, what = _waited(wait), _wanted(wait, info)
    reader = f"{server.app_name(wait.app)} (process {wait.pid})"
    if wait.kind is WaitKind.TURN:
        return f"{reader} has waited {waited} for {what}, which the library cannot get into"
    rule = server.rule_of(info)
    by = f"{rule.spelled}, {rule.place}" if rule is not None else "on_termination / update, as no rule covers it"
    text = f"{reader} has waited {waited} for {what} [{by}]"
    return f"{text}; {_told_makers(server, wait, info)}"


def told_briefly(wait: Wait, info: Info) -> str:
    """One wait, for a column of a table."""
    return f"{_wanted(wait, info)}, {_waited(wait)}"


def _waited(wait: Wait) -> str:
    return format_duration((time.monotonic_ns() - wait.since_ns) / 1e9)


def _wanted(wait: Wait, info: Info) -> str:
    ahead = format_size(max(0, wait.end - info.consumed))
    return _WAITED_FOR[wait.kind].format(file=info.name, start=wait.start, end=wait.end, ahead=ahead)


def _told_makers(server: Server, wait: Wait, info: Info) -> str:
    if wait.kind is WaitKind.ROOM:
        readers = [name for name in server.names_in(info.consumers) if not server.apps[name].ended]
        return f"its readers: {', '.join(readers) or 'none that is declared'}"
    makers = _makers(info)
    if not makers:
        return "no step is declared to make it"
    progress = f"{format_size(info.high)} written, {info.writers} open for writing, {info.closes:,} × closed"
    if info.flags & Flag.DIRECTORY:
        progress = f"{info.entries} entries so far"
    elif not info.flags & Flag.BORN:
        progress = "not made yet"
    return f"{progress}; made by {', '.join(map(server.told_app, server.names_in(makers)))}"


def _makers(info: Info) -> int:
    if info.flags & Flag.DIRECTORY:
        return info.makers
    return info.producers if info.flags & Flag.BORN else info.producers | info.makers


def waits_for(server: Server, step: str) -> list[str]:
    """The waits that only this step could end, in words."""
    bit = server.apps[step].bit
    return [
        told_wait(server, wait, info)
        for wait, info in waits_of(server)
        if _makers(info) & bit and wait.kind is not WaitKind.ROOM
    ]


def waits_of(server: Server) -> Iterable[tuple[Wait, Info]]:
    """All waits of the moment, each with the file that it is for."""
    for wait in server.table.waits():
        info = server.table.info(wait.slot)
        if info is not None:
            yield wait, info


class Watchdog:
    """Looks at all waits, now and then."""

    def __init__(
        self, server: Server, tell: Tell, patience: float, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._server = server
        self._tell = tell
        self._patience = patience
        self._clock = clock
        self._told: set[tuple[int, int, int]] = set()
        #: how far readers of a held file had come when that was first seen
        self._held: dict[int, tuple[int, int]] = {}

    def look(self) -> None:
        """Tell of waits that have lasted, and let off writers that are held back for nothing."""
        now = self._clock()
        held = set()
        for wait, info in waits_of(self._server):
            waited = (now - wait.since_ns) / 1e9
            if wait.kind is WaitKind.ROOM:
                held.add(wait.slot)
                self._consider(wait, info, now)
            key = (wait.pid, wait.slot, wait.since_ns)
            if waited >= self._patience and key not in self._told:
                self._told.add(key)
                text = told_wait(self._server, wait, info)
                self._tell(Stalled(self._server.app_name(wait.app), info.name, text))
        for slot in set(self._held) - held:
            del self._held[slot]

    def _consider(self, wait: Wait, info: Info, now: int) -> None:
        """Let a file off the limit if its readers have not moved for a while and cannot: they wait, or never came."""
        seen = self._held.setdefault(wait.slot, (info.consumed, now))
        if seen[0] != info.consumed:
            self._held[wait.slot] = (info.consumed, now)
            return
        if (now - seen[1]) / 1e9 < _HELD:
            return
        stuck = _stuck(self._server)
        if not all(number in stuck for number in _readers(self._server, info)):
            return
        self._held[wait.slot] = (info.consumed, now)
        why = "readers wait for something else before they read on, so its writer would be held back for ever"
        table = self._server.table
        if _is_held_by_itself(table, wait, info):
            table.set_flags(wait.slot, Flag.READS_BACK, 0)
            self._server.warn(f"{info.name} is let off the limit: its {why}")
        else:
            table.set_room(2 * table.room)
            self._server.warn(
                f"all files together may take {format_size(table.room)} from now on instead of the limit: "
                f"{info.name} needs room and its {why}"
            )


def _readers(server: Server, info: Info) -> list[int]:
    """The steps that have still to read a file, those that have not come excepted."""
    apps = [server.apps[name] for name in server.names_in(info.consumers)]
    return [app.number for app in apps if not app.ended and app.state is not State.COMING]


def _stuck(server: Server) -> set[int]:
    """Steps that wait for something, but not for room that one who does not wait may give them by reading on."""
    waits = list(waits_of(server))
    stuck = {wait.app for wait, _ in waits}
    otherwise = {wait.app for wait, _ in waits if wait.kind is not WaitKind.ROOM}
    held = [(wait.app, _readers(server, info)) for wait, info in waits if wait.app not in otherwise]
    while moving := [app for app, readers in held if app in stuck and not stuck.issuperset(readers)]:
        stuck.difference_update(moving)
    return stuck


def _is_held_by_itself(table: Table, wait: Wait, info: Info) -> bool:
    """Whether a file has no room left of its own, be it by a page; else it is all files together that have none."""
    return min(wait.end, wait.start + table.limit // 4) + 2 * PAGE > info.punched + table.limit
