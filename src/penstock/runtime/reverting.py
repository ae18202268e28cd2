"""Back to what an object was: a task that was to update it has failed, and the program knows.

In a sequential program the call would have raised, and who catches that goes on with the object as it was before. So
does a program here, from when it knows of the failure. Calls that are made before that fail as all do that need what a
failed task does not deliver: never does one silently get the older value where a sequential program would have ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import DataLost
from penstock.graph.identity import Datum
from penstock.model.data import SPOILED, VersionId
from penstock.model.events import Reverted
from penstock.model.tasks import Failure

if TYPE_CHECKING:
    from penstock.runtime.futures import Future
    from penstock.runtime.runtime import Runtime

__all__ = ["Placed", "await_given_up", "datum_of", "standing", "takes_back"]


class Placed:
    """What stands in a collection of the program for a number or string that a task replaces: a kind of future."""

    __slots__ = ()

    #: the number or string
    original: Any
    version: VersionId

    def be_original(self) -> None:
        """The task has failed: it stands for what was there before."""
        raise NotImplementedError


def standing(runtime: Runtime, version: VersionId, what: str, *, ending: bool = False) -> VersionId:
    """The version that stands for something now: the one that was newest, unless that failed and the program knows.

    0 if what the program itself has is as good. At the end of a run, what failed does not count in any case.
    """
    driver = runtime.driver
    state = driver.engine.state
    record = state.versions.get(version)
    if record is None:
        return version
    if record.outcome is None and runtime.given_up:
        await_given_up(runtime)
    if type(record.outcome) is not Failure:
        return version
    with driver.lock:
        return _go_back(runtime, version, what, ending=ending)


def await_given_up(runtime: Runtime) -> None:
    """Wait for the ends of tasks that the program has cancelled while they ran.

    What is known to fail has not failed before that, and whoever followed it would be cancelled with it.
    """
    driver, tasks = runtime.driver, runtime.driver.engine.state.tasks

    def lives(task: int) -> bool:
        record = tasks.get(task)
        return record is not None and record.doom is not None

    given_up = tuple(runtime.given_up)
    driver.wait_until(lambda: not any(map(lives, given_up)))
    runtime.given_up.difference_update(task for task in given_up if not lives(task))  # callbacks have not waited


def _go_back(runtime: Runtime, version: VersionId, what: str, *, ending: bool = False) -> VersionId:
    """The same, under the lock."""
    driver = runtime.driver
    state = driver.engine.state
    while version:
        failure = state.versions[version].outcome
        if type(failure) is not Failure or not failure.path:
            break
        if failure.path[0] in driver.unobserved and not ending:
            break
        before = state.replaced.get(version)
        if before is None:
            break
        if before == SPOILED:
            raise DataLost(_spoiled(failure, what))
        driver.handle(Reverted(version))
        version = before
    return version


def _spoiled(failure: Failure, what: str) -> str:
    return (
        f"{what} is lost: task {failure.path[0]} was changing it in place when it failed ({failure.message}), so there "
        f"is nothing to go back to. Give that task retries=1 or more, or on_failure='ignore', to make it work on a "
        f"copy; to go on with what the program itself has, call delete_object() on it"
    )


def datum_of(runtime: Runtime, obj: Any, what: str, *, ending: bool = False) -> Datum | None:
    """The datum that an object is, with its version brought back if that failed; None if it is the program's own."""
    datum = runtime.identity.find(obj)
    if datum is None or datum.shared:
        return datum
    version = standing(runtime, datum.version, what, ending=ending)
    if version == datum.version:
        return datum
    with runtime.driver.lock:
        if not version:
            runtime.identity.forget(obj)
            return None
        datum.version = version
    return datum


def takes_back(runtime: Runtime, future: Future[Any]) -> bool:
    """Whether a task that was to update a future has failed, the program knows, and the future is as it was before."""
    old, driver = future.version, runtime.driver
    if not old or not future.task_id or runtime.stopped:
        return False  # what it stands for is somebody else's, or gone
    if runtime.given_up and not future.done():
        await_given_up(runtime)
    with driver.lock:
        if old not in driver.engine.state.versions:
            return False
        version = _go_back(runtime, old, f"the value of {future!r}")
        if version == old:
            return False
        future.renew(future.task_id, version, future.name)
        if isinstance(future, Placed) and not version:
            future.be_original()
            return True
        outcome = driver.engine.state.versions[version].outcome
        if outcome is None:
            driver.waiters[version] = future
        else:
            future.settle(outcome)
    return True
