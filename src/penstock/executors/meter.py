"""How many bytes the I/O processes of this machine have transferred so far, by the layer they work on.

The kernel counts what each process reads and writes; nobody in the process has to. Emulated devices count themselves:
there a write returns before the bytes have, as it were, arrived. What is mapped, and what MPI ranks do, is not seen;
whoever uses the figures compares them with the sizes of finished files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from penstock.executors.emulated_device import EmulatedDevice
    from penstock.model.resources import StorageLayer

__all__ = ["Meter"]


class _Process(Protocol):
    """A process of the I/O pool."""

    #: 0 before it was started
    pid: int
    #: of its last attempt
    layer: str


class Meter:
    """Adds up what processes did since they were last looked at."""

    def __init__(self, layers: Sequence[StorageLayer], state_dir: str) -> None:
        self._emulated_layers = [layer for layer in layers if layer.curve]
        self._state_dir = state_dir
        self._devices: dict[str, _EmulatedCount] | None = None
        #: what each process had done when it was last looked at
        self._seen: dict[int, int] = {}
        self._totals: dict[str, float] = {}

    def delivered(self, layer: str, processes: Iterable[_Process]) -> float | None:
        """Bytes that processes have transferred on a layer, ever; None if that cannot be told here."""
        processes = [process for process in processes if process.pid]
        emulated = self._counts().get(layer)
        if emulated is not None:
            return emulated.of({process.pid for process in processes})
        for process in processes:
            done = _transferred(process.pid)
            if done is None:
                continue
            seen = self._seen.get(process.pid)
            self._seen[process.pid] = done
            if seen is not None and process.layer:
                self._totals[process.layer] = self._totals.get(process.layer, 0.0) + done - seen
        if processes and not self._seen:
            return None
        if len(self._seen) > 2 * len(processes) + 16:
            living = {process.pid for process in processes}
            self._seen = {pid: done for pid, done in self._seen.items() if pid in living}
        return self._totals.get(layer, 0.0)

    def _counts(self) -> dict[str, _EmulatedCount]:
        if self._devices is None:
            self._devices = {}
            if self._emulated_layers:
                from penstock.executors.emulation import from_layers

                devices = from_layers(self._emulated_layers, self._state_dir)
                for layer, device in zip(self._emulated_layers, devices, strict=True):
                    self._devices[layer.name] = _EmulatedCount(device)
        return self._devices

    def close(self) -> None:
        """Let go of emulated devices."""
        for count in (self._devices or {}).values():
            count.device.close()


class _EmulatedCount:
    """What processes of ours have moved on an emulated device."""

    def __init__(self, device: EmulatedDevice) -> None:
        self.device = device
        #: of each place for a stream, when it was last looked at
        self._seen: list[float] = []
        self._total = 0.0

    def of(self, pids: set[int]) -> float:
        moved = self.device.moved()
        self._seen += [0.0] * (len(moved) - len(self._seen))
        for place, (pid, nbytes) in enumerate(moved):
            if pid in pids:
                self._total += nbytes - self._seen[place]
            self._seen[place] = nbytes
        return self._total


def _transferred(pid: int) -> int | None:
    """Bytes that a process has read and written, with what children of it that have ended did."""
    try:
        descriptor = os.open(f"/proc/{pid}/io", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        lines = os.read(descriptor, 512).split(b"\n", 2)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return sum(int(line.partition(b":")[2]) for line in lines[:2])
