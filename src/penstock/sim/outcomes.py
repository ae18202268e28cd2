"""What a simulated run came to, read off its world when it is over."""

from __future__ import annotations

from msgspec import Struct

from penstock.model import events
from penstock.model.tasks import FailureKind
from penstock.sim.transfers import TransferDevice
from penstock.sim.world import Master, Waiting, World

__all__ = ["DeviceUse", "Outcome", "outcome_of"]


class DeviceUse(Struct, frozen=True):
    """What was asked of a storage device or a link."""

    transferred: float
    #: seconds in which there was any stream
    busy: float


class Outcome(Struct, frozen=True):
    """What came of a simulated run; times in seconds from its start."""

    #: when the last task was over
    makespan: float
    #: when all files were home too
    end: float
    done: int
    failed: int
    #: tasks that failed, by reason
    failures: dict[FailureKind, int]
    #: computing units times seconds that attempts held them, by node
    busy: dict[str, float]
    #: by layer, with the node's name before it unless the layer is shared
    devices: dict[str, DeviceUse]
    #: by node and direction; empty without a network
    links: dict[str, DeviceUse]
    master: Master
    waiting: Waiting
    #: what was learned about constraints, in order
    notes: list[events.Note]
    #: what the engine was told, if that was to be recorded
    log: list[tuple[float, events.Event]]

    @property
    def epochs(self) -> list[events.EpochEnded]:
        return [note for note in self.notes if isinstance(note, events.EpochEnded)]

    @property
    def chosen(self) -> list[events.ConstraintChosen]:
        return [note for note in self.notes if isinstance(note, events.ConstraintChosen)]


def outcome_of(world: World, makespan: float, called: int, log: list[tuple[float, events.Event]]) -> Outcome:
    """The outcome of a run that is over: its last task at ``makespan``, its files by now; ``called`` tasks in all."""
    executor, done = world.executor, world.engine.state.done
    return Outcome(
        makespan,
        world.now,
        done,
        called - done,
        dict(world.failures),
        executor.busy,
        {name: _use(device) for name, device in executor.files.devices.items()},
        {name: _use(device) for name, device in executor.links.devices.items()},
        world.master,
        world.waiting,
        world.notes,
        log,
    )


def _use(device: TransferDevice) -> DeviceUse:
    return DeviceUse(device.served, device.busy)
