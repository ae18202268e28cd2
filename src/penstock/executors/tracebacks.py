"""An exception as a value that travels: its type, its text and the traceback the user would see locally."""

from __future__ import annotations

import traceback
from types import TracebackType

from penstock.data.serializer import dump_stream
from penstock.errors import SerializationError
from penstock.model.tasks import Failure, FailureKind

__all__ = ["describe"]

_OURS = __name__.rpartition(".")[0] + "."


def describe(error: BaseException, task: str) -> Failure:
    """What is known of an exception that a task raised."""
    if isinstance(error, SystemExit):
        return Failure(FailureKind.EXCEPTION, f"it called sys.exit({error.code!r})", None, _text(error))
    kind = getattr(error, "failure_kind", FailureKind.EXCEPTION)
    if isinstance(error, SerializationError):
        kind = FailureKind.SERIALIZATION
    if isinstance(error, ValueError) and "read-only" in str(error):
        error.add_note(
            f"Arrays given to task {task} as IN cannot be changed: declare the argument INOUT, or copy it first."
        )
    message = f"{type(error).__name__}: {error}" if kind is FailureKind.EXCEPTION else str(error)
    text = _text(error)  # before pickling, which takes the frames off
    return Failure(kind, message, _pickled(error), text)


def _pickled(error: BaseException) -> bytes | None:
    """The exception itself, if it survives the way to another process."""
    import pickle

    try:
        data, buffers = dump_stream(error.with_traceback(None), "the exception")
        if buffers:
            return None
        pickle.loads(data)
    except BaseException:
        # Whatever a user's exception does when pickled, its text still travels.
        return None
    return data


def _text(error: BaseException) -> str:
    frames = _user_frames(error.__traceback__)
    return "".join(traceback.format_exception(type(error), error, frames)).rstrip()


def _user_frames(frames: TracebackType | None) -> TracebackType | None:
    """Skip our own frames at the top: the user's traceback starts in the body of the task."""
    found = frames
    while found is not None and found.tb_frame.f_globals.get("__name__", "").startswith(_OURS):
        found = found.tb_next
    return found if found is not None else frames
