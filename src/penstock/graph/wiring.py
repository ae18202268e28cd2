"""One call's accesses as edges that name their data.

Built while a call's arguments are looked at: what it reads fills numbered slots, what it writes gets new versions.
A version read twice fills one slot, so the same object passed twice is one object inside the task.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from penstock.model.data import FileRef, SegmentId, Value, VersionId
from penstock.model.outside import Outside
from penstock.model.tasks import Output, Steps, TaskCall, TaskSpec

__all__ = ["Wiring"]


class Wiring:
    """Slots, reads and writes of one call."""

    __slots__ = (
        "_also",
        "_followed",
        "_new_version",
        "_slot_of",
        "outputs",
        "reads",
        "segments",
        "slots",
        "stale",
        "streams",
        "writable",
        "writable_buffers",
        "written",
    )

    def __init__(self, new_version: Callable[[], VersionId]) -> None:
        self._new_version = new_version
        self._slot_of: dict[VersionId, int] = {}
        #: versions that are only waited for
        self._followed: set[VersionId] = set()
        #: further places where outputs are found, by their positions
        self._also: dict[int, list[Steps]] = {}
        self.slots: list[VersionId | Value | FileRef] = []
        #: slots that the task may change, in order
        self.writable: dict[int, None] = {}
        #: how many buffers of the arguments, from the first, belong to objects that the task changes
        self.writable_buffers = 0
        self.reads: list[VersionId] = []
        #: versions that the task can begin to read before they are complete
        self.streams: set[VersionId] = set()
        self.outputs: list[Output] = []
        self.written: list[VersionId] = []
        self.segments: set[SegmentId] = set()
        #: whether it reads a version that is gone since
        self.stale = False

    def read(self, version: VersionId, *, stream: bool = False) -> int:
        """The slot in which the task finds a version. One that is read in two ways must be complete."""
        slot = self._slot_of.get(version)
        if slot is None:
            slot = self._slot_of[version] = len(self.slots)
            self.slots.append(version)
            self.reads.append(version)
            if stream:
                self.streams.add(version)
        elif not stream:
            self.streams.discard(version)
        return slot

    def lose(self, version: VersionId) -> None:
        """The program takes back what a version is of: a task that was to read it cannot any more."""
        if version in self._slot_of:
            self.stale = True

    def follow(self, version: VersionId) -> None:
        """The task begins when a version exists, and has no use for it otherwise."""
        if version not in self._slot_of and version not in self._followed:
            self._followed.add(version)
            self.reads.append(version)

    def carry(self, value: Value) -> int:
        """A slot for a value that goes with the call."""
        self.slots.append(value)
        self.segments.update(piece.segment for piece in value.pieces())
        return len(self.slots) - 1

    def write(self, output: Output) -> VersionId:
        """The new version that an output will be."""
        version = self._new_version()
        self.outputs.append(output)
        self.written.append(version)
        if output.slot >= 0:
            self.writable[output.slot] = None
        return version

    def update(self, output: int, slot: int) -> None:
        """An output turns out to be what the task finds in a slot, changed."""
        self.outputs[output] = replace(self.outputs[output], slot=slot)
        self.writable[slot] = None

    def also(self, output: int, path: Steps) -> None:
        """An object that the task updates is at another place as well."""
        self._also.setdefault(output, []).append(path)

    def call(
        self,
        task: int,
        spec: TaskSpec,
        args: Value,
        returned: tuple[VersionId, ...],
        outside: Outside | None = None,
    ) -> TaskCall:
        """The finished call."""
        for position, paths in self._also.items():
            self.outputs[position] = replace(self.outputs[position], also=tuple(paths))
        return TaskCall(
            task,
            spec,
            args,
            tuple(self.slots),
            tuple(self.writable),
            tuple(self.reads),
            (*returned, *self.written),
            len(returned),
            tuple(self.outputs),
            tuple(self.segments),
            writable_buffers=self.writable_buffers,
            streams=tuple(self.streams),
            outside=outside,
        )
