"""The program's own setup of the processes that carry out tasks: called once in each of them, before its first task.

The main program leaves the function in a file of the run (``leave``), and every worker and rank calls it (``prepare``).
If it raises, each task of that process fails and says why. No other process is started for it, which would fare no
better. What it binds or changes in globals and classes that travel by value is for all tasks (setup_globals.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable

from penstock.data.picklers import by_value
from penstock.errors import SerializationError
from penstock.executors.setup_globals import setup_globals
from penstock.executors.tracebacks import describe
from penstock.model.tasks import Failure, FailureKind

__all__ = ["leave", "prepare", "prepare_inline"]


def leave(function: Callable[[], object], folder: str) -> str:
    """Write the function where the processes of the run find it; gives the path."""
    try:
        data = by_value(function)
    except Exception as error:
        raise SerializationError(
            f"the setup of workers, {function!r:.80}, cannot be sent to them: {type(error).__name__}: {error}. "
            f"Create inside the function what cannot be pickled; locks and queues of multiprocessing reach workers "
            f"only if multiprocessing.Manager() makes them."
        ) from error
    path = os.path.join(folder, "setup")
    with open(path, "wb") as file:
        file.write(data)
    return path


def prepare(path: str) -> Failure | None:
    """Call what ``leave`` has left; gives why this process cannot carry out tasks."""

    def left() -> None:
        with open(path, "rb") as file:
            setup_globals.call(file.read())

    return _prepare_by(left) if path else None


def prepare_inline(function: Callable[[], object]) -> Failure | None:
    """Call the setup in the program itself; gives why it cannot carry out tasks."""
    return _prepare_by(lambda: setup_globals.call_inline(function))


def _prepare_by(call: Callable[[], object]) -> Failure | None:
    try:
        call()
    except BaseException as error:
        told = describe(error, "setup")
        message = f"the setup of its worker process raised {told.message}; no task can run before it succeeds"
        return Failure(FailureKind.SETUP, message, told.exception, told.traceback)
    return None
