"""The shared table of a run's streamed files, and the seats of those who write them.

It is the table of ``penstock stream`` with one rule: nothing is managed but the files that attempts name in it. The
main program makes it when the first attempt is launched that streams a file, and says when a file is complete: when
the attempt that wrote it has delivered. Each such attempt has a seat, by which the library in its program knows what is
its own; where all seats are taken, or there is no library, files are handed over when their task ends.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from penstock.errors import PenstockError
from penstock.model.data import FileRef, Slot

if TYPE_CHECKING:
    from penstock.streaming.table import Table

__all__ = ["NO_SEAT", "READER", "SEATS", "StreamTable", "app_name", "app_number", "table_path"]

#: attempts that may stream files at once; each has two of the table's 63 apps
SEATS = 30
NO_SEAT = -1
#: the app of programs that only read
READER = SEATS
#: files that a run may stream; more of them are handed over when their task ends
_SLOTS = 1 << 18
_PROCESSES = 1 << 12
#: processes that may be noted as gone before the notes are looked through
_NOTED = 256


def table_path(memory_dir: str) -> str:
    """Where a run has its table."""
    return os.path.join(memory_dir, "streams")


def app_number(seat: int, *, so_far: bool) -> int:
    """What the table calls a program; one that is told sizes so far is another app than one that is not."""
    return seat + (SEATS + 1 if so_far else 0)


def app_name(number: int) -> str:
    """What the environment of a program calls it."""
    return f"task-{number}"


def _rules() -> bytes:
    from penstock.streaming.language.model import Sizes, Step, Workflow
    from penstock.streaming.rules.blob import compiled

    apps = range(2 * (SEATS + 1))
    steps = [Step(app_name(app), sizes=Sizes.SO_FAR if app > READER else Sizes.AT_COMMIT) for app in apps]
    return compiled(Workflow("tasks", tuple(steps), exclude=("*",)))


class _Writer(msgspec.Struct):
    """An attempt that has a seat."""

    seat: int
    worker: int
    paths: list[str] = []


class StreamTable:
    """The main program's side of the table."""

    def __init__(self, memory_dir: str) -> None:
        self._path = table_path(memory_dir)
        self._table: Table | None = None
        self._hopeless = False
        self._free = list(range(SEATS - 1, -1, -1))
        #: attempts that have a seat, by task
        self.writers: dict[int, _Writer] = {}
        self._ended = 0

    def seat(self, task: int, worker: int) -> int:
        """A seat for an attempt that writes streamed files; NO_SEAT if there is none."""
        if self._table is None and not self._hopeless:
            self._begin()
        if self._table is None or not self._free:
            return NO_SEAT
        # The seat that was given back longest ago: nobody may still be thinking of who had it before.
        seat = self._free.pop()
        self.writers[task] = _Writer(seat, worker)
        return seat

    def _begin(self) -> None:
        from penstock.streaming.table import ServerState, Table

        try:
            self._table = Table.create(self._path, "tasks", [""], _rules(), slots=_SLOTS, processes=_PROCESSES)
            self._table.serve(ServerState.RUNS)
        except PenstockError:
            # No library, or another run of this process has a table: files are handed over when their task ends.
            self._hopeless = True

    def opened(self, task: int, output: Slot) -> None:
        """An attempt has handed something over: perhaps a file that it begins to write."""
        if type(output) is FileRef and output.open and task in self.writers:
            self.writers[task].paths.append(output.path)

    def ended(self, task: int, outputs: Iterable[Slot | None] = ()) -> None:
        """An attempt is over; what it has delivered is complete, unless its readers are to begin again."""
        writer = self.writers.pop(task, None)
        if writer is None or self._table is None:
            return
        complete = {output.path for output in outputs if type(output) is FileRef and not output.rewritten}
        for path in complete.intersection(writer.paths):
            slot = self._table.lookup(path[1:])
            if slot is not None:
                self._table.commit(slot)
        self._free.insert(0, writer.seat)
        self._clear_processes()

    def taken_back(self, tasks: Iterable[int]) -> None:
        """Attempts were taken back before they started."""
        if self.writers:
            for task in tasks:
                self.ended(task)

    def worker_gone(self, worker: int) -> None:
        """A worker process ended, and with it what it ran."""
        for task in [task for task, writer in self.writers.items() if writer.worker == worker]:
            self.ended(task)

    def _clear_processes(self) -> None:
        """Give back the places of programs that have ended."""
        assert self._table is not None
        self._ended += 1
        if self._ended % _NOTED:
            return
        from penstock.streaming.table import ProcessState

        for process in self._table.processes():
            if process.state == ProcessState.ENDED or not os.path.exists(f"/proc/{process.pid}"):
                self._table.process_reap(process.process)

    def close(self) -> None:
        """The run is over."""
        if self._table is not None:
            self._table.close()
            self._table = None
        self._hopeless = True
