"""How the program gets at files that are with the tasks: it waits for them, and has those on layers brought home."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.model.data import VersionId
from penstock.model.events import HomeWanted
from penstock.model.tasks import Failure

if TYPE_CHECKING:
    from penstock.runtime.runtime import Runtime

__all__ = ["bring_home", "wait_for_file"]


def wait_for_file(runtime: Runtime, path: str, version: VersionId, *, alone: bool) -> None:
    """Wait until a file is complete under its own name, and nobody uses it any more if that matters."""
    driver = runtime.driver
    state = driver.engine.state

    def ready() -> bool:
        record = state.versions.get(version)
        if record is None:
            return not (alone and path in state.files)
        if record.placed is not None and record.published and not (alone and record.uses):
            return True
        return type(record.outcome) is Failure or path in driver.house.unnamed

    driver.wait_until(ready)
    with driver.lock:
        record = state.versions.get(version)
        outcome = record.outcome if record is not None else None
    if type(outcome) is not Failure:
        outcome = driver.house.unnamed.pop(path, None)
    if outcome is not None:
        raise runtime.observe(outcome)


def bring_home(runtime: Runtime, path: str, version: VersionId) -> None:
    """Wait until a file is under its name in truth, not on a layer: the program will change it."""
    driver = runtime.driver
    state = driver.engine.state
    driver.post(HomeWanted(version))

    def arrived() -> bool:
        record = state.versions.get(version)
        return record is None or record.scratch is None or bool(record.placed and record.placed.error)

    driver.wait_until(arrived)
    record = state.versions.get(version)
    if record is not None and record.placed is not None and record.placed.error:
        raise PenstockError(
            f"the file {path} is on storage layer {record.placed.device.name} and could not be moved home: "
            f"{record.placed.error}"
        )
