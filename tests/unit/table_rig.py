"""A shared table for tests: three steps in a row, and real processes that have it mapped."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.own_place import memory_dir
from tests.patience import PATIENCE
from tests.unit.table_rules import (
    DIRECTORY_RULE,
    FILE_RULE,
    INPUT,
    N_FILES,
    NO_UPDATE,
    ON_CLOSE,
    ON_TERMINATION,
    OUTPUT,
    TEMPORARY,
    UPDATE,
    App,
    Entry,
    rules_area,
)

from penstock.streaming.table import ServerState, Table

MAKE, USE, LAST = range(3)
RULES = rules_area(
    [App("make"), App("use", 0b001), App("last", 0b011)],
    [
        Entry(OUTPUT, "out*", MAKE),
        Entry(INPUT, "out*", USE),
        Entry(FILE_RULE, "out-closed*", MAKE, ON_CLOSE, UPDATE, 1),
        Entry(FILE_RULE, "out-twice*", MAKE, ON_CLOSE, NO_UPDATE, 2),
        Entry(FILE_RULE, "out-stream*", MAKE, ON_TERMINATION, NO_UPDATE),
        Entry(FILE_RULE, "out-dir/*", MAKE, ON_CLOSE, NO_UPDATE, 1),
        Entry(DIRECTORY_RULE, "out-dir", MAKE, N_FILES, NO_UPDATE, 5),
        Entry(TEMPORARY, "out-stream*"),
        Entry(OUTPUT, "result*", USE),
    ],
)


@contextlib.contextmanager
def shared_table(root: Path, **capacities: int) -> Iterator[Table]:
    """A table whose server is this process."""
    path = str(memory_dir() / f"table-{time.monotonic_ns()}")
    table = Table.create(path, "rig", [str(root)], RULES, **capacities)
    try:
        table.serve(ServerState.RUNS)
        yield table
    finally:
        table.close()


class Child:
    """A forked process that has the table mapped; its result is its exit status."""

    def __init__(self, what: Callable[[], int | None]) -> None:
        self.pid = os.fork()
        if not self.pid:
            status = 99
            try:
                status = what() or 0
            finally:
                os._exit(status)

    def kill(self, number: int = signal.SIGKILL) -> None:
        os.kill(self.pid, number)

    def result(self, seconds: float = PATIENCE) -> int:
        """Its exit status, or minus the signal that killed it."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.001)
        self.kill()
        os.waitpid(self.pid, 0)
        raise AssertionError(f"a process did not end within {seconds} s")
