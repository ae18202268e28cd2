"""Tasks on files whose process meets a full disk: imported by a worker, this module has one call on files fail there.

Which one is told by two environment variables: the folder whose calls are counted, and the number of the one to fail.
"""

from __future__ import annotations

import builtins
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults.programs import Tally, TaskSide

from penstock import FILE_IN, FILE_INOUT, FILE_OUT, task

FOLDER = "FAILING_DISK_FOLDER"
NUMBER = "FAILING_DISK_NUMBER"
TALLY = "FAILING_DISK_TALLY"

#: calls that make a name or need room for one
CALLS = [(os, "mkdir"), (os, "replace"), (os, "rename"), (os, "link"), (builtins, "open")]


def failing(call: Callable[..., Any], folder: str, number: int, tally: Tally) -> Callable[..., Any]:
    """The call, except that the one with this number finds no space."""

    def counted(path: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(path, str | Path) and str(path).startswith(folder) and tally.mark() == number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return call(path, *args, **kwargs)

    return counted


def break_disk() -> None:
    """In a worker: have the disk fail as told."""
    folder, number, tally = os.environ[FOLDER], int(os.environ[NUMBER]), Tally(Path(os.environ[TALLY]))
    for module, name in CALLS:
        setattr(module, name, failing(getattr(module, name), folder, number, tally))


# The environment says so in workers and in the main program alike, but the main program imported this long before.
if FOLDER in os.environ:
    break_disk()


@task(path=FILE_OUT)
def write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


@task(path=FILE_INOUT, retries=1, on_failure="fail")
def append(path: str, text: str) -> None:
    with open(path, "a") as file:
        file.write(text)


@task(path=FILE_OUT, on_failure="retry")
def write_persistently(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


@task(path=FILE_IN)
def read_slowly(path: str, gate: TaskSide) -> str:
    gate.hold()
    return Path(path).read_text()
