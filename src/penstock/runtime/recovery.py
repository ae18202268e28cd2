"""Reading a version in the main program.

Its segment may be lost: it is computed again, and read then.

    load ─▶ SegmentLost ─▶ SegmentsLost to the engine ─▶ the version is settled once more ─▶ load

The program then reads the segment for as long as it has a part of what was loaded: nobody may update it in place.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from penstock.data.segments import SegmentLost
from penstock.data.slots import current
from penstock.errors import DataLost
from penstock.model.data import SegmentId, Slot, Value, VersionId, segments_of
from penstock.model.events import SegmentMade, SegmentsLost
from penstock.model.tasks import Failure

if TYPE_CHECKING:
    from penstock.runtime.runtime import Runtime

__all__ = ["read"]

T = TypeVar("T")


def read(
    runtime: Runtime, version: VersionId, content: Value, load: Callable[[Value], T], timeout: float | None = None
) -> T:
    """Load a version's content, as often as it takes; ``content`` is what it was when it was settled.

    Must not be called with a lock that callbacks of futures need: others bring about what is waited for.
    """
    latest = None if timeout is None else time.monotonic() + timeout
    while True:
        try:
            current.loading = []
            obj = load(content)
            _keep(runtime, current.loading)
            return obj
        except SegmentLost as lost:
            left = None if latest is None else max(0.0, latest - time.monotonic())
            outcome = _made_again(runtime, version, lost, left)
            if isinstance(outcome, Failure):
                raise runtime.observe(outcome) from None
            assert type(outcome) is Value
            content = outcome
        finally:
            current.loading = None


def _keep(runtime: Runtime, mapped: list[tuple[SegmentId, memoryview]]) -> None:
    """Count the program among those that hold segments, until the last part of a mapping is gone."""
    if not mapped or runtime.stopped:
        return
    with runtime.driver.lock:
        for segment, view in mapped:
            if segment in runtime.driver.engine.state.segments:
                runtime.driver.handle(SegmentMade(segment, 0))
                weakref.finalize(view.obj, _let_go, weakref.ref(runtime), segment).atexit = False


def _let_go(reference: weakref.ref[Runtime], segment: SegmentId) -> None:
    runtime = reference()
    if runtime is not None:
        runtime.segment_gone(segment)


def _made_again(runtime: Runtime, version: VersionId, lost: SegmentLost, timeout: float | None) -> Slot | Failure:
    """What a version holds after a segment was found lost; waits for it."""
    if runtime.stopped:
        raise DataLost(f"a result is lost: {lost.why}. It cannot be computed again: the run is over") from lost
    driver = runtime.driver
    versions = driver.engine.state.versions

    def settled() -> bool:
        record = versions.get(version)
        return record is None or record.outcome is not None

    with driver.lock:
        record = versions.get(version)
        if record is not None and lost.segment in segments_of(record.outcome):
            driver.handle(SegmentsLost((lost.segment,), lost.why))
    driver.after()
    if not settled() and not driver.serve_until(settled, timeout) and not driver.wait_until(settled, timeout):
        raise TimeoutError(f"a result was lost ({lost.why}) and is not computed again after {timeout:g} s") from lost
    record = versions.get(version)
    if record is None or record.outcome is None:
        raise DataLost(f"a result is lost: {lost.why}. It was let go before it could be computed again") from lost
    return record.outcome
