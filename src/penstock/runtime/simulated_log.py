"""The event log of a simulated run: the recorder of real runs, looking on at an engine on virtual time.

``SimulatedLog`` is made before the engine that it records, since whoever drives the engine wants it at hand; ``attach``
brings the two together. A simulated run has no place in the calendar, so equal runs leave equal logs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from penstock.model.commands import Launch, Move
from penstock.model.events import Event
from penstock.model.resources import Node
from penstock.observe import records
from penstock.observe.log import EventLog
from penstock.runtime.recorder import Recorder
from penstock.version import __version__

if TYPE_CHECKING:
    from penstock.engine.engine import Engine

__all__ = ["SimulatedLog"]


class SimulatedLog:
    """An observer of a simulation that writes an event log."""

    event: Callable[[Event, float], None]
    reports: Callable[[float], None]
    notes: Callable[[float], None]
    launched: Callable[[Launch, float], None]
    moved: Callable[[Move, int, float, str, float], None]
    published: Callable[[int, str, float], None]
    draining: Callable[[float], None]
    fetched: Callable[[int, int, float, int, float], None]
    waited: Callable[[float, float], None]

    def __init__(self, log: EventLog, nodes: Iterable[Node], scheduler: str, argv: list[str]) -> None:
        self.log = log
        self._nodes = list(nodes)
        self._scheduler = scheduler
        self._argv = argv

    def attach(self, engine: Engine) -> None:
        """Look on at this engine, from its first event."""
        recorder = Recorder(self.log, engine, self._nodes[0].name, 0.0)
        recorder.started(__version__, self._argv, self._scheduler, self._nodes, 0.0)
        self.event, self.launched = recorder.event, recorder.launched
        self.reports, self.notes = recorder.reports, recorder.notes
        self.moved, self.published, self.draining = recorder.moved, recorder.published, recorder.draining
        self.fetched, self.waited = recorder.fetched, recorder.waited

    def close(self, end: float, done: int, failed: int, cancelled: int = 0) -> None:
        """The run is over."""
        ok = not (failed or cancelled)
        self.log.append(records.RunEnded(end, ok, done, failed, cancelled))
        self.log.close()
