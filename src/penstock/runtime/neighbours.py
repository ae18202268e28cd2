"""The other runtimes of a process: the program's own beside one in a ``with`` block, or that of an ``Executor``.

Each knows its own data alone. So whatever tasks of the others are updating comes back to the program before a call
takes a picture of its arguments, and the others are done with their files before a call that uses any. It is coarse,
since such programs are few: nobody asks what a call shares with the others. Where they have only futures, nobody waits.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.errors import RuntimeStopped
from penstock.executors.inside import inside_task
from penstock.model.tasks import Failure
from penstock.own_threads import OwnThread
from penstock.runtime.giving_back import bring_back

if TYPE_CHECKING:
    from penstock.runtime.declaration import Declaration
    from penstock.runtime.runtime import Runtime

__all__ = ["await_files", "living", "others", "settle_others", "uses_files"]

#: the runtimes of this process that are not stopped; nearly always one, so that a look at the length is all it costs
living: list[Runtime] = []
os.register_at_fork(after_in_child=living.clear)


def others(runtime: Runtime | None) -> list[Runtime]:
    """The runtimes beside one that the calling thread may wait for: none in a task, or in one of our threads."""
    if inside_task() or type(threading.current_thread()) is OwnThread:
        return []
    return [one for one in living if one is not runtime and not one.stopped]


def settle_others(runtime: Runtime, *, files: bool = False) -> None:
    """Before a call: the program has what tasks of other runtimes update, and their files if it uses any.

    No lock of the runtime may be held.
    """
    for other in others(runtime):
        with suppress(RuntimeStopped):  # another thread ends it, which brings everything back as well
            bring_back(other)
    if files:
        await_files(runtime)


def uses_files(declaration: Declaration) -> bool:
    """Whether a call of a task may read or write files that tasks of others write."""
    return any(direction.file for direction in declaration.directions.values()) or declaration.is_program


def await_files(runtime: Runtime | None) -> None:
    """Wait until the other runtimes are done with their files; raises if one of these could not be made."""
    for other in others(runtime):
        with suppress(RuntimeStopped):
            _await_files_of(other)


def _await_files_of(other: Runtime) -> None:
    driver, engine = other.driver, other.driver.engine
    if engine.state.files and (engine.unfinished or engine.naming):
        driver.wait_until(lambda: not engine.unfinished and not engine.naming)
        driver.house.finish()
    if not driver.unobserved:
        return
    with driver.lock:
        records = [engine.state.versions.get(version) for version in other.files.newest.values()]
    for record in records:
        failure = None if record is None else record.outcome
        if type(failure) is Failure and failure.path and failure.path[0] in driver.unobserved:
            raise other.observe(failure)
