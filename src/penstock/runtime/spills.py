"""Segments on their way between shared memory and disk: what the engine asks for, done by threads of their own.

A move to or from an emulated storage layer takes its share of it, as a task would. A run that ends breaks moves off:
nobody will read what they carry.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.data.segments import SegmentLost, Segments
from penstock.engine.segment_store import StoreRules
from penstock.executors.layer_files import LayerFolder
from penstock.executors.mover import Mover
from penstock.model.commands import AT_A_TIME, Restore, Spill
from penstock.model.events import Restored, Spilled
from penstock.model.resources import StorageLayer
from penstock.runtime.recorder import Recorder
from penstock.storage.redirect import home_of, is_below

if TYPE_CHECKING:
    from penstock.executors.emulation import EmulatedDevice, EmulatedStream

__all__ = ["Spills", "is_in_memory", "spill_folders", "store_rules"]

#: bytes between two looks whether the run is over: an emulated device may be slow
_STEP = 64 << 10
#: a file system whose files take memory
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})


def store_rules(capacity: int, layers: Sequence[StorageLayer], spill_dir: str | None) -> StoreRules:
    """How much memory may hold, and where the rest goes.

    A ``spill_dir`` that the user has named is the only place. A layer in memory is none: nothing would be gained.
    """
    if spill_dir is not None:
        home = home_of(os.path.realpath(spill_dir) + "/", layers)
        name = "" if home is None else home.name
        return StoreRules(capacity, (name,), name)
    return StoreRules(capacity, (*(layer.name for layer in layers if not is_in_memory(layer.mount)), ""))


def is_in_memory(path: str) -> bool:
    """Whether a directory lies in memory, by the file system that is mounted above it."""
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
            mounts = [line.split() for line in file]
    except OSError:
        return False
    path = os.path.realpath(path) + "/"
    above = [(point, kind) for _, point, kind, *_ in mounts if is_below(path, point)]
    return max(above, key=lambda found: len(found[0]), default=("", ""))[1] in _IN_MEMORY


def spill_folders(layers: Sequence[StorageLayer], run: str, rules: StoreRules, spill_dir: str) -> dict[str, str]:
    """The folder for spilled segments on each layer."""
    folders = {layer.name: LayerFolder(layer.mount, run).spilled for layer in layers if layer.name in rules.places}
    return folders | ({rules.direct: spill_dir} if rules.direct else {})


class _Ended(Exception):
    """The run is over."""


class Spills:
    """Moves segments."""

    def __init__(
        self,
        segments: Segments,
        emulated: Mapping[str, EmulatedDevice],
        recorder: Recorder,
        tell: Callable[[Spilled | Restored], None],
        reserve: Callable[[str], None],
        *,
        inline: bool,
    ) -> None:
        self._segments = segments
        self._emulated = emulated
        self._recorder = recorder
        self._tell = tell
        #: says that this run uses a layer, before anything is written there
        self._reserve = reserve
        # As many as the engine asks for at a time: whatever holds bandwidth uses it.
        self._spillers = [Mover(f"spiller-{number}", inline=inline) for number in range(AT_A_TIME)]
        self._restorers = [Mover(f"restorer-{number}", inline=inline) for number in range(AT_A_TIME)]
        self._asked = 0
        self._ended = False

    @property
    def _movers(self) -> list[Mover]:
        return [*self._spillers, *self._restorers]

    def spill(self, command: Spill) -> None:
        """Move a segment to disk."""
        self._asked += 1
        self._spillers[self._asked % AT_A_TIME].do(lambda: self._spill(command))

    def restore(self, command: Restore) -> None:
        """Move a segment to memory."""
        self._asked += 1
        self._restorers[self._asked % AT_A_TIME].do(lambda: self._restore(command))

    def catch_up(self) -> None:
        """Do what waits, in the calling thread, where the movers have none of their own."""
        for mover in self._movers:
            mover.catch_up()

    def close(self) -> None:
        """Break moves off, and return when that has happened."""
        self._ended = True
        for mover in self._movers:
            mover.close()

    def _spill(self, command: Spill) -> None:
        error, lost, seconds = self._move(self._segments.spill, command)
        self._recorder.spilled(command, seconds, error, time.monotonic())
        self._tell(Spilled(command.segment, error, lost))

    def _restore(self, command: Restore) -> None:
        error, lost, seconds = self._move(self._segments.restore, command)
        self._recorder.restored(command, seconds, error, time.monotonic())
        self._tell(Restored(command.segment, error, lost))

    def _move(
        self, move: Callable[[int, str, Callable[[int], None]], None], command: Spill | Restore
    ) -> tuple[str, bool, float]:
        """Move a segment: why it could not be, whether it is lost, and the seconds it took."""
        began = time.monotonic()
        device = self._emulated.get(command.layer)
        stream: EmulatedStream | None = None

        def note_progress(copied: int) -> None:
            while copied > 0:
                if self._ended:
                    raise _Ended
                if stream is not None:
                    stream.transfer(min(copied, _STEP))
                copied -= _STEP

        error, lost = "", False
        try:
            if device is not None:
                stream = device.stream()
                stream.begin()
            if command.layer:
                self._reserve(command.layer)
            folder = self._segments.layer_dirs.get(command.layer, self._segments.spill_dir)
            move(command.segment, folder, note_progress)
        except SegmentLost as loss:
            error, lost = loss.why, True
        except Exception as problem:  # whatever it was, the engine waits for an answer
            error = getattr(problem, "strerror", None) or f"{type(problem).__name__}: {problem}"
        finally:
            if stream is not None:
                with contextlib.suppress(Exception):
                    stream.close()
        return error, lost, time.monotonic() - began
