"""The table on a storage layer in which the programs that use it say what they hold and want.

    MOUNT/.penstock-WHOSE-BOOT    a place of 1024 bytes per program, one line of JSON each

There is a table for each user, and one for the group of a folder that its group may write to; ``BOOT`` tells machines
apart, and the times a machine was started, since numbers of processes and times of one mean nothing to another.

It is one file, read as a whole and written a place at a time under a lock of the file (``flock``), for then what all
programs hold adds up at every moment. Each writes its own place in one call, so a program that is killed leaves the old
line or the new one. A line that cannot be read is an empty place, and a program that is gone has none.

One that has not renewed its line in time starts nothing before it has looked again. If it is stopped, or nobody can see
whether it is, it holds nothing any more but what it fills. Else the disk or the machine stands still, and its attempts
with it: they are still under way, so its line is believed for longer. A lock that nobody lets go, because its holder
was stopped at that very moment, is left behind with the file, which is made anew when nobody believes in its lines any
more. The last to leave removes it, or the guardian of a program that was killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
import zlib
from collections.abc import Iterator

import msgspec
from msgspec import Struct

from penstock.executors.disposable import machine

__all__ = ["LEASE", "LayerTable", "Line", "leave_for", "programs_on", "tidy_on"]

#: seconds for which a line holds
LEASE = 10.0
#: seconds for which that of a program that runs is believed beyond that: so long may a disk stand still
STALL = 60.0
#: what the kernel calls processes that are over, and those that somebody has stopped
_OVER, _STOPPED = "ZX", "Tt"
_PLACE = 1024
_MOST_PLACES = 1000
#: seconds between two attempts to get the lock
_AGAIN = 0.005


class Line(Struct):
    """What a program says of itself."""

    #: whose it is: the name of the run
    run: str
    #: its process, and in which numbering of processes that is
    pid: int
    numbering: str
    #: when what is below ends, by this machine's clock; 0 if nothing is held
    until: float = 0.0
    #: the layer as this program's user described it: bytes per second, and bytes
    bandwidth: float = 0.0
    capacity: int | None = None
    #: bytes per second that its attempts may hold, do hold and want, and the most that one of them needs
    may_hold: float = 0.0
    holds: float = 0.0
    wants: float = 0.0
    need: float = 0.0
    since: float = 0.0
    #: the same of bytes that it fills
    may_fill: int = 0
    fills: int = 0
    room_wanted: int = 0
    room_needed: int = 0
    room_since: float = 0.0
    #: it has ended, and what it has left is still there; found out by whoever reads the table
    over: bool = False


def _numbering() -> str:
    return os.readlink("/proc/self/ns/pid")


class _Held:
    """The table while its lock is held."""

    def __init__(self, descriptor: int, mount: str, now: float) -> None:
        self._descriptor = descriptor
        self._mount = mount
        self._now = now
        content = os.pread(descriptor, _PLACE * _MOST_PLACES, 0)
        #: by place; None is free
        self._lines = [_read(content[start : start + _PLACE]) for start in range(0, len(content), _PLACE)]
        numbering = _numbering()
        for place, line in enumerate(self._lines):
            if line is not None and not self._keep(line, numbering):
                self._put(place, None)

    def _keep(self, line: Line, numbering: str) -> bool:
        seen = line.numbering == numbering
        state = _process_state(line.pid) if seen else _STOPPED
        gone = state in _OVER
        believed = line.until + (STALL if state not in _STOPPED else 0.0) > self._now
        if gone or (line.until and not believed):
            _lapse(line)
        if gone or not seen:
            line.over = gone
            return (believed and not gone) or self._is_there(line)
        return believed or line.fills > 0

    def _is_there(self, line: Line) -> bool:
        return line.fills > 0 and os.path.isdir(os.path.join(self._mount, f"{line.run}-layer"))

    def others(self, run: str) -> list[Line]:
        """What all other programs say."""
        return [line for line in self._lines if line is not None and line.run != run]

    def mine(self, run: str) -> Line | None:
        """What a program has said, of itself: it goes by its time alone, since it starts nothing any more."""
        line = next((line for line in self._lines if line is not None and line.run == run), None)
        if line is not None and line.until <= self._now:
            _lapse(line)
        return line

    def write(self, mine: Line) -> None:
        """Say this instead."""
        places = [place for place, line in enumerate(self._lines) if line is not None and line.run == mine.run]
        places += [place for place, line in enumerate(self._lines) if line is None]
        self._put(places[0] if places else len(self._lines), mine)

    def forget(self, run: str) -> None:
        """Say nothing any more."""
        for place, line in enumerate(self._lines):
            if line is not None and line.run == run:
                self._put(place, None)

    def is_useless(self) -> bool:
        """Whether the table is of no more use to any program that lives."""
        return all(line is None or line.over for line in self._lines)

    def _put(self, place: int, line: Line | None) -> None:
        text = b"" if line is None else msgspec.json.encode(line)
        os.pwrite(self._descriptor, text.ljust(_PLACE - 1) + b"\n", place * _PLACE)
        self._lines[place : place + 1] = [line]


def _read(place: bytes) -> Line | None:
    try:
        return msgspec.json.decode(place, type=Line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _lapse(line: Line) -> None:
    """What a program held, it holds no more; what it fills is filled."""
    line.may_hold = line.holds = line.wants = line.need = 0.0
    line.may_fill, line.room_wanted, line.room_needed = line.fills, 0, 0


def _process_state(pid: int) -> str:
    """The kernel's letter for what a process does; one that has ended and of which nobody has asked is over."""
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0].decode()
    except (ProcessLookupError, OverflowError):
        return _OVER
    except (OSError, IndexError):
        return _STOPPED if pid > 0 else _OVER  # another user's, of which we may see no more


class LayerTable:
    """The table on one layer, for one program. Any call may raise OSError: then there can be none."""

    def __init__(self, mount: str) -> None:
        self._mount = mount
        about = os.stat(mount)
        group = bool(about.st_mode & stat.S_IWGRP) and about.st_gid in {os.getegid(), *os.getgroups()}
        self._group = about.st_gid if group else None
        whose = f"g{about.st_gid}" if group else f"u{os.getuid()}"
        self.path = os.path.join(mount, f".penstock-{whose}-{zlib.crc32(machine()):08x}")

    def line(self, run: str) -> Line:
        """An empty line for a run of this process."""
        return Line(run, os.getpid(), _numbering())

    @contextlib.contextmanager
    def held(self) -> Iterator[_Held]:
        """Hold the lock; the table is made if there is none."""
        descriptor = self._locked()
        try:
            yield _Held(descriptor, self._mount, time.monotonic())
        finally:
            os.close(descriptor)

    def leave(self, run: str) -> None:
        """Have no line any more, and leave no table if it is of no use to anybody."""
        with self.held() as table:
            table.forget(run)
            self._remove_useless(table)

    def tidy(self) -> None:
        """Leave no line of a program that is gone, and no table if it is of no use to anybody."""
        if os.path.exists(self.path):
            with self.held() as table:
                self._remove_useless(table)

    def _remove_useless(self, table: _Held) -> None:
        if table.is_useless():
            os.unlink(self.path)

    def _locked(self) -> int:
        deadline = time.monotonic() + LEASE + STALL
        while True:
            descriptor = self._open()
            try:
                if self._try_lock(descriptor) and _is_at(descriptor, self.path):
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
            if time.monotonic() >= deadline:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self.path)
                deadline = time.monotonic() + LEASE + STALL
            time.sleep(_AGAIN)

    def _try_lock(self, descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        while True:
            # Not made by the same call: in a folder such as /tmp that would be refused where another user's is there.
            with contextlib.suppress(FileNotFoundError):
                return os.open(self.path, flags)
            with contextlib.suppress(FileExistsError):
                descriptor = os.open(self.path, flags | os.O_CREAT | os.O_EXCL, 0o600)
                if self._group is not None:
                    with contextlib.suppress(OSError):
                        os.fchown(descriptor, -1, self._group)
                        os.fchmod(descriptor, 0o660)
                return descriptor


def leave_for(folder: str) -> None:
    """Leave for a run, given by the path of its folder, whose guardian knows that it is over.

    Its process may still be about to end. Whoever does not know it for certain must not do this: a run whose line is
    gone has nothing, and others take all. `tidy_on` does no harm.
    """
    mount, run = os.path.split(folder)
    table = LayerTable(mount)
    if os.path.exists(table.path):
        table.leave(run)


def tidy_on(mount: str) -> None:
    """Leave no line of a program that is gone, and no table if it is of no use to anybody."""
    LayerTable(mount).tidy()


def programs_on(mount: str) -> list[Line]:
    """What living programs hold and fill on a layer, as they last said; nothing is changed by asking."""
    try:
        with open(LayerTable(mount).path, "rb") as file:
            lines = [_read(file.read(_PLACE)) for _ in range(_MOST_PLACES)]
    except OSError:
        return []
    now = time.monotonic()
    living = [line for line in lines if line is not None and not line.over and _process_state(line.pid) not in _OVER]
    return [line for line in living if line.fills or (line.may_hold and line.until + STALL > now)]


def _is_at(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False
