"""What a failed attempt means: try again, at once or after a pause, or give up."""

from __future__ import annotations

from penstock.model.data import TaskId
from penstock.model.tasks import Failure, FailureKind, OnFailure, TaskSpec

__all__ = ["DEFAULT_RETRIES", "pause_before", "tries_again"]

#: attempts after the first when the user did not say
DEFAULT_RETRIES = 2
#: seconds before the second attempt, after an outage, when the user did not say
_OUTAGE_DELAY = 1.0
#: pauses double up to this many seconds, or to what the user asked for if that is more
_LONGEST = 60.0
#: a pause is longer by up to this part of it, so that tasks which failed together do not come back together
_SPREAD = 0.5
#: odd, and far from any pattern: multiples of them, cut to 32 bits, are spread evenly
_SCATTER_TASKS, _SCATTER_ATTEMPTS = 2654435761, 2246822519

#: failures that another attempt would only repeat
_HOPELESS = frozenset(
    {
        FailureKind.RETURNS,
        FailureKind.SERIALIZATION,
        FailureKind.CHANGED_INPUT,
        FailureKind.CANCELLED,
        FailureKind.DEPENDENCY,
        FailureKind.UNPLACEABLE,
        FailureKind.STOPPED,
        FailureKind.STORAGE_FULL,
        FailureKind.LOST,
    }
)


def tries_again(spec: TaskSpec, kind: FailureKind, attempt: int) -> bool:
    """Whether attempt number ``attempt`` (from 1), having failed this way, is followed by another."""
    if kind in _HOPELESS:
        return False
    allowed = DEFAULT_RETRIES if spec.retries is None else spec.retries
    if kind is not FailureKind.DIED and spec.on_failure is not OnFailure.RETRY:
        allowed = 0
    return attempt <= allowed


def pause_before(spec: TaskSpec, failure: Failure, attempt: int, task: TaskId) -> float:
    """Seconds to wait after attempt number ``attempt`` (from 1) of a task failed, before the next.

    How much longer than asked for is drawn from the numbers of task and attempt: no run of the engine differs.
    """
    delay = spec.retry_delay
    if delay is None:
        delay = _OUTAGE_DELAY if failure.outage else 0.0
    if not delay:
        return 0.0
    delay = min(delay * 2.0 ** min(attempt - 1, 64), max(delay, _LONGEST))
    chance = (task * _SCATTER_TASKS + attempt * _SCATTER_ATTEMPTS) % 2**32 / 2**32
    return delay * (1.0 + _SPREAD * chance)
