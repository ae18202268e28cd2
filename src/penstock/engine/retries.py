"""What a failed attempt means: try again, or give up."""

from __future__ import annotations

from penstock.model.tasks import FailureKind, OnFailure, TaskSpec

__all__ = ["DEFAULT_RETRIES", "tries_again"]

#: attempts after the first when the user did not say
DEFAULT_RETRIES = 2

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
