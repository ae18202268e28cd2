"""Ready I/O tasks to I/O executors and storage devices: the I/O scheduler proposes, the ledger grants.

Unlike compute tasks they need no computing unit; what limits them is executors, bandwidth and room on a layer, and
learning phases. What waits for room alone is helped along, and in the end refused, in crowding.py.
"""

from __future__ import annotations

from penstock.engine import learning
from penstock.engine.devices import DeviceRecord
from penstock.engine.ledger import NodeRecord
from penstock.engine.placement import launch, send_ahead
from penstock.engine.state import IOTaskRecord, State

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


def _place(state: State) -> None:
    def demand(task: IOTaskRecord, node: NodeRecord, device: DeviceRecord | None) -> float | None:
        return learning.demand(state, task, node, device)

    nodes = list(state.ledger.nodes.values())
    while len(state.io_ready):
        proposal = state.io_ready.propose(nodes, state.now, demand)  # type: ignore[arg-type]
        if proposal is not None:
            _grant(state, *proposal)  # type: ignore[arg-type]
            continue
        if learning.opens_now(state):
            continue
        return


def _grant(state: State, task: IOTaskRecord, node: NodeRecord, device: DeviceRecord | None, bandwidth: float) -> None:
    state.io_ready.remove(task)
    lane = state.ledger.take(task, node)
    state.ledger.take_storage(task, node, device, bandwidth)
    task.started = state.now
    task.concurrency = len(device.holders) if device is not None else 0
    learning.attempt_started(state, task, node)
    launch(state, task, lane)


def next_look(state: State) -> float | None:
    """When time alone may let an I/O task start."""
    times = [learning.next_look(state)]
    if len(state.io_ready):
        times.append(state.io_ready.next_change(state.now))
    return min((time for time in times if time is not None), default=None)
