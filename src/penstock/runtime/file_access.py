"""How the program gets at files that are with the tasks: it waits for them, and has those on layers brought home."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.model.events import FileDropped, HomeWanted
from penstock.model.tasks import Failure

if TYPE_CHECKING:
    from penstock.engine.state import VersionRecord
    from penstock.runtime.runtime import Runtime

__all__ = ["bring_home", "drop_copies", "wait_for_file"]


def wait_for_file(runtime: Runtime, path: str, *, alone: bool) -> None:
    """Wait until a file is complete under its own name, and nobody uses it any more if that matters."""
    driver = runtime.driver
    state = driver.engine.state
    version = runtime.files.newest.get(path)

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


def drop_copies(runtime: Runtime, path: str) -> None:
    """Have what a file takes on layers removed, before its name goes; the room is free when this returns."""
    driver = runtime.driver
    driver.post(FileDropped(path))
    driver.wait_until(
        lambda: not driver.engine.state.discarding and not any(v.placed for v in _versions(runtime, path))
    )
    driver.house.finish()
