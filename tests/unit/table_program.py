"""What the interposer does for one program, step by step: tests speak to the shared table through it."""

from __future__ import annotations

from ctypes import byref, c_bool, c_uint32

from penstock.streaming.table import NONE, Born, Table, WaitKind, name_words


class Program:
    """One program that has the table mapped."""

    def __init__(self, table: Table, app: int, logic: int = -1) -> None:
        self.table, self.app, self._code = table, app, table.code
        self.process = int(self._code.ps_process_begin(app, logic, byref(c_bool())))

    def another(self, app: int) -> Program:
        """One more program, as far as the table can see; it lives in this process."""
        other = Program.__new__(Program)
        other.table, other.app, other._code = self.table, app, self._code
        other.process = int(self._code.ps_process_fork(self.process))
        return other

    def slot(self, name: str) -> int:
        slot = self.table.obtain(name)
        assert slot is not None, f"the table has no room for {name!r}"
        return slot

    def opened(self, name: str, *, truncated: bool = True) -> int:
        """Open for writing, with O_TRUNC or what is there; the holding's handle."""
        return int(self._code.ps_writer_opened(self.process, self.slot(name), self.app, 1 if truncated else 2))

    def wrote_first(self, holding: int, slot: int) -> None:
        """The first write through a holding that found a file, or was inherited."""
        self._code.ps_writer_wrote(self.process, holding, slot, self.app)

    def closed(self, holding: int) -> None:
        self._code.ps_writer_closed(self.process, holding)

    def wrote(self, name: str, start: int, end: int) -> None:
        self._code.psx_written(self.slot(name), start, end)

    def truncated(self, name: str, size: int) -> None:
        self._code.ps_truncated(self.slot(name), size)

    def born(self, name: str, what: Born = Born.FILE) -> None:
        self._code.ps_born(self.slot(name), self.app, what)

    def removed(self, name: str) -> None:
        self._code.ps_removed(self.slot(name), self.app)

    def renamed(self, old: str, new: str) -> None:
        self._code.ps_renamed(*name_words(old), *name_words(new), self.app)

    def consumed(self, name: str, offset: int) -> None:
        self._code.ps_consumed(self.slot(name), self.app, offset)

    def end(self) -> None:
        self._code.ps_process_end(self.process)

    def awaits(self, name: str) -> int:
        return int(self._code.psx_awaited(self.slot(name), self.app))

    def ask(self, kind: WaitKind, name: str, start: int = 0, end: int = 0) -> int:
        """What a wait would answer; -1: it would sleep."""
        return int(self._code.ps_ask(kind, self.slot(name), self.app, start, end))

    # Waits answer 0 or an errno value.

    def wait_born(self, name: str) -> int:
        return int(self._code.ps_wait_born(self.slot(name), self.app))

    def wait_range(self, name: str, start: int, end: int, fd: int = -1) -> int:
        return int(self._code.psx_wait_range(self.slot(name), self.app, start, end, fd))

    def wait_committed(self, name: str) -> int:
        return int(self._code.psx_wait_committed(self.slot(name), self.app))

    def wait_room(self, name: str, start: int, end: int) -> int:
        return int(self._code.psx_wait_room(self.slot(name), self.app, start, end))

    def wait_entry(self, name: str, after: int = NONE) -> tuple[int, int | None]:
        """Error and next entry; None: the end."""
        entry = c_uint32(after)
        error = int(self._code.ps_wait_entry(self.slot(name), self.app, byref(entry)))
        return error, None if entry.value == NONE else entry.value
