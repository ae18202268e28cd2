"""An emulated storage device: streams of any process share its bandwidth, and congest it, by sleeping.

    EmulatedStream.transfer(n) ─ joins ─► slot in the state file ◄─ sweeps out idle and dead streams ─ any stream
                               ─ sleeps until the device has served it n bytes

All processes map one small state file. Its heart is a single number, the *service*: the bytes served so far to a stream
that was active all the time. With n streams active it grows by curve(n)/n a second, so a stream that wants b bytes
is done when the service has grown by b, however often n changes meanwhile. No stream has to look at any other, and one
that slept too long has lost nothing: what the service ran ahead is credited to its next transfer.
"""

from __future__ import annotations

import fcntl
import math
import mmap
import os
import threading
import time
import weakref
from types import TracebackType
from typing import Final

from penstock.storage.curves import Curve, check_curve, interpolate

__all__ = ["EmulatedDevice", "EmulatedStream"]

_SLOTS: Final = 1024
# Seconds. A stream that has been quiet for longer than IDLE does not count.
_IDLE: Final = 0.05
_SWEEP_EVERY: Final = 0.02
_CENSUS_EVERY: Final = 0.5
# A stream sleeps once it owes this much time, so that small transfers cost no sleep each.
_WORTH_SLEEPING: Final = 0.005
# How far behind the service a stream may be and still catch up: it covers late wake-ups on a crowded machine.
_LONGEST_LAG: Final = 0.25
# Sleepers look for news this often. The more they are the longer it takes, which bounds the wake-ups of them all.
_LOOK_EVERY: Final = 0.01
_LOOK_EVERY_PER_STREAM: Final = 0.0005

# The header of the state file: eight doubles. A file of zeros is a device at rest, so nobody has to initialise it.
_SERVICE, _UPDATED, _ACTIVE, _NEXT_SWEEP, _NEXT_CENSUS, _LAST_SERIAL, _USED_SLOTS, _MOST_SLOTS = range(8)
_HEADER_BYTES: Final = 64
_COLUMN_BYTES: Final = 8 * _SLOTS


class EmulatedDevice:
    """A directory whose files are as slow as ``curve`` says, for all processes that share ``state_path``."""

    #: a write of any size is one transfer
    part: int | None = None

    def __init__(self, mount: str, curve: Curve, state_path: str) -> None:
        check_curve(curve)
        self.mount = os.path.realpath(mount)
        self.curve = tuple(curve)
        self._shares: dict[int, float] = {}
        self._own_birth = (0, 0)
        self._state = _State(state_path)

    def stream(self) -> EmulatedStream:
        """A new stream; it takes part from its first transfer on."""
        return EmulatedStream(self)

    def active_streams(self) -> int:
        """How many streams share the device now."""
        with self._state:
            self.update(force=True)
            return int(self._state.header[_ACTIVE])

    def moved(self) -> list[tuple[int, float]]:
        """For each place that a stream has or had: the process of its last stream, and the bytes of all it ever had."""
        state = self._state
        return [(state.pids[place], state.moved[place]) for place in range(state.places())]

    def close(self) -> None:
        """Let go of the state file. Streams must be closed before."""
        self._state.close()

    # --- for streams, with the state locked --------------------------------------------------------------------------

    def update(self, force: bool = False) -> tuple[float, float, float]:
        """Bring the device up to date; return its service, the share of each stream, and when to look again."""
        header, now = self._state.header, time.monotonic()
        active = int(header[_ACTIVE])
        if active:
            header[_SERVICE] += max(0.0, now - header[_UPDATED]) * self._share(active)
        header[_UPDATED] = now
        if now >= header[_NEXT_CENSUS] or force:
            header[_NEXT_CENSUS] = now + _CENSUS_EVERY
            self._state.free_the_dead()
        if now >= header[_NEXT_SWEEP] or force:
            header[_NEXT_SWEEP] = now + _SWEEP_EVERY
            self._state.free_the_idle(now - _IDLE)
        active = max(1, int(header[_ACTIVE]))
        return header[_SERVICE], self._share(active), max(_LOOK_EVERY, active * _LOOK_EVERY_PER_STREAM)

    def join(self) -> tuple[int, int] | None:
        """Take a slot for one more stream and return it with its serial number; ``None`` if all are taken."""
        if self._own_birth[0] != os.getpid():
            self._own_birth = (os.getpid(), _birth(os.getpid()))
        return self._state.take(*self._own_birth)

    def _share(self, active: int) -> float:
        share = self._shares.get(active)
        if share is None:
            share = self._shares[active] = interpolate(self.curve, active) / active
        return share


class EmulatedStream:
    """One flow of bytes to or from a device. It is active while it transfers and for a moment after."""

    def __init__(self, device: EmulatedDevice) -> None:
        self._device = device
        self._state = device._state
        self._slot, self._serial = 0, -1
        #: the service at which all that was settled so far is done
        self._served = 0.0
        #: bytes transferred and not yet settled
        self._owed = 0
        self._worth_sleeping = 0.0
        self._last_seen = -math.inf

    def __enter__(self) -> EmulatedStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def begin(self) -> None:
        """Be active from now on, though the number of bytes will be known only at the `transfer` to come."""
        if self._recently_seen():
            self._state.quiet_since[self._slot] = math.inf
        else:
            self._enter()

    def transfer(self, nbytes: int, *, reads: bool = False) -> None:
        """Return when the device has served ``nbytes`` more, give or take a few milliseconds' worth; reads alike."""
        self._owed += nbytes
        if self._owed < self._worth_sleeping and self._recently_seen():
            self._quiet()
        else:
            self._settle()

    def close(self) -> None:
        """Wait for what is still owed and leave. A closed stream may transfer again: it is then active again."""
        try:
            if self._owed:
                self._settle()
        finally:
            if self._owns_slot():
                with self._state:
                    self._device.update()
                    self._state.free(self._slot, self._serial)

    def _settle(self) -> None:
        service, share, look_again = self._enter()
        self._worth_sleeping = share * _WORTH_SLEEPING
        counted = max(self._served, service - share * _LONGEST_LAG)
        target = self._served = counted + self._owed
        self._owed = 0
        try:
            while target > service:
                time.sleep(min((target - service) / share, look_again))
                service, share, look_again = self._enter(rejoin_at=target)
                counted = self._count(counted, min(service, target))
        finally:
            self._count(counted, target)
            self._quiet()

    def _count(self, since: float, upto: float) -> float:
        """Note what it was served, for whoever watches the device."""
        if upto > since and self._owns_slot():
            self._state.moved[self._slot] += upto - since
        return max(since, upto)

    def _enter(self, rejoin_at: float | None = None) -> tuple[float, float, float]:
        """Be active, waiting for a slot if need be; a stream that was not is served from now, or from ``rejoin_at``."""
        while True:
            with self._state:
                news = self._device.update()
                if self._owns_slot():
                    self._state.quiet_since[self._slot] = math.inf
                    return news
                taken = self._device.join()
                if taken is not None:
                    self._slot, self._serial = taken
                    self._served = news[0] if rejoin_at is None else rejoin_at
                    return self._device.update()
            time.sleep(_LOOK_EVERY)

    def _owns_slot(self) -> bool:
        return self._state.serials[self._slot] == self._serial

    def _recently_seen(self) -> bool:
        """Whether the slot is ours beyond doubt, so that it can be marked without the lock."""
        return time.monotonic() - self._last_seen < _IDLE / 2 and self._owns_slot()

    def _quiet(self) -> None:
        if self._owns_slot():
            self._last_seen = time.monotonic()
            self._state.quiet_since[self._slot] = self._last_seen


class _State:
    """The mapped state file: header, one column per field of a slot, and the lock that is held ``with`` it.

    A process that dies inside the lock lets go of it; the next sweep counts the slots anew and so mends the header.
    """

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        size = _HEADER_BYTES + 5 * _COLUMN_BYTES
        os.ftruncate(self._descriptor, size)
        self._map = mmap.mmap(self._descriptor, size)
        self._view = memoryview(self._map)
        self.header = self._view[:_HEADER_BYTES].cast("d")
        #: number of the stream in the slot; 0 if it is free
        self.serials = self._column(0).cast("q")
        self.pids = self._column(1).cast("q")
        #: when the process started, as the kernel counts: tells it from a later one of the same number
        self.births = self._column(2).cast("q")
        #: since when the stream transfers nothing; infinite while it does
        self.quiet_since = self._column(3).cast("d")
        #: bytes that all streams which ever had the slot were served; grows only
        self.moved = self._column(4).cast("d")
        self.thread_lock = threading.Lock()
        _states.add(self)

    def _column(self, number: int) -> memoryview:
        start = _HEADER_BYTES + number * _COLUMN_BYTES
        return self._view[start : start + _COLUMN_BYTES]

    def __enter__(self) -> None:
        # A record lock belongs to the process, so it survives forks but does not keep threads apart.
        self.thread_lock.acquire()
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX)
        except BaseException:
            self.thread_lock.release()
            raise

    def __exit__(self, *reason: object) -> None:
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN)
        finally:
            self.thread_lock.release()

    def take(self, pid: int, birth: int) -> tuple[int, int] | None:
        used = int(self.header[_USED_SLOTS])
        slot = next((slot for slot in range(used) if not self.serials[slot]), used)
        if slot == _SLOTS:
            return None
        self.header[_LAST_SERIAL] += 1
        self.header[_USED_SLOTS] = max(used, slot + 1)
        self.header[_MOST_SLOTS] = max(self.header[_MOST_SLOTS], slot + 1)
        serial = int(self.header[_LAST_SERIAL])
        self.pids[slot], self.births[slot], self.quiet_since[slot] = pid, birth, math.inf
        self.serials[slot] = serial
        self.header[_ACTIVE] += 1
        return slot, serial

    def places(self) -> int:
        """Slots that were ever used."""
        return min(_SLOTS, max(int(self.header[_MOST_SLOTS]), int(self.header[_USED_SLOTS])))

    def free(self, slot: int, serial: int) -> None:
        if self.serials[slot] == serial:
            self.serials[slot] = 0
            self.header[_ACTIVE] -= 1

    def free_the_idle(self, quiet_before: float) -> None:
        """Free the slots of streams that are quiet, and count the others."""
        active = highest = 0
        for slot in range(int(self.header[_USED_SLOTS])):
            if self.serials[slot]:
                if self.quiet_since[slot] < quiet_before:
                    self.serials[slot] = 0
                else:
                    active, highest = active + 1, slot + 1
        self.header[_ACTIVE], self.header[_USED_SLOTS] = active, highest

    def free_the_dead(self) -> None:
        """Free the slots of processes that are gone without closing their streams."""
        living: dict[tuple[int, int], bool] = {}
        for slot in range(int(self.header[_USED_SLOTS])):
            if self.serials[slot]:
                process = self.pids[slot], self.births[slot]
                if process not in living:
                    living[process] = _birth(process[0]) == process[1]
                if not living[process]:
                    self.free(slot, self.serials[slot])

    def close(self) -> None:
        if self._descriptor >= 0:
            for view in (self.header, self.serials, self.pids, self.births, self.quiet_since, self.moved, self._view):
                view.release()
            self._map.close()
            os.close(self._descriptor)
            self._descriptor = -1


def _birth(pid: int) -> int:
    """When the kernel started process ``pid``, in ticks since it booted; -1 if it has ended."""
    # No other errors are caught: a signal's handler may raise one here, such as TimeoutError.
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError):
        return -1
    try:
        # The command in parentheses may itself hold spaces and parentheses; the state follows the last one.
        fields = os.read(descriptor, 4096).rpartition(b")")[2].split()
    except ProcessLookupError:
        return -1
    finally:
        os.close(descriptor)
    return -1 if fields[0] in (b"Z", b"X") else int(fields[19])


_states: weakref.WeakSet[_State] = weakref.WeakSet()


def _renew_locks() -> None:
    """After a fork: the thread that held a lock is not in this process."""
    for state in _states:
        state.thread_lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_locks)
