"""A storage device or a link on virtual time: the streams that are active share its bandwidth fairly.

One number, the *service*, counts the bytes served to a stream that was active all the time. With n streams it grows
by rate(n)/n a second, so a stream of b bytes is over when the service has grown by b, however often n changes. Streams
thus end in the order of a heap, and a start or an end touches no other stream.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

from penstock.errors import InternalError
from penstock.storage.curves import Curve, interpolate

__all__ = ["Device"]

S = TypeVar("S", bound=Hashable)

#: streams whose ends are closer than this share of the service end together: they differ by rounding only
_ROUNDING = 1e-12


class Device(Generic[S]):
    """Streams by whatever stands for them, and when the next of them ends."""

    def __init__(self, name: str, bandwidth: float, curve: Curve = (), per_stream: float = 0.0) -> None:
        self.name = name
        #: bytes that streams have transferred, and seconds in which there was any stream
        self.served = 0.0
        self.busy = 0.0
        #: grows with every change, so that what was computed before it can be told
        self.revision = 0
        self._bandwidth = bandwidth
        self._curve = curve
        #: bytes per second that one stream gets at most; 0: as much as there is
        self._per_stream = per_stream
        self._service = 0.0
        self._updated = 0.0
        self._serial = 0
        #: the service at which each stream ends; with a serial number for ties, and for entries of cancelled streams
        self._heap: list[tuple[float, int, S]] = []
        #: serial number and bytes of each active stream
        self._active: dict[S, tuple[float, int, float]] = {}
        self._shares: dict[int, float] = {}
        #: part of its bandwidth that it has, and streams of others, who are not part of the simulation
        self._speed = 1.0
        self._strangers = 0

    def __len__(self) -> int:
        return len(self._active)

    def __contains__(self, stream: S) -> bool:
        return stream in self._active

    def rate(self, streams: int) -> float:
        """Bytes per second that this many streams get together."""
        everybody = streams + self._strangers
        rate = interpolate(self._curve, everybody) if self._curve else self._bandwidth
        if self._per_stream:
            rate = min(rate, everybody * self._per_stream)
        return rate * self._speed * streams / everybody

    def vary(self, now: float, speed: float, strangers: int) -> None:
        """From now on it is so many times as fast as described, and others have so many streams there."""
        self._advance(now)
        self._speed = speed
        self._strangers = strangers
        self._shares.clear()
        self.revision += 1

    def start(self, now: float, stream: S, size: float) -> None:
        """A stream of ``size`` bytes begins."""
        if stream in self._active:
            raise InternalError(f"a stream began twice on {self.name}")
        self._advance(now)
        self._serial += 1
        end = self._service + size
        self._active[stream] = (end, self._serial, size)
        heapq.heappush(self._heap, (end, self._serial, stream))
        self.revision += 1

    def cancel(self, now: float, stream: S) -> None:
        """A stream breaks off; what it has transferred so far counts."""
        self._advance(now)
        end, _, size = self._active.pop(stream)
        self.served += size - max(0.0, end - self._service)
        self._drop_cancelled()
        self.revision += 1

    def transferred(self, now: float, stream: S) -> float:
        """Bytes of an active stream so far; 0 if it is not, or not yet."""
        if stream not in self._active:
            return 0.0
        self._advance(now)
        end, _, size = self._active[stream]
        return size - max(0.0, end - self._service)

    def next_completion(self) -> float | None:
        """When the next stream ends, if none begins or breaks off before; None if there is none."""
        if not self._heap:
            return None
        left = max(0.0, self._heap[0][0] - self._service)
        return self._updated + left / self._share()

    def complete(self, now: float) -> list[S]:
        """The streams that end at the time that ``next_completion`` told, in the order in which they began."""
        self._advance(now)
        if not self._heap:
            return []
        # The time was computed from this end: it is here now, whatever rounding says.
        self._service = max(self._service, self._heap[0][0])
        ended = []
        while self._heap and self._heap[0][0] <= self._service * (1 + _ROUNDING):
            stream = heapq.heappop(self._heap)[2]
            self.served += self._active.pop(stream)[2]
            ended.append(stream)
            self._drop_cancelled()
        self.revision += 1
        return ended

    def _advance(self, now: float) -> None:
        if self._active:
            self._service += (now - self._updated) * self._share()
            self.busy += now - self._updated
        else:
            self._service = 0.0  # a fresh start, exact again
        self._updated = now

    def _share(self) -> float:
        streams = len(self._active)
        share = self._shares.get(streams)
        if share is None:
            share = self._shares[streams] = self.rate(streams) / streams
        return share

    def _drop_cancelled(self) -> None:
        """See that the heap, if it is not empty, begins with an active stream."""
        heap = self._heap
        while heap:
            end, serial, stream = heap[0]
            if self._active.get(stream, (end, 0))[1] == serial:
                return
            heapq.heappop(heap)
