"""Strict mode: find tasks that change an argument they declare IN, or a global, a class or a cell that they use.

Each is pickled before and after the body from the same object, so any difference was made by the task.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

from penstock.data.serializer import dump_stream
from penstock.errors import ArgumentChanged
from penstock.executors.used_names import snapshot, used_by
from penstock.model.tasks import FailureKind, Output

__all__ = ["GlobalWatch", "InputWatch", "picture"]


class GlobalWatch:
    """Remembers what the function of one call refers to."""

    def __init__(self, task: str, body: Callable[..., Any]) -> None:
        self._task = task
        self._used = [(one, snapshot(one.value)) for one in used_by(body) if not hasattr(one.value, "__wrapped__")]

    def compare(self) -> None:
        """Raise for the first that is no longer what it was: the change stays in this process, or is lost."""
        for one, before in self._used:
            now = one.now()
            if now is one.value and (before is None or snapshot(now) == before):
                continue
            if now is not one.value and before is not None and snapshot(now) == before:
                continue
            what = "class" if isinstance(one.value, type) else "global" if isinstance(one.place, dict) else "variable"
            raise _changed(
                f"task {self._task} changed the {what} {one.name!r}, and neither the program nor other tasks see that; "
                f"return the value, or take it as an argument that is INOUT"
            )


def _changed(message: str) -> ArgumentChanged:
    error = ArgumentChanged(message)
    error.failure_kind = FailureKind.CHANGED_INPUT  # type: ignore[attr-defined]
    return error


class InputWatch:
    """Remembers the inputs of one call."""

    def __init__(
        self,
        task: str,
        body: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        outputs: Sequence[Output],
        updated: Sequence[Any],
    ) -> None:
        self._task = task
        #: what the task may change, which may be inside of an input too
        self._updated = {id(obj): (index, obj) for index, obj in enumerate(updated) if obj is not None}
        changing = {path[0] for output in outputs for path in (output.path, *output.also) if path}
        names = _names(body, len(args))
        watched = [(names[i], value) for i, value in enumerate(args) if i not in changing]
        watched += [(name, value) for name, value in kwargs.items() if name not in changing]
        # What it may change through another argument is no longer what it was, and may be so.
        changed = [value for place, value in [*enumerate(args), *kwargs.items()] if place in changing]
        self._inputs = [(name, value, self._picture(value)) for name, value in watched if not _is_among(value, changed)]

    def compare(self) -> None:
        """Raise for the first input that is no longer what it was."""
        for name, value, before in self._inputs:
            if before is not None and self._picture(value) != before:
                raise _changed(
                    f"task {self._task} changed its argument {name!r} ({type(value).__name__}), which it declares IN; "
                    f"declare it {name}=INOUT, or work on a copy"
                )

    def _picture(self, value: Any) -> bytes | None:
        return picture(value, self._number if self._updated else None)

    def _number(self, obj: Any) -> int | None:
        known = self._updated.get(id(obj))
        return None if known is None else known[0]


def _is_among(value: Any, others: Sequence[Any]) -> bool:
    """Whether an argument is another one too, or has memory in common with it."""
    numpy = sys.modules.get("numpy")
    array = numpy is not None and isinstance(value, numpy.ndarray)
    for other in others:
        if value is other:
            return True
        if array and numpy is not None:
            parts = (
                other if isinstance(other, list | tuple) else other.values() if isinstance(other, dict) else (other,)
            )
            if any(isinstance(part, numpy.ndarray) and numpy.may_share_memory(value, part) for part in parts):
                return True
    return False


def _names(body: Callable[..., Any], count: int) -> list[str]:
    try:
        parameters = list(inspect.signature(body).parameters.values())
    except (TypeError, ValueError):
        return [str(i) for i in range(count)]
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "args")
    return names[:count] + [f"*{rest}[{i}]" for i in range(count - len(names))]


def picture(value: Any, find: Callable[[Any], int | None] | None = None) -> bytes | None:
    """What an object looks like now; None if it cannot be said. ``find`` numbers what in it is not looked at."""
    try:
        data, buffers = dump_stream(value, "it", find)
    except Exception:
        return None  # it travelled by other means, and cannot be compared
    return b"".join([data, *(buffer.raw() for buffer in buffers)])
