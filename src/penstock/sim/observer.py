"""Who looks on while a simulation runs: with the methods of real runs' recorder, so that the same log comes out."""

from __future__ import annotations

from typing import Protocol

from penstock.model.commands import Launch, Move
from penstock.model.events import Event

__all__ = ["Observer"]


class Observer(Protocol):
    """Told of everything, at the virtual time ``now``."""

    def event(self, event: Event, now: float) -> None:
        """The engine has dealt with an event."""

    def reports(self, now: float) -> None:
        """The engine has something in ``state.reports``."""

    def notes(self, now: float) -> None:
        """The engine has something in ``state.notes``."""

    def launched(self, command: Launch, now: float) -> None:
        """An attempt was sent to a lane."""

    def fetched(self, task: int, attempt: int, seconds: float, size: int, now: float) -> None:
        """An attempt has got what it needed from other nodes."""

    def moved(self, command: Move, size: int, seconds: float, error: str, now: float) -> None:
        """A file was moved, or could not be."""

    def published(self, version: int, path: str, now: float) -> None:
        """A file got its final name."""

    def draining(self, now: float) -> None:
        """The tasks are over; whatever files lie on layers go home now."""
