"""Strict mode: find tasks that change an argument they declare IN.

Each input is pickled before and after the body from the same object, so any difference was made by the task.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from penstock.data.serializer import dump_stream
from penstock.errors import ArgumentChanged
from penstock.model.tasks import FailureKind, Output

__all__ = ["InputWatch", "picture"]


class InputWatch:
    """Remembers the inputs of one call."""

    def __init__(
        self,
        task: str,
        body: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        outputs: Sequence[Output],
    ) -> None:
        self._task = task
        changing = {path[0] for output in outputs for path in (output.path, *output.also)}
        names = _names(body, len(args))
        watched = [(names[i], value) for i, value in enumerate(args) if i not in changing]
        watched += [(name, value) for name, value in kwargs.items() if name not in changing]
        self._inputs = [(name, value, picture(value)) for name, value in watched]

    def compare(self) -> None:
        """Raise for the first input that is no longer what it was."""
        for name, value, before in self._inputs:
            if before is not None and picture(value) != before:
                error = ArgumentChanged(
                    f"task {self._task} changed its argument {name!r} ({type(value).__name__}), which it declares IN; "
                    f"declare it {name}=INOUT, or work on a copy"
                )
                error.failure_kind = FailureKind.CHANGED_INPUT  # type: ignore[attr-defined]
                raise error


def _names(body: Callable[..., Any], count: int) -> list[str]:
    try:
        parameters = list(inspect.signature(body).parameters.values())
    except (TypeError, ValueError):
        return [str(i) for i in range(count)]
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "args")
    return names[:count] + [f"*{rest}[{i}]" for i in range(count - len(names))]


def picture(value: Any) -> bytes | None:
    """What an object looks like now; None if it cannot be said."""
    try:
        data, buffers = dump_stream(value, "it")
    except Exception:
        return None  # it travelled by other means, and cannot be compared
    return b"".join([data, *(buffer.raw() for buffer in buffers)])
