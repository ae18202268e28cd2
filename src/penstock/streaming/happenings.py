"""What happens in a workflow, told to whoever listens: the event log, the terminal, a test.

The server and the steps tell; few things per file, nothing per read or write.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

__all__ = [
    "EdgeFlowed",
    "FileBorn",
    "FileCommitted",
    "FileDelivered",
    "Happening",
    "Stalled",
    "StepEnded",
    "StepStarted",
    "Tell",
    "Warned",
]


class StepStarted(Struct, frozen=True):
    """An instance of a step runs."""

    step: str
    pid: int


class StepEnded(Struct, frozen=True):
    """An instance of a step is over."""

    step: str
    pid: int
    #: exit status, or minus the number of the signal
    status: int
    seconds: float


class FileBorn(Struct, frozen=True):
    """A file or directory was made by the workflow."""

    file: str
    step: str


class FileCommitted(Struct, frozen=True):
    """A file or directory is final."""

    file: str
    bytes: int


class FileDelivered(Struct, frozen=True):
    """A permanent file has reached its real place."""

    file: str
    bytes: int


class EdgeFlowed(Struct, frozen=True):
    """More has flowed from one step to another; the amounts are those since the start."""

    producer: str
    consumer: str
    files: int
    written: int
    read: int


class Stalled(Struct, frozen=True):
    """Somebody has waited for long."""

    step: str
    file: str
    message: str


class Warned(Struct, frozen=True):
    """Something is not as the coordination file promises, or not as the user may expect."""

    message: str


Happening = StepStarted | StepEnded | FileBorn | FileCommitted | FileDelivered | EdgeFlowed | Stalled | Warned
Tell = Callable[[Happening], None]
