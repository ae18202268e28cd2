"""How much of the machine's CPUs others use while something is measured: what they take, streams have to wait for."""

from __future__ import annotations

import os
import time

__all__ = ["OtherUse"]

_STAT = "/proc/stat"
#: fields of a CPU line that are no work: idle, and waiting for a disk, which is what we are here for
_IDLE = (3, 4)
#: user, nice, system, idle, iowait, irq, softirq, steal; time of guests is in the first two already
_FIELDS = 8


class OtherUse:
    """Adds up what others used, from one look to the next; it says nothing where the kernel tells nothing."""

    def __init__(self, stat: str = _STAT) -> None:
        self._stat = stat
        self._used = self._there = 0.0
        self._before: tuple[float, float] | None = None

    def begin(self) -> None:
        """From now on it counts."""
        self._before = self._look()

    def end(self, ours: float) -> None:
        """Up to now, of which so many seconds of CPU time were ours."""
        before, now = self._before, self._look()
        if before is not None and now is not None:
            self._used += max(0.0, now[0] - before[0] - ours)
            self._there += now[1] - before[1]

    @property
    def share(self) -> float | None:
        """Of all CPUs, from 0 to 1."""
        return min(1.0, self._used / self._there) if self._there > 0 else None

    def _look(self) -> tuple[float, float] | None:
        """Seconds in which CPUs worked, and seconds that there were; this process's own work does not count."""
        try:
            with open(self._stat, "rb") as file:
                fields = [int(field) for field in file.readline().split()[1 : _FIELDS + 1]]
        except (OSError, ValueError):
            return None
        if len(fields) <= max(_IDLE):
            return None
        ticks = os.sysconf("SC_CLK_TCK")
        work = sum(field for number, field in enumerate(fields) if number not in _IDLE)
        return work / ticks - time.process_time(), sum(fields) / ticks
