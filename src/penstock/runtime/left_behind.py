"""What runs that were killed have left on storage layers: who asks is told how much, and says so once.

A described layer is looked at; of those that only a program knows, and of those that are found, the traces that runs
leave tell (traces.py). `penstock recover` brings it home (bringing_home.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import NamedTuple

from penstock.executors.disposable import RECORD, machine
from penstock.executors.layer_runs import DeadRun, dead_runs
from penstock.executors.saying import say
from penstock.model.events import LeftMeasured
from penstock.model.resources import StorageLayer
from penstock.runtime.traces import Trace, all_traces
from penstock.units import format_size

__all__ = ["Left", "LeftWatch", "left_on", "point_out", "traced_mounts"]

#: what goes without our doing when the run was of this machine: the next run's guardian sweeps it
_SWEPT = ("work", "work-dead")
#: seconds between two looks
_EVERY = 1.0
#: mounts of which this process has said that something is there
_said: set[str] = set()


class Left(NamedTuple):
    """What a run that is over has on a layer."""

    run: DeadRun
    files: int
    #: bytes
    size: int


def left_on(mount: str) -> list[Left]:
    """What there is on a layer, for every run that is over."""
    return [left for run in dead_runs(mount) if (left := _measured(run)) is not None]


def _measured(run: DeadRun) -> Left | None:
    swept = _SWEPT if run.boot in ("", machine().decode()) else ()
    files = size = 0
    for folder, folders, names in os.walk(run.root):
        if folder == run.root:
            folders[:] = [name for name in folders if name not in swept]
            names = [name for name in names if name != RECORD]
        for name in names:
            try:
                size += os.lstat(os.path.join(folder, name)).st_size
                files += 1
            except OSError:
                pass  # somebody is removing it
    return Left(run, files, size) if files else None


def traced_mounts() -> list[str]:
    """Layers on which runs of this user may have left something; traces of which nothing is left go."""
    mounts: dict[str, None] = {}
    for trace in all_traces():
        if _is_over(trace):
            trace.forget()
        else:
            mounts.update(dict.fromkeys(trace.mounts))
    return list(mounts)


def _is_over(trace: Trace) -> bool:
    """Whether nothing of a run is left: of a layer that is not there now, that is not known."""
    there = all(os.path.isdir(mount) for mount in trace.mounts)
    return there and not any(os.path.lexists(root) for root in trace.roots()) and not trace.is_new


class LeftWatch:
    """While tasks wait for room, looks now and then whether what earlier runs left is still there."""

    def __init__(
        self,
        layers: Iterable[StorageLayer],
        do: Callable[[Callable[[], None]], None],
        tell: Callable[[LeftMeasured], None],
    ) -> None:
        """``do`` has something done in a thread that may touch disks; ``tell`` hears what was found."""
        self._mounts = {layer.name: layer.mount for layer in layers if layer.taken}
        self._do = do
        self._tell = tell
        self._next = 0.0

    def next_look(self, crowded_since: float | None) -> float | None:
        """When to look again, if tasks wait for room."""
        return None if crowded_since is None or not self._mounts else self._next

    def look(self, crowded_since: float | None, now: float) -> None:
        """Have it looked at, if it is time."""
        due = self.next_look(crowded_since)
        if due is not None and due <= now:
            self._next = now + _EVERY
            self._do(self._measure)

    def _measure(self) -> None:
        for layer, mount in self._mounts.items():
            self._tell(LeftMeasured(layer, sum(left.size for left in left_on(mount))))


def point_out(layers: Iterable[StorageLayer]) -> None:
    """Say in one line what earlier runs have left on the layers of a run that starts; once in a process."""
    traced = traced_mounts()
    mounts = [layer.mount for layer in layers if layer.taken or layer.mount in traced]
    left = [left for mount in mounts if mount not in _said for left in left_on(mount)]
    if left:
        places = sorted({one.run.mount for one in left})
        _said.update(places)
        files, size = sum(one.files for one in left), format_size(sum(one.size for one in left))
        what = f"{files} files" if files > 1 else "a file"
        say(
            f"penstock: an earlier run has left {what} ({size}) on {', '.join(places)}: `penstock recover` brings home "
            f"what is there\n"
        )
