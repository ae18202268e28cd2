"""From a failure as a value to the exception that the program sees."""

from __future__ import annotations

import pickle

from penstock import errors
from penstock.model.tasks import PROGRAM, UNKNOWN, Failure, FailureKind

__all__ = ["as_exception", "defect", "own_exception"]

_KINDS: dict[FailureKind, type[Exception]] = {
    FailureKind.RETURNS: errors.ReturnsMismatch,
    FailureKind.SERIALIZATION: errors.SerializationError,
    FailureKind.CHANGED_INPUT: errors.ArgumentChanged,
    FailureKind.DIED: errors.WorkerDied,
    FailureKind.SETUP: errors.SetupFailed,
    FailureKind.TIMEOUT: errors.TaskTimeout,
    FailureKind.CANCELLED: errors.TaskCancelled,
    FailureKind.DEPENDENCY: errors.DependencyFailed,
    FailureKind.UNPLACEABLE: errors.ConstraintError,
    FailureKind.STOPPED: errors.RuntimeStopped,
    FailureKind.STORAGE_FULL: errors.StorageFull,
    FailureKind.LOST: errors.DataLost,
}


#: what a failure may begin with besides a task
_NO_TASKS = (PROGRAM, UNKNOWN)


def as_exception(failure: Failure) -> BaseException:
    """The user's own exception, caused by a ``TaskFailed`` that tells the rest; or one of ours."""
    if failure.kind is FailureKind.EXCEPTION:
        story = errors.TaskFailed(_story(failure))
        own = own_exception(failure)
        if own is None or isinstance(own, SystemExit):  # who waits for a task that exits need not exit
            return story
        # It has one cause, which is ours; what led to it in the task comes after that.
        story.__context__ = own.__context__
        if own.__cause__ is not None:
            story.__cause__ = own.__cause__
        own.__cause__ = story
        return own
    text = failure.message if failure.kind is FailureKind.STOPPED else _story(failure)
    error = _KINDS[failure.kind](text)
    if failure.kind in (FailureKind.DEPENDENCY, FailureKind.CANCELLED, FailureKind.SETUP):
        error.__cause__ = own_exception(failure)
    return error


def own_exception(failure: Failure) -> BaseException | None:
    """What the task raised, if it could travel."""
    if failure.exception is None:
        return None
    try:
        error = pickle.loads(failure.exception)
    except Exception:
        return None  # a class that only the worker knows: the text tells the rest
    return error if isinstance(error, BaseException) else None


def _story(failure: Failure) -> str:
    root, *through = failure.path or ("a task",)
    where = f" on {failure.node}" if failure.node else ""
    attempt = f", attempt {failure.attempt}" if failure.attempt else ""
    if failure.kind is FailureKind.DEPENDENCY:
        failed = f"{root}: {failure.message}" if root in _NO_TASKS else f"task {root} failed{where}: {failure.message}"
        text = f"task {through[-1] if through else root} did not run: {failed}"
        if len(through) > 1:
            text += "\nit needs " + ", which needs ".join([*reversed(through[:-1]), root])
    elif failure.kind is FailureKind.LOST:
        text = f"{root if root in _NO_TASKS else f'task {root}'}: {failure.message}"
    else:
        verb = "was cancelled" if failure.kind is FailureKind.CANCELLED else "failed"
        name = through[-1] if through else root
        text = f"task {name}({failure.arguments}) {verb}{where}{attempt}: {failure.message}"
    if failure.traceback:
        text += f"\n\nIn the worker:\n{failure.traceback}"
    if failure.output:
        text += f"\n\nLast lines that this worker printed, for this task or earlier ones:\n{failure.output}"
    return text


def defect(error: BaseException) -> str:
    """What is said of an error of our own."""
    return f"an error inside Penstock, {type(error).__name__}: {error}; please report this"
