"""An exception as a value that travels: its type, its text and the traceback the user would see locally."""

from __future__ import annotations

import pickle
import traceback
from types import TracebackType
from typing import Any

from penstock.data.serializer import dump_stream
from penstock.errors import SerializationError
from penstock.model.tasks import Failure, FailureKind

__all__ = ["describe", "is_of_body"]

#: packages whose frames come before the task's body
_OURS = ("penstock.executors.", "penstock.data.")


def describe(error: BaseException, task: str) -> Failure:
    """What is known of an exception that a task raised."""
    if isinstance(error, SystemExit):
        return Failure(FailureKind.EXCEPTION, f"it called sys.exit({error.code!r})", None, _text(error))
    kind = getattr(error, "failure_kind", FailureKind.EXCEPTION)
    if isinstance(error, SerializationError):
        kind = FailureKind.SERIALIZATION
    if isinstance(error, ValueError) and "read-only" in _words(error):
        error.add_note(
            f"Arrays given to task {task} as IN cannot be changed: declare the argument INOUT, or copy it first."
        )
    words = _words(error)
    message = f"{type(error).__name__}: {words}" if kind is FailureKind.EXCEPTION else words
    told = kind in (FailureKind.EXCEPTION, FailureKind.RETURNS)
    text = _text(error) if told else ""  # before pickling, which takes the frames off
    return Failure(kind, message, _pickled(error), text)


def is_of_body(error: BaseException) -> bool:
    """Whether an exception was raised by the task's body, and not while its arguments were made."""
    return _user_frames(error.__traceback__) is not None


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(its text cannot be made)"


def _pickled(error: BaseException) -> bytes | None:
    """The exception itself, if it survives the way to another process; else one of the same class, made anew."""
    bare = error.with_traceback(None)
    return _survives(bare) or _survives(_Rebuilt(bare))


def _survives(obj: object) -> bytes | None:
    try:
        data, buffers = dump_stream(obj, "the exception")
        if buffers:
            return None
        pickle.loads(data)
    except BaseException:
        return None  # whatever a user's exception does when pickled, its text still travels
    return data


class _Rebuilt:
    """Pickles an exception whose constructor takes other arguments than it hands to its base."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __reduce__(self) -> tuple[Any, ...]:
        error = self._error
        state = {name: value for name, value in vars(error).items() if _survives(value) is not None}
        args = tuple(part if _survives(part) is not None else repr(part) for part in error.args)
        return rebuild, (type(error), args, state)


def rebuild(cls: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]) -> BaseException:
    """An exception of a class, without calling its constructor."""
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


def _text(error: BaseException) -> str:
    """The traceback from the task's body on; none if the error did not come from there."""
    frames = _user_frames(error.__traceback__)
    if frames is None and not isinstance(error, SystemExit):
        return ""
    try:
        return "".join(traceback.format_exception(type(error), error, frames)).rstrip()
    except Exception:
        return "".join(traceback.format_tb(frames)).rstrip()


def _user_frames(frames: TracebackType | None) -> TracebackType | None:
    """Skip our own frames at the top: the user's traceback starts in the body of the task."""
    while frames is not None and frames.tb_frame.f_globals.get("__name__", "").startswith(_OURS):
        frames = frames.tb_next
    return frames
