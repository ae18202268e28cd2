"""Time run backwards, to tell transfer from computing.

A log tells how long a body ran and how many bytes it wrote, not when. A replay under other settings must know: what is
computing takes the same time again, what is transfer depends on who else transfers. Bodies mostly end with their
writing. So time is run backwards: at the end of each attempt its stream begins, shares the device with the others by
the device's curve, and is over when its bytes are through. What is then left of the attempt was computing.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from msgspec import Struct

from penstock.model.data import TaskId
from penstock.model.resources import StorageLayer
from penstock.sim.devices import Device

__all__ = ["Stream", "backwards"]

#: What is left of an attempt may be no more than this share of it, or so many seconds: then its stream counts for the
#: others all the time that it ran. Else small errors would add up, since a device that seems less crowded than it was
#: seems faster, which makes others seem to have left it sooner.
_SHARE = 0.1
_MOMENT = 0.01
#: bytes of a stream that never ends by itself
_ENDLESS = 1e18


class Stream(Struct, frozen=True):
    """Bytes that somebody transferred between two times."""

    #: None for what is not of a task
    task: TaskId | None
    begin: float
    end: float
    size: int


def backwards(layer: StorageLayer, streams: Iterable[Stream]) -> dict[TaskId, float]:
    """Seconds that each task's stream took of its device, at the end of its attempt."""
    return _Backwards(layer, streams).run()


class _Backwards:
    """A device on a clock that starts with the end of the last stream and runs towards the beginning."""

    def __init__(self, layer: StorageLayer, streams: Iterable[Stream]) -> None:
        self._device: Device[int] = Device(layer.name, layer.bandwidth, layer.curve or layer.measured)
        self._streams = sorted(streams, key=lambda stream: stream.end, reverse=True)
        self._last = self._streams[0].end if self._streams else 0.0
        #: streams on the device, and when their attempts began
        self._active: set[int] = set()
        self._begins: list[tuple[float, int]] = []
        self._seconds: dict[TaskId, float] = {}

    def run(self) -> dict[TaskId, float]:
        streams, device, begins = self._streams, self._device, self._begins
        following = 0
        while following < len(streams) or self._active:
            while begins and begins[0][1] not in self._active:
                heapq.heappop(begins)
            completion = device.next_completion()
            begin = begins[0][0] if begins else None
            arrival = self._last - streams[following].end if following < len(streams) else None
            now = min(time for time in (completion, begin, arrival) if time is not None)
            if now == completion:
                self._complete(now)
            elif now == begin:
                self._cut(now, heapq.heappop(begins)[1])
            else:
                device.start(now, following, streams[following].size)
                self._active.add(following)
                heapq.heappush(begins, (self._last - streams[following].begin, following))
                following += 1
        return self._seconds

    def _complete(self, now: float) -> None:
        for index in self._device.complete(now):
            self._note(now, index)
            stream = self._streams[index]
            left = self._last - stream.begin - now
            if left < max(_MOMENT, _SHARE * (stream.end - stream.begin)):
                self._device.start(now, index, _ENDLESS)
            else:
                self._active.discard(index)

    def _cut(self, now: float, index: int) -> None:
        """An attempt began: if its bytes are not through, it was faster than the device can be, and all transfer."""
        self._active.discard(index)
        self._device.cancel(now, index)
        self._note(now, index)

    def _note(self, now: float, index: int) -> None:
        stream = self._streams[index]
        if stream.task is not None:
            self._seconds.setdefault(stream.task, now - (self._last - stream.end))
