"""Shares described storage layers with other programs: between the table on a layer and the engine.

    Claim ─▶ LayerShare ─▶ table (executors/layer_table.py) ─▶ rule (storage/sharing.py) ─▶ BudgetChanged
                  └── looks again while something uses the layer, or waits for it

Each layer that is used has a thread, for only that may wait for its disk. What this program may hold is raised in the
table before the engine hears of it, and lowered there after the engine has given it up: so the sum over all programs
holds at every moment. A program that does no I/O has no line and looks at no disk; one that has only files there looks
when their sum has changed.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec.structs import replace

from penstock.alert_waits import LOOK, until_ended, until_set
from penstock.engine.sharing import Usage
from penstock.executors.layer_table import LEASE, LayerTable, Line
from penstock.executors.saying import say
from penstock.model.events import BudgetChanged
from penstock.model.resources import StorageLayer
from penstock.own_threads import OwnThread
from penstock.runtime.left_behind import left_on
from penstock.storage.sharing import Claim, granted, parts
from penstock.units import format_rate, format_size

__all__ = ["Sharing"]

#: seconds between two looks, alone and beside others
_ALONE, _BESIDE = 0.25, 0.1
#: seconds without use after which a program gives up what it has
_LINGER = 1.0
#: seconds for which a program counts as wanting what it wanted: between two tasks it may want nothing for a moment
_WANTED = 1.0
#: seconds for which it may have its turn without using it
_TURN = 1.0
#: seconds between two looks at what others have left
_MEASURED = 1.0
#: seconds after which something is said of others that came or went
_SETTLED = 1.0


class Asked(Protocol):
    """The driver."""

    def usage(self, layer: str) -> Usage:
        """What the program has of a layer."""
        ...

    def withdraw(self, layer: str) -> Usage:
        """The same; if nothing uses it, nothing is had of it from now on."""
        ...


class Sharing:
    """All layers of one run that it may share."""

    def __init__(
        self,
        layers: Sequence[StorageLayer],
        rooms: Mapping[str, int | None],
        run: str,
        driver: Asked,
        tell: Callable[[BudgetChanged], None],
    ) -> None:
        """``rooms`` has the capacity of each layer that is shared, as its description has it."""
        self._shares = {
            layer.name: LayerShare(layer, rooms[layer.name], run, driver, tell)
            for layer in layers
            if layer.name in rooms
        }

    def begin(self) -> list[BudgetChanged]:
        """What the engine is to know from the start."""
        return [BudgetChanged(layer, 0.0, closed=True) for layer in self._shares]

    def claim(self, layer: str) -> None:
        """Something wants to use a layer."""
        self._shares[layer].claim()

    def close(self) -> None:
        """The run is over; its files are home, or will stay where they are."""
        for share in self._shares.values():
            share.close()


class LayerShare:
    """One layer."""

    def __init__(
        self, layer: StorageLayer, room: int | None, run: str, driver: Asked, tell: Callable[[BudgetChanged], None]
    ) -> None:
        self._layer = layer
        self._room = room
        self._run_name = run
        self._driver = driver
        self._tell = tell
        self._wake = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None
        self._table: LayerTable | None = None
        #: what the engine was told last; None while nothing is had
        self._told: BudgetChanged | None = None
        #: what the table says of this program, if anything
        self._line: Line | None = None
        self._used = 0.0
        self._others = 0
        self._wanted = 0.0, 0.0
        #: what it should have of the bandwidth
        self._part = 0.0
        #: since when it could have its turn
        self._turns: dict[str, float] = {}
        #: runs that lived when this one looked; bytes of those that had ended which nobody else counts, as of when
        self._seen: set[str] | None = None
        self._left = 0
        self._measured = 0.0
        #: how many others there are, and since when; and what was said of that
        self._noticed = 0, 0.0
        self._said, self._said_at = 0, 0.0
        self._said_smaller = False

    def claim(self) -> None:
        """Something wants to use it."""
        if self._thread is None:
            self._thread = OwnThread(f"sharing-{self._layer.name}", self._run)
            self._thread.start()
        self._wake.set()

    def close(self) -> None:
        """Leave the table, unless files stay here."""
        self._closing = True
        self._wake.set()
        if self._thread is not None:
            until_ended(self._thread)

    # --- the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while True:
                pause = self._pause()
                if pause is None:
                    until_set(self._wake)
                else:
                    self._wake.wait(pause)
                self._wake.clear()
                if self._closing:
                    break
                self._look()
            self._leave()
        except Exception as error:  # whatever it was: nobody may wait for ever for what this thread would have said
            self._go_alone(error)

    def _pause(self) -> float | None:
        if self._told is not None:
            return _BESIDE if self._others else _ALONE
        return None if self._line is None else LOOK

    def _look(self) -> None:
        now = time.monotonic()
        usage = self._driver.usage(self._layer.name)
        if usage.busy:
            self._used = now
        if self._told is None and not usage.busy:
            if self._line is not None and usage.room != self._line.fills:
                self._rest(usage)
            return
        if now - self._used > _LINGER:
            usage = self._driver.withdraw(self._layer.name)
            if not usage.busy:
                self._told = None
                self._rest(usage)
                return
        if self._share(usage, now):  # what the engine has just given up, others may have at once
            self._share(self._driver.usage(self._layer.name), now)

    def _rest(self, usage: Usage) -> None:
        """Hold nothing; but what files fill is filled."""
        table = self._opened()
        if not usage.room:
            table.leave(self._run_name)
            self._line = None
            return
        with table.held() as held:
            line = table.line(self._run_name)
            line.bandwidth, line.capacity = self._layer.bandwidth, self._room
            line.fills = line.may_fill = max(0, usage.room)
            held.write(line)
            self._line = line

    def _leave(self) -> None:
        if self._line is not None:
            stays = os.path.isdir(os.path.join(self._layer.mount, f"{self._run_name}-layer"))
            self._rest(self._driver.usage(self._layer.name)) if stays else self._opened().leave(self._run_name)

    def _opened(self) -> LayerTable:
        if self._table is None:
            self._table = LayerTable(self._layer.mount)
        return self._table

    def _go_alone(self, error: Exception) -> None:
        with contextlib.suppress(OSError):  # what was begun there may be of use to nobody
            self._opened().leave(self._run_name)
        if not self._closing:
            why = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
            where = f"{self._layer.name} ({self._layer.mount})"
            say(f"penstock: {where}: cannot be shared with other programs, this one uses it as if alone: {why}\n")
            self._tell(BudgetChanged(self._layer.name, self._layer.bandwidth))

    # --- one look -------------------------------------------------------------------------------------------------

    def _share(self, usage: Usage, now: float) -> bool:
        """Read what others want, and settle what this program has; whether it gave up some that others may have."""
        table = self._opened()
        with table.held() as held:
            if self._told is not None and self._told.until <= time.monotonic():
                # The lock was waited for: more may have begun since. Nothing has after that time.
                usage = self._driver.usage(self._layer.name)
            others = held.others(self._run_name)
            line = held.mine(self._run_name) or table.line(self._run_name)
            before = replace(line)
            line.bandwidth, line.capacity = self._layer.bandwidth, self._room
            living = [other for other in others if not other.over]
            self._others = sum(other.wants > 0 or other.may_hold > 0 for other in living)
            total = min([line.bandwidth, *(other.bandwidth for other in living if other.bandwidth > 0)])
            bandwidth = self._share_bandwidth(line, others, usage, total, now)
            room = self._share_room(line, others, usage, now)
            if line != before or line.until - now < LEASE * 0.6:
                line.until = now + LEASE
                held.write(line)
            self._line = line
        self._explain(living, total, wanted=usage.wants > 0)
        told = BudgetChanged(self._layer.name, bandwidth, room, line.until, self._others)
        if told != self._told:
            self._told = told
            self._tell(told)
        gave_room = room is not None and line.may_fill > max(room, usage.room)
        return gave_room or line.may_hold > max(bandwidth, usage.holds)

    def _share_bandwidth(self, line: Line, others: list[Line], usage: Usage, total: float, now: float) -> float:
        line.since = line.since or now
        line.may_hold = min(line.may_hold, usage.may_hold) if self._told is not None else line.may_hold
        line.holds = usage.holds
        wants, since = self._wanted
        if usage.wants >= wants or now - since > _WANTED:
            wants = usage.wants
            self._wanted = wants, now
        line.wants = min(total, max(1.0, wants)) if self._others else total
        line.need = min(total, usage.need)
        claims = [
            (one.run, Claim(one.may_hold, one.holds, min(one.wants, total), one.need, one.since))
            for one in (line, *others)
        ]
        self._part, line.since, ours = self._settled("bandwidth", claims, total, now)
        line.may_hold = max(ours, usage.holds)  # more only after this program has been stopped: others have the rest
        return min(self._part, ours)

    def _share_room(self, line: Line, others: list[Line], usage: Usage, now: float) -> int | None:
        capacities = [other.capacity for other in others if other.capacity is not None and not other.over]
        if self._room is None:
            line.fills = line.may_fill = line.room_wanted = usage.room
            return None
        total = max(0, min([self._room, *capacities]) - usage.taken - self._uncounted(others, usage, now))
        line.room_since = line.room_since or now
        line.fills = usage.room
        may_fill = line.may_fill
        if self._told is not None and self._told.room is not None:
            may_fill = min(may_fill, self._told.room)
        line.may_fill = may_fill
        line.room_wanted = min(total, max(1, usage.room_wanted)) if self._others else total
        line.room_needed = min(total, usage.room_needed)
        others = [other for other in others if not self._is_counted(other)]
        claims = [
            (one.run, Claim(one.may_fill, one.fills, one.room_wanted, one.room_needed, one.room_since))
            for one in (line, *others)
        ]
        part, line.room_since, ours = self._settled("room", claims, total, now)
        line.may_fill = max(int(ours), usage.room)
        return int(min(part, ours))

    def _settled(
        self, what: str, claims: list[tuple[str, Claim]], total: float, now: float
    ) -> tuple[float, float, float]:
        """What this program should have, when it last had a turn, and what it may hold from now on."""
        ordered = sorted(claims, key=lambda one: one[0])  # as all others see it
        names, rows = [name for name, _ in ordered], [claim for _, claim in ordered]
        mine = names.index(self._run_name)
        claim, part = rows[mine], parts(total, rows)[mine]
        since = claim.since
        if claim.holds > part:
            since = now
        elif claim.may_hold >= claim.need > total / len(rows) and len(rows) > 1:
            if now - self._turns.setdefault(what, now) > _TURN:  # it cannot use its turn: others may
                since = now
                del self._turns[what]
        else:
            self._turns.pop(what, None)
        return part, since, granted(total, rows, mine)

    def _uncounted(self, others: list[Line], usage: Usage, now: float) -> int:
        """Bytes that programs have left which had ended before this one looked, but not before it started.

        Looked at again while something waits for room, since somebody may have brought them home.
        """
        if self._seen is None:
            self._seen = set()
            self._left = int(any(other.over for other in others))
        if self._left and (usage.room_needed or not self._measured) and now - self._measured > _MEASURED:
            self._measured = now
            self._left = max(0, sum(left.size for left in left_on(self._layer.mount)) - usage.taken)
        self._seen.update(other.run for other in others if not other.over)
        return self._left

    def _is_counted(self, other: Line) -> bool:
        """Whether what a program has left is in what this one found when it started."""
        ours = other.run.startswith(f"penstock-{os.getuid()}-")
        return other.over and ours and other.run not in (self._seen or ())

    # --- what is said ---------------------------------------------------------------------------------------------

    def _explain(self, living: list[Line], total: float, *, wanted: bool) -> None:
        now = time.monotonic()
        if self._others != self._noticed[0]:
            self._noticed = self._others, now
        settled = now - max(self._noticed[1], self._said_at) > _SETTLED
        if self._others != self._said and settled and wanted:
            self._said, self._said_at = self._others, now
            beside = f"{self._others} other program{'s' if self._others > 1 else ''}"
            how = f"shared with {beside}" if self._others else "alone again"
            rate = f"{format_rate(self._part)} of {format_rate(total)} here"
            say(f"penstock: {self._layer.name}: {how}: {rate}\n")
        if self._said_smaller:
            return
        smaller = [format_rate(total)] if total < self._layer.bandwidth else []
        rooms = [other.capacity for other in living if other.capacity is not None]
        if self._room is not None and rooms and min(rooms) < self._room:
            smaller.append(format_size(min(rooms)))
        if smaller:
            self._said_smaller = True
            here = format_rate(self._layer.bandwidth)
            here += "" if self._room is None else f" and {format_size(self._room)}"
            say(
                f"penstock: {self._layer.name}: another program describes {self._layer.mount} with "
                f"{' and '.join(smaller)}, this one with {here}; the smaller counts while both use it\n"
            )
