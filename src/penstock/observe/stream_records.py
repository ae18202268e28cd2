"""Records of streamed workflows; records.py lists them among the others."""

from __future__ import annotations

from penstock.observe.event import Event

__all__ = [
    "EdgeFlowed",
    "FileBorn",
    "FileCommitted",
    "FileDelivered",
    "Stalled",
    "StepEnded",
    "StepStarted",
    "Warned",
]


class StepStarted(Event):
    """A program of a streamed workflow runs; ``step`` is its name, with a number where it has several instances."""

    step: str
    pid: int


class StepEnded(Event):
    """A program of a streamed workflow is over."""

    step: str
    pid: int
    #: exit status, or minus the number of the signal
    status: int
    seconds: float


class FileBorn(Event):
    """A file or directory was made by a streamed workflow; ``step`` is empty where nobody can tell."""

    file: str
    step: str = ""


class FileCommitted(Event):
    """A streamed file or directory is final."""

    file: str
    bytes: int = 0


class FileDelivered(Event):
    """A permanent file of a workflow that lives in memory has reached its real place."""

    file: str
    bytes: int = 0


class EdgeFlowed(Event):
    """More has flowed between two steps of a streamed workflow; the amounts are those since the start."""

    producer: str
    consumer: str
    #: files that the one makes and the other is declared to read
    files: int = 0
    written: int = 0
    read: int = 0


class Stalled(Event):
    """A program of a streamed workflow has waited for long."""

    step: str
    file: str
    message: str


class Warned(Event):
    """Something in a streamed workflow is not as it was promised."""

    message: str
