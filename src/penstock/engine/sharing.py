"""Layers that other programs use too: what this program has of each, and what it says that it wants.

    a task, or a move, wants a closed device ─▶ Claim ─▶ the driver's side ─▶ BudgetChanged ─▶ DeviceRecord.set_budget
    Usage ◀── read by the driver's side, now and then

Nothing begins on a device before it was claimed, nor after what was granted has ended without being renewed: then the
others take this program for dead, or for stopped. What attempts hold is never revoked: it is given up when they end.
While others use a device its controller rests: what it would measure are the others as well, and with others there
more attempts always seem better. It keeps the limit that it has, and of that this program has its part.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.engine.devices import DeviceRecord
from penstock.engine.ledger import NodeRecord
from penstock.engine.state import IOTaskRecord, State
from penstock.model.commands import Claim
from penstock.model.events import BudgetChanged, LayerShared
from penstock.model.resources import Requirements

__all__ = ["Usage", "budget_changed", "claim", "expire", "is_awaited", "usage", "waits_for_others"]


class Usage(NamedTuple):
    """What a program has of a layer, and what it wants: bytes per second, and bytes."""

    #: something holds it or waits for it
    busy: bool
    #: what may be held until that is said to be less
    may_hold: float
    holds: float
    wants: float
    #: the most that one of those who wait needs
    need: float
    room: int
    room_wanted: int
    room_needed: int
    #: bytes that earlier runs have left there, as far as that is known
    taken: int


def budget_changed(state: State, event: BudgetChanged) -> None:
    """This program has more or less of a layer."""
    ledger = state.ledger
    before = ledger.budgets.get(event.layer)
    ledger.budgets[event.layer] = event
    if event.others != (before.others if before is not None else 0):
        state.notes.append(LayerShared(event.layer, event.others, event.bandwidth))
    for device in ledger.devices():
        if device.name == event.layer:
            had, was_closed = device.free_capacity, device.closed
            device.set_budget(event)
            if was_closed != device.closed or device.shared:
                state.io_ready.demands_changed()
            if device.free_capacity > had:
                state.crowded_since = None
    state.io_changed = True


def claim(state: State, device: DeviceRecord) -> bool:
    """Whether a device is to be waited for, because nothing is had of it yet; if so, it is asked for."""
    if device.closed and not device.claimed:
        device.claimed = True
        state.out.append(Claim(device.name))
    return device.closed


def is_awaited(state: State, task: IOTaskRecord, node: NodeRecord, device: DeviceRecord) -> bool:
    """Whether a task must wait for what is had of a device of a node, or of a faster one that it would go to.

    Asked of the faster ones first, which is when they are claimed.
    """
    if not task.anchor and any(other.closed for other in node.devices):
        faster = node.devices[: node.devices.index(device)]
        if any(other.closed and node.lets_use(task.requirements, other) for other in faster):
            return True
    return claim(state, device)


def expire(state: State) -> None:
    """What was granted and not renewed in time is had no more."""
    for layer, budget in state.ledger.budgets.items():
        if not budget.closed and budget.until <= state.now:
            budget_changed(state, BudgetChanged(layer, 0.0, budget.room, others=budget.others))


def waits_for_others(state: State) -> bool:
    """Whether a task waits for what other programs have of a device's bandwidth, and for nothing else there."""
    devices = [device for device in state.ledger.devices() if device.closed or device.others]
    if not devices:
        return False
    return any(
        device.closed or task.requirements.capacity <= device.free_capacity > 0
        for task, _ in state.io_ready.kinds()
        for device in devices
        if _may_use(state, task, device)  # type: ignore[arg-type]
    )


def _may_use(state: State, task: IOTaskRecord, device: DeviceRecord) -> bool:
    if not task.requirements.layered:
        return False
    if task.anchor:
        return device.name == task.anchor
    return any(device in node.devices and node.lets_use(task.requirements, device) for node in _nodes(state))


def _nodes(state: State) -> list[NodeRecord]:
    return list(state.ledger.nodes.values())


def _least(need: Requirements, device: DeviceRecord) -> float:
    if need.auto is None:
        return need.bandwidth
    return min(need.auto.least, device.layer.bandwidth) if need.auto.bounded else 1.0


def usage(state: State, layer: str) -> Usage:
    """What this program has of a layer, and wants."""
    devices = [device for device in state.ledger.devices() if device.name == layer]
    moving = any(version.placed is not None and version.placed.moving in devices for version in state.moving.values())
    busy = moving
    may_hold = holds = wants = need = 0.0
    room = wanted = needed = 0
    for device in devices:
        whole = device.layer.bandwidth
        may_hold += whole - device.others
        holds += whole - device.others - device.free_bandwidth
        room += device.reserved + device.stored - device.taken
        busy = busy or bool(device.holders or device.moves or (device.closed and device.claimed))
        wants += whole if any(task.requirements.auto for task in device.holders.values()) else 0.0
    store = state.store
    if store is not None and any(device in store.queues for device in devices):
        busy, wants = True, wants + sum(device.layer.bandwidth for device in devices)
    for task, count in state.io_ready.kinds():
        usable = [device for device in devices if _may_use(state, task, device)]  # type: ignore[arg-type]
        if usable:
            one = task.requirements
            busy = True
            wants += one.bandwidth * count if one.auto is None else usable[0].layer.bandwidth
            need = max(need, _least(one, usable[0]))
            wanted += one.capacity * count
            needed = max(needed, one.capacity)
    taken = max((device.taken for device in devices), default=0)
    return Usage(busy, may_hold, holds, max(holds, wants), need, room, room + wanted, needed, taken)
