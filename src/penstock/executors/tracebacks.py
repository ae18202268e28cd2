"""An exception as a value that travels: its type, its text and the traceback the user would see locally."""

from __future__ import annotations

import re
import traceback
from types import TracebackType

from penstock.data.limits import behind
from penstock.errors import SerializationError
from penstock.executors.outages import is_outage
from penstock.executors.raised import pickled
from penstock.executors.task_streams import has_terminal
from penstock.model.tasks import Failure, FailureKind

__all__ = ["describe", "is_of_body"]

#: calls at either end of a long traceback that are shown, and characters of all of it
_ENDS = 20
_LONGEST = 30_000
_FRAME = re.compile(r'[ |]*File ".*", line \d+')
_NO_DEBUGGER = (
    "the debugger found no terminal in the worker process; run the program with PENSTOCK_MODE=inline, or call the "
    "plain function: task.__wrapped__(...)"
)

#: packages whose frames come before the task's body
_OURS = ("penstock.executors.", "penstock.data.", "asyncio.")


def describe(error: BaseException, task: str) -> Failure:
    """What is known of an exception that a task raised."""
    if isinstance(error, SystemExit):
        text = _text(error)  # before pickling, which takes the frames off
        exception = pickled(error.with_traceback(None))
        return Failure(FailureKind.EXCEPTION, f"it called sys.exit({error.code!r})", exception, text)
    kind = getattr(error, "failure_kind", FailureKind.EXCEPTION)
    if isinstance(error, SerializationError):
        kind = FailureKind.SERIALIZATION
    if isinstance(error, ValueError) and "read-only" in _words(error):
        error.add_note(
            f"Arrays given to task {task} as IN cannot be changed: declare the argument INOUT, or copy it first."
        )
    if not has_terminal() and isinstance(error, EOFError) and "EOF when" in _words(error):
        error.add_note("A task has no standard input: ask in the program, and pass the answer.")
    words = _NO_DEBUGGER if not has_terminal() and type(error).__module__ == "bdb" else _words(error)
    if (limit := behind(error)) and limit not in words:
        words = f"{words}; {limit}"
        if not getattr(error, "__notes__", ()):
            error.add_note(limit)
    message = f"{type(error).__name__}: {words}" if kind is FailureKind.EXCEPTION else words
    told = kind in (FailureKind.EXCEPTION, FailureKind.RETURNS)
    text = _text(error) if told else ""  # before pickling, which takes the frames off
    outage = kind is FailureKind.EXCEPTION and is_outage(error)
    return Failure(kind, message, pickled(error.with_traceback(None)), text, outage=outage)


def is_of_body(error: BaseException) -> bool:
    """Whether an exception was raised by the task's body, and not while its arguments were made."""
    return _user_frames(error.__traceback__) is not None


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(its text cannot be made)"


def _text(error: BaseException) -> str:
    """The traceback from the task's body on; none if the error did not come from there."""
    frames = _user_frames(error.__traceback__)
    if frames is None and not isinstance(error, SystemExit):
        return ""
    try:
        return shortened("".join(traceback.format_exception(type(error), error, frames)).rstrip())
    except Exception:
        return shortened("".join(traceback.format_tb(frames)).rstrip())


def shortened(text: str) -> str:
    """A traceback without the middle of what is very long: a recursion without end repeats itself for 300 kB."""
    lines: list[str] = []
    frames: list[list[str]] = []
    for line in [*text.split("\n"), None]:
        if line is not None and _FRAME.match(line):
            frames.append([line])
        elif line is not None and frames and len(line) - len(line.lstrip(" |")) > _indent(frames[-1][0]):
            frames[-1].append(line)  # the source of the call
        else:
            lines += _ends_of(frames)
            frames = []
            lines += [] if line is None else [line]
    short = "\n".join(lines)
    if len(short) <= _LONGEST:
        return short
    left_out = len(short) - _LONGEST
    return f"{short[: _LONGEST // 2]}\n[{left_out} characters left out]\n{short[-_LONGEST // 2 :]}"


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" |"))


def _ends_of(frames: list[list[str]]) -> list[str]:
    if len(frames) <= 2 * _ENDS:
        return [line for frame in frames for line in frame]
    mark = " " * _indent(frames[0][0]) + f"[{len(frames) - 2 * _ENDS} calls left out]"
    first, last = frames[:_ENDS], frames[-_ENDS:]
    return [*(line for frame in first for line in frame), mark, *(line for frame in last for line in frame)]


def _user_frames(frames: TracebackType | None) -> TracebackType | None:
    """Skip our own frames at the top: the user's traceback starts in the body of the task."""
    while frames is not None and frames.tb_frame.f_globals.get("__name__", "").startswith(_OURS):
        frames = frames.tb_next
    return frames
