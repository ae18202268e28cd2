"""How the program gets at files that are with the tasks: it waits for them, and has those on layers brought home."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.errors import CallError, PenstockError
from penstock.model.data import VersionId
from penstock.model.events import FileDropped, HomeWanted
from penstock.model.tasks import Failure
from penstock.own_threads import OwnThread
from penstock.runtime.reverting import await_given_up

if TYPE_CHECKING:
    from penstock.engine.state import VersionRecord
    from penstock.runtime.runtime import Runtime

__all__ = [
    "bring_home",
    "claim",
    "deleting",
    "drop_copies",
    "ensure_not_missing",
    "newest_version",
    "wait_for_file",
]


def newest_version(runtime: Runtime, path: str) -> VersionId | None:
    """The version of a file that is with the tasks and counts; None if what is on disk does."""
    newest = _newest_that_counts(runtime, path)
    # Our own threads, which run callbacks, must not wait for file systems.
    if not runtime.driver.engine.state.placed or type(threading.current_thread()) is OwnThread:
        return newest
    if newest is not None and not _is_replaced(runtime, path, newest):
        return newest
    if newest is not None:
        bring_home(runtime, path)  # to where the program may have renamed it
        _forget(runtime, path, newest)
    _bring_home_renamed(runtime, path)
    return None


def _is_replaced(runtime: Runtime, path: str, newest: VersionId) -> bool:
    """Whether the program has put something else in the place of the link to a finished file on a layer."""
    driver, files = runtime.driver, runtime.files
    record = driver.engine.state.versions.get(newest)
    if record is None or not _is_linked(record) or files.leads_to(path, record.scratch or ""):
        return False
    # A move changes the link as well.
    driver.wait_until(lambda: record.placed is None or record.placed.moving is None)
    with driver.lock:
        place = record.scratch
    return place is not None and not files.leads_to(path, place)


def _is_linked(record: VersionRecord) -> bool:
    """Whether a version lies on a layer, and its name was made a link to it."""
    return record.placed is not None and record.scratch is not None and record.published and not record.unnamed


def _forget(runtime: Runtime, path: str, version: VersionId) -> None:
    """What is on disk counts."""
    with runtime.driver.lock:
        if runtime.files.newest.get(path) == version:
            del runtime.files.newest[path]
            runtime.driver.released.append(version)


def _bring_home_renamed(runtime: Runtime, path: str) -> None:
    """If the program has given a path to a file that lies on a layer under another name, make it the file."""
    try:
        place = os.readlink(path)
    except OSError:
        return
    driver = runtime.driver
    with driver.lock:
        found = [record.file for record in driver.engine.state.placed.values() if record.scratch == place]
    for name in found:
        if name is not None and name != path:
            bring_home(runtime, name)


def _newest_that_counts(runtime: Runtime, path: str) -> VersionId | None:
    """The newest version of a file that is with the tasks.

    One that could not be made does not count from when the program knows: then it is the one called before it, which
    tasks may still be making.
    """
    files, driver = runtime.files, runtime.driver
    newest, state = files.newest.get(path), driver.engine.state
    record = state.versions.get(newest) if newest is not None else None
    if newest is None or record is None:
        return None
    if record.outcome is None and runtime.given_up:
        await_given_up(runtime)
    if type(record.outcome) is not Failure:
        return newest
    with driver.lock:
        for number in reversed(state.files.get(path, {})):
            outcome = state.versions[number].outcome
            if type(outcome) is not Failure or outcome.path[0] in driver.unobserved:
                break
        else:
            number = 0
        if number == newest:
            return newest
        if number:
            files.newest[path] = number
        elif os.path.lexists(path):
            del files.newest[path]
        else:
            return None  # it is known why there is no such file
        driver.released.append(newest)
    return number or None


def claim(runtime: Runtime, wanted: dict[str, tuple[str, bool]]) -> None:
    """Refuse to write files that another program is writing: the two would mix without a word.

    ``wanted`` says of each path how messages call the argument, and whether it is a directory.
    """
    claims = runtime.claims
    found = None if claims is None else claims.claim((path, directory) for path, (_, directory) in wanted.items())
    if found is not None:
        path, other = found
        raise CallError(
            f"{wanted[path][0]} names {path}, which another program, {other}, is writing too; wait until it has ended, "
            f"write elsewhere, or set file_locks to false (PENSTOCK_FILE_LOCKS=false) if that does no harm"
        )


def wait_for_file(runtime: Runtime, path: str, *, alone: bool) -> None:
    """Wait until a file is complete under its own name, and nobody uses it any more if that matters."""
    for folder in runtime.files.around(path):
        wait_for_file(runtime, folder, alone=alone)
    driver = runtime.driver
    state = driver.engine.state
    version = newest_version(runtime, path)

    def ready() -> bool:
        if path in driver.house.unnamed:
            return True
        if alone:
            return all(_is_over(record) for record in _versions(runtime, path))
        record = state.versions.get(version) if version is not None else None
        return record is None or type(record.outcome) is Failure or (record.placed is not None and record.published)

    driver.wait_until(ready)
    with driver.lock:
        record = state.versions.get(version) if version is not None else None
        outcome = record.outcome if record is not None else None
    if type(outcome) is not Failure:
        outcome = driver.house.unnamed.pop(path, None)
    if outcome is not None:
        raise runtime.observe(outcome)


def ensure_not_missing(runtime: Runtime, path: str) -> None:
    """If there is no such file and it is known why, say that."""
    version = runtime.files.newest.get(path)
    record = runtime.driver.engine.state.versions.get(version) if version is not None else None
    if record is not None and type(record.outcome) is Failure and not os.path.lexists(path):
        raise runtime.observe(record.outcome)


def _versions(runtime: Runtime, path: str) -> list[VersionRecord]:
    state = runtime.driver.engine.state
    return [state.versions[number] for number in state.files.get(path, ())]


def _is_over(record: VersionRecord) -> bool:
    """Whether a version exists under the file's name, or failed, and nobody reads it."""
    named = record.scratch is None or record.published
    return record.outcome is not None and named and not record.uses


def bring_home(runtime: Runtime, path: str) -> None:
    """Wait until a file is under its name in truth, not on a layer: the program will change it."""
    driver = runtime.driver
    driver.post(HomeWanted(path))

    def on_layers() -> list[VersionRecord]:
        return [
            record for record in _versions(runtime, path) if record.placed is not None and record.scratch is not None
        ]

    driver.wait_until(lambda: all(record.placed and record.placed.error for record in on_layers()))
    for record in on_layers():
        assert record.placed is not None
        raise PenstockError(
            f"the file {path} is on storage layer {record.placed.device.name} and could not be moved home: "
            f"{record.placed.error}"
        )


@contextlib.contextmanager
def deleting(runtime: Runtime, path: str) -> Iterator[None]:
    """Meanwhile, that a file's name is gone does not mean that the program may have renamed it."""
    names = runtime.driver.house.deleting
    names.add(path)
    try:
        yield
    finally:
        names.discard(path)


def drop_copies(runtime: Runtime, path: str) -> None:
    """Have what a file takes on layers removed, before its name goes; the room is free when this returns."""
    driver = runtime.driver
    driver.post(FileDropped(path))
    driver.wait_until(
        lambda: not driver.engine.state.discarding and not any(v.placed for v in _versions(runtime, path))
    )
    driver.house.finish()
