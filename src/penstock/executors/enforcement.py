"""Layers that are *enforced*: what an attempt writes there takes as long as the bandwidth that it holds says.

    begin(run) ─► Pace(rate) ◄─ _EnforcedStream.transfer(n): sleeps ─ a file of this process (paced_files)
    end(outcome): waits for what went past the files; the attempt ends when that is paid

Reads are not held back: whoever floods a device does so by writing, and a reader of the page cache reads no device.
What programs, C libraries and maps write is known only when the attempt ends: from the kernel's count of what this
process and its children have written, and from the sizes of the attempt's files.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from typing import Final

from penstock.executors.paced_files import Device, Stream
from penstock.executors.wire import Done, Error, Run
from penstock.model.data import FileRef
from penstock.model.resources import StorageLayer

__all__ = ["Enforcement", "Pace"]

#: seconds that an attempt may be ahead or behind for a moment: less is not worth a sleep, more would be a flood
_WORTH_SLEEPING: Final = 0.005
_LONGEST_LAG: Final = 0.1
#: the least that is written at once; below it, calls would cost more than what they move
_LEAST_PART: Final = 1 << 16


class Pace:
    """The bandwidth that an attempt holds, shared by all threads and files of it."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        #: bytes to be written at once at most, so that a large write does not flood the device before it is held back
        self.part = max(_LEAST_PART, int(rate * _LONGEST_LAG))
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._due = self._began
        self._paced = 0

    def advance(self, nbytes: int) -> None:
        """Return when these bytes, after those before, have taken their time."""
        with self._lock:
            self._paced += nbytes
            self._due = max(self._due, time.monotonic() - _LONGEST_LAG) + nbytes / self._rate
            due = self._due
        _sleep_until(due)

    def settle(self, nbytes: int) -> float:
        """At the end, when ``nbytes`` in all are known to have been written: wait for the rest; gives how long."""
        due = max(self._due, self._began + nbytes / self._rate) if nbytes > self._paced else self._due
        return _sleep_until(due)


def _sleep_until(due: float) -> float:
    ahead = due - time.monotonic()
    if ahead <= _WORTH_SLEEPING:
        return 0.0
    time.sleep(ahead)
    return ahead


class Enforcement:
    """The enforced layers of a process, and the pace of the attempt that it carries out."""

    def __init__(self, layers: Sequence[StorageLayer]) -> None:
        self._layers = {layer.name: layer for layer in layers if layer.enforced}
        self._held = ""
        self._pace: Pace | None = None
        self._written_before = 0

    def over(self, devices: Sequence[Device]) -> list[Device]:
        """These devices, with the enforced layers; one that is emulated too takes the longer of both times."""
        emulated = {device.mount: device for device in devices}
        enforced: dict[str, Device] = {}
        for layer in self._layers.values():
            mount = os.path.realpath(layer.mount)
            enforced[mount] = _EnforcedDevice(mount, layer.name, self, emulated.get(mount))
        return list((emulated | enforced).values())

    def pace(self, layer: str) -> Pace | None:
        """That of the attempt under way, if it holds bandwidth of this layer."""
        return self._pace if layer == self._held else None

    def begin(self, run: Run, processes: int = 1) -> None:
        """An attempt begins; so many processes share what it holds."""
        if run.layer in self._layers and run.bandwidth > 0:
            self._held, self._pace = run.layer, Pace(run.bandwidth / processes)
            self._written_before = _written()

    def end(self, outcome: Done | Error) -> None:
        """The body of the attempt has ended: return when what it wrote has taken its time, and count that time."""
        pace, self._pace, self._held = self._pace, None, ""
        if pace is not None:
            outputs = outcome.outputs if isinstance(outcome, Done) else ()
            made = sum(output.size for output in outputs if isinstance(output, FileRef))
            outcome.seconds += pace.settle(max(made, _written() - self._written_before))


class _EnforcedDevice:
    """A layer on which an attempt writes no faster than it may."""

    def __init__(self, mount: str, layer: str, enforcement: Enforcement, beneath: Device | None) -> None:
        self.mount = mount
        self._layer = layer
        self._enforcement = enforcement
        self._beneath = beneath

    @property
    def part(self) -> int | None:
        pace = self.pace()
        return None if pace is None else pace.part

    def pace(self) -> Pace | None:
        return self._enforcement.pace(self._layer)

    def stream(self) -> Stream:
        return _EnforcedStream(self, None if self._beneath is None else self._beneath.stream())


class _EnforcedStream:
    def __init__(self, device: _EnforcedDevice, beneath: Stream | None) -> None:
        self._device = device
        self._beneath = beneath

    def begin(self) -> None:
        if self._beneath is not None:
            self._beneath.begin()

    def transfer(self, nbytes: int, *, reads: bool = False) -> None:
        if self._beneath is not None:
            self._beneath.transfer(nbytes, reads=reads)
        pace = None if reads else self._device.pace()
        if pace is not None:
            pace.advance(nbytes)

    def close(self) -> None:
        if self._beneath is not None:
            self._beneath.close()


def _written() -> int:
    """Bytes that this process has had written to disks, with what children of it that have ended did."""
    try:
        with open("/proc/self/io", "rb") as file:
            fields = dict(line.split(b":") for line in file)
        return int(fields[b"write_bytes"])
    except (OSError, KeyError):  # not every kernel counts it
        return 0
