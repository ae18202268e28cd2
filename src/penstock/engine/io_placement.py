"""Ready I/O tasks to I/O executors and storage devices: the I/O scheduler proposes, the ledger grants.

Unlike compute tasks they need no computing unit; what limits them is executors, bandwidth and room on a layer, and
learning phases. The I/O scheduler is told of nodes on which any of this changed before it is asked. What waits for room
alone is helped along, and in the end refused, in crowding.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.engine import io_demand, learning
from penstock.engine.devices import DeviceRecord
from penstock.engine.ledger import NodeRecord
from penstock.engine.placement import launch, send_ahead
from penstock.engine.state import IOTaskRecord, State
from penstock.scheduling.io import Rate

__all__ = ["dispatch", "next_look", "send_more"]


def dispatch(state: State) -> None:
    """Place what can be placed."""
    state.io_changed = False
    if len(state.io_ready) or state.courses:
        learning.arrange(state)
        _place(state)
        if learning.end_rests(state):
            learning.arrange(state)
            _place(state)
        if learning.close_deserted(state):
            _place(state)
    send_more(state)


def send_more(state: State) -> None:
    """Keep executors fed that run short tasks."""
    if state.hungry_io and (waiting := len(state.io_ready)):
        send_ahead(state, state.hungry_io, waiting)


class _Storage:
    """The storage as I/O schedulers see it."""

    __slots__ = ("_state",)

    def __init__(self, state: State) -> None:
        self._state = state

    def demand(self, task: IOTaskRecord, node: NodeRecord, device: DeviceRecord | None) -> Rate | None:
        return io_demand.demand(self._state, task, node, device)

    def oldest(self) -> Iterator[tuple[float | None, float]]:
        for layer in self._state.ledger.layers.values():
            for function, start in layer.running.oldest():
                yield layer.seconds.get(function), start


def _place(state: State) -> None:
    storage = _Storage(state)
    while len(state.io_ready):
        io_demand.watch(state)
        _tell(state)
        proposal = state.io_ready.propose(state.now, storage)  # type: ignore[arg-type]
        if proposal is not None:
            _grant(state, *proposal)  # type: ignore[arg-type]
            continue
        if learning.opens_now(state):
            continue
        return


def _tell(state: State) -> None:
    """Tell the ready set what has changed since it was last asked."""
    ledger, ready = state.ledger, state.io_ready
    if not ledger.touched:
        return
    alone = ready.nodes < 2
    for node in ledger.touched:
        if ledger.nodes.get(node.name) is node:
            ready.node_changed(node)
        else:
            ready.node_gone(node)
    ledger.touched.clear()
    if alone != (ready.nodes < 2):
        ready.demands_changed()  # whether a learning phase keeps others off its node depends on it


def _grant(state: State, task: IOTaskRecord, node: NodeRecord, device: DeviceRecord | None, bandwidth: float) -> None:
    state.io_ready.remove(task)
    lane = state.ledger.take(task, node)
    state.ledger.take_storage(task, node, device, bandwidth)
    task.started = state.now
    learning.attempt_started(state, task, node)
    launch(state, task, lane)


def next_look(state: State) -> float | None:
    """When time alone may let an I/O task start."""
    times = [learning.next_look(state)]
    if len(state.io_ready):
        times.append(state.io_ready.next_change(state.now))
    return min((time for time in times if time is not None), default=None)
