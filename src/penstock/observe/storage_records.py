"""Records of storage: devices, learned constraints, files on their way; records.py lists them among the others."""

from __future__ import annotations

from penstock.observe.event import Event

__all__ = [
    "ConstraintChosen",
    "ConstraintDrifted",
    "DeliveryChanged",
    "DeliveryMeasured",
    "Device",
    "Draining",
    "EpochEnded",
    "Freed",
    "LayerShared",
    "LimitSettled",
    "Moved",
    "Restored",
    "Spilled",
]


class Device(Event):
    """Bandwidth of a storage device was taken or given back: how it stands now."""

    node: str
    layer: str
    #: bytes per second taken
    used: float
    #: attempts that hold some
    running: int
    #: ready I/O tasks that wait for this or another device
    waiting: int
    #: bytes of finished files
    stored: int = 0


class EpochEnded(Event):
    """An epoch of a learning phase closed: the mean time at one value of the constraint is known."""

    name: str
    layer: str
    node: str
    #: bytes per second
    constraint: float
    seconds: float
    concurrency: int
    tasks: int
    partial: bool = False
    registered: bool = True


class ConstraintChosen(Event):
    """The value that a learned constraint has from now on."""

    name: str
    layer: str
    #: bytes per second
    constraint: float
    concurrency: int
    seconds: float
    remembered: bool = False


class ConstraintDrifted(Event):
    """Attempts take another time than was learned: learning begins anew."""

    name: str
    layer: str
    ratio: float


class DeliveryMeasured(Event):
    """What a device delivered while so many attempts ran."""

    layer: str
    node: str
    concurrency: int
    #: bytes per second, of all of them
    delivered: float
    #: standard error, as a part of that
    error: float


class LimitSettled(Event):
    """So many attempts at a time get most from a device."""

    layer: str
    node: str
    #: functions whose constraint follows from it
    functions: list[str]
    concurrency: int
    delivered: float
    #: bytes per second that each attempt reserves
    constraint: float
    #: the next best of those that were tried, and what it delivered; 0 if no other was
    other: int = 0
    other_delivered: float = 0.0
    #: it is where an earlier run had ended
    remembered: bool = False


class DeliveryChanged(Event):
    """A device delivers otherwise than it did: other numbers are tried again."""

    layer: str
    node: str
    concurrency: int
    before: float
    delivered: float


class LayerShared(Event):
    """Other programs use a layer too, or do not any more."""

    layer: str
    #: how many
    others: int
    #: bytes per second that this program may hold of it from now on
    bandwidth: float


class Moved(Event):
    """A file was moved to another layer, or home (an empty layer)."""

    version: int
    path: str
    source: str
    layer: str
    bytes: int
    seconds: float
    error: str = ""


class Draining(Event):
    """The tasks are over, and files that lie on layers are brought to their own names."""

    files: int
    bytes: int


class Spilled(Event):
    """A segment of the store was moved from memory to a storage layer, or to the run's own place (an empty layer)."""

    segment: int
    layer: str
    bytes: int
    seconds: float
    error: str = ""


class Restored(Event):
    """A segment was moved back to memory, because a task needs it."""

    segment: int
    layer: str
    bytes: int
    seconds: float
    error: str = ""


class Freed(Event):
    """Nobody can read a segment of the store any more; it was deleted."""

    segment: int
    bytes: int
