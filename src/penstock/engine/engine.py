"""``Engine.handle(event, now) -> commands``: the one way in and the one way out.

    program ──Submitted──▶ submission ─▶ ready set ─▶ placement ──Launch──▶ executor
                              ▲                          ▲                     │
                              │                          │                     ▼
    program ◀──Settle── completion ◀──────────── Finished, Failed, Recalled, WorkerLost

Each event goes to one handler; then whatever became ready is placed. Ties are broken by serial numbers, so the same
events give the same commands. Nothing here reads a clock: ``now`` is an argument.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.engine import completion, lifetimes, placement, submission
from penstock.engine.state import State
from penstock.errors import InternalError
from penstock.model import events
from penstock.model.commands import Command
from penstock.model.data import VersionId
from penstock.model.resources import Requirements
from penstock.scheduling.view import ReadySet

__all__ = ["Engine"]


def _node_joined(state: State, event: events.NodeJoined) -> None:
    state.ledger.join(event.node)


def _ticked(state: State, event: events.Ticked) -> None:
    placement.look_at_time(state)


_HANDLERS: dict[type, Callable[[State, Any], None]] = {
    events.NodeJoined: _node_joined,
    events.NodeLost: completion.node_lost,
    events.Submitted: submission.submit,
    events.Finished: completion.finished,
    events.OutputReady: completion.output_ready,
    events.Failed: completion.attempt_failed,
    events.Recalled: completion.attempts_recalled,
    events.WorkerLost: completion.worker_lost,
    events.CancelRequested: submission.cancel,
    events.Provided: submission.provide,
    events.Released: submission.release,
    events.Published: lifetimes.file_published,
    events.SegmentMade: submission.segment_made,
    events.SegmentReleased: submission.release_segment,
    events.Ticked: _ticked,
}


class Engine:
    """The scheduler's state machine; one per run, driven by real time or by a simulator."""

    def __init__(self, ready: ReadySet, *, follows_data: bool = False) -> None:
        self.state = State(ready, follows_data=follows_data)

    def handle(self, event: events.Event, now: float) -> list[Command]:
        """Take one event in, and say what is to be done about it."""
        state = self.state
        state.now = now
        commands: list[Command] = []
        state.out = commands
        try:
            handler = _HANDLERS[type(event)]
        except KeyError:
            raise InternalError(f"no handler for {event!r}") from None
        handler(state, event)
        if (state.ledger.open or state.hungry) and len(state.ready):
            placement.dispatch(state)
        return commands

    @property
    def unfinished(self) -> int:
        """Tasks that are not over."""
        return len(self.state.tasks)

    def next_look(self) -> float | None:
        """When a ``Ticked`` is due, unless something else happens before."""
        return placement.next_look(self.state)

    def ensure_possible(self, name: str, need: Requirements) -> None:
        """Raise ConstraintError for requirements that no node can ever meet."""
        submission.ensure_possible(self.state, name, need)

    def lives(self, version: VersionId) -> bool:
        """Whether a version is still to be made, or can still be read."""
        return version in self.state.versions
