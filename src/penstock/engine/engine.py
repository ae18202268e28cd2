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

from penstock.engine import (
    completion,
    crowding,
    flushing,
    io_placement,
    learning,
    lifetimes,
    lineage,
    outcomes,
    pauses,
    placed_files,
    placement,
    sharing,
    spilling,
    steering,
    submission,
    waits,
)
from penstock.engine.segment_store import StoreRules
from penstock.engine.state import State, StorageRules
from penstock.errors import InternalError
from penstock.model import events
from penstock.model.commands import Command
from penstock.model.data import VersionId
from penstock.model.resources import Requirements
from penstock.model.tasks import TaskState
from penstock.model.waits import Wait
from penstock.scheduling.view import ReadySet

__all__ = ["Engine"]


def _node_joined(state: State, event: events.NodeJoined) -> None:
    state.ledger.join(event.node)
    state.io_changed = True


def _ticked(state: State, event: events.Ticked) -> None:
    placement.look_at_time(state)
    if state.pauses:
        pauses.end_pauses(state)
    state.io_changed = True


_HANDLERS: dict[type, Callable[[State, Any], None]] = {
    events.NodeJoined: _node_joined,
    events.NodeLost: completion.node_lost,
    events.Submitted: submission.submit,
    events.Finished: completion.finished,
    events.OutputReady: completion.output_ready,
    events.Failed: completion.attempt_failed,
    events.Recalled: completion.attempts_recalled,
    events.WorkerLost: completion.worker_lost,
    events.Warmed: learning.warmed,
    events.Sampled: steering.sampled,
    events.CancelRequested: submission.cancel,
    events.Provided: submission.provide,
    events.Released: submission.release,
    events.Reverted: lifetimes.revert,
    events.Published: outcomes.file_published,
    events.Moved: flushing.moved,
    events.Discarded: placed_files.discarded,
    events.HomeWanted: flushing.want_home,
    events.FileDropped: flushing.drop_file,
    events.Draining: flushing.drain,
    events.SegmentMade: submission.segment_made,
    events.SegmentReleased: submission.release_segment,
    events.Spilled: spilling.spilled,
    events.Restored: spilling.restored,
    events.SegmentsLost: lineage.segments_lost,
    events.LeftMeasured: crowding.left_measured,
    events.BudgetChanged: sharing.budget_changed,
    events.Ticked: _ticked,
}


class Engine:
    """The scheduler's state machine; one per run, driven by real time or by a simulator."""

    def __init__(
        self,
        ready: ReadySet,
        *,
        follows_data: bool = False,
        storage: StorageRules | None = None,
        elastic: bool = False,
        store: StoreRules | None = None,
    ) -> None:
        rules = storage or StorageRules()
        self.state = State(ready, follows_data=follows_data, storage=rules, elastic=elastic, store=store)

    def handle(self, event: events.Event, now: float) -> list[Command]:
        """Take one event in, and say what is to be done about it."""
        state = self.state
        state.now = state.ledger.now = now
        commands: list[Command] = []
        state.out = commands
        try:
            handler = _HANDLERS[type(event)]
        except KeyError:
            raise InternalError(f"no handler for {event!r}") from None
        handler(state, event)
        if state.ledger.budgets:
            sharing.expire(state)
        if not state.draining:
            self._schedule(state)
        if state.steered and type(event) is events.Ticked:
            steering.look(state)  # at last: what was just placed may want a look at once
        return commands

    def _schedule(self, state: State) -> None:
        store, ledger = state.store, state.ledger
        if store is not None and store.records and store.is_pressed:
            spilling.advance(state)
        if (ledger.open or state.hungry) and (len(state.ready) or state.gangs.count):
            placement.dispatch(state)
        if state.io_changed or state.hungry_io or not ledger.holders:
            self._schedule_others(state)

    def _schedule_others(self, state: State) -> None:
        """What does not compute. When nothing runs any more, what still waits for room must be helped or refused."""
        idle = not state.ledger.holders
        if state.io_changed or (idle and len(state.io_ready)):
            if self._schedule_io(state):
                self._schedule(state)  # those that ignore the failure of what was refused may be ready now
        elif state.hungry_io:
            io_placement.send_more(state)
        # The same of what still waits for memory.
        store = state.store
        if store is not None and store.parked and not state.ledger.holders and spilling.admit_one(state):
            self._schedule(state)

    def _schedule_io(self, state: State) -> bool:
        """Place I/O tasks, and do what may be done meanwhile; whether some were refused for want of room."""
        if len(state.io_ready):
            crowding.doubt(state)
        io_placement.dispatch(state)
        if len(state.io_ready):
            return crowding.look(state)
        crowding.end_crowd(state)
        if state.rules.data_movement and state.placed:
            flushing.flush(state)
        return False

    @property
    def unfinished(self) -> int:
        """Tasks that are not over."""
        return len(self.state.tasks)

    @property
    def naming(self) -> bool:
        """Whether a finished file is still to be given its name."""
        state = self.state
        return bool(state.publishing) or (bool(state.moving) and flushing.delays_names(state))

    def next_look(self) -> float | None:
        """When a ``Ticked`` is due, unless something else happens before."""
        state = self.state
        first = placement.next_look(state)
        io = len(state.io_ready) or state.courses
        if not io and not state.pauses and not state.steered:
            return first  # as nearly always, when this is asked after every task
        times = [first]
        if io:
            times += [io_placement.next_look(state), crowding.next_look(state)]
        if state.pauses:
            times.append(pauses.next_end(state))
        if state.steered:
            times.append(steering.next_look(state))
        return min((time for time in times if time is not None), default=None)

    def usage(self, layer: str) -> sharing.Usage:
        """What the program has of a layer that it shares with others, and what it wants."""
        return sharing.usage(self.state, layer)

    def waits(self) -> list[Wait]:
        """Who waits for what, held by whom."""
        return waits.waits(self.state)

    def blocked(self) -> list[str]:
        """The ready tasks that wait for a node of another kind to join, by name and number."""
        tasks, ledger = self.state.tasks.values(), self.state.ledger
        return [
            task.label for task in tasks if task.state is TaskState.READY and not ledger.is_possible(task.requirements)
        ]

    def ensure_possible(self, name: str, need: Requirements) -> None:
        """Raise ConstraintError for requirements that no node can ever meet."""
        submission.ensure_possible(self.state, name, need)

    def lives(self, version: VersionId) -> bool:
        """Whether a version is still to be made, or can still be read."""
        return version in self.state.versions
